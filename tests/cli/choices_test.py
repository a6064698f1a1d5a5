"""`choices`: answers that are one of the texts that a line or `--choice` names. Each is what the rule makes of the
log-probabilities that `score` tells, step by step; the same bytes come out wherever weights, KV and states lie, and of a
run that was interrupted. Standard library only.

  python3 choices_test.py path/to/spillway [unittest arguments]
"""

import json
import math
import os
import pathlib
import re
import signal
import subprocess
import sys
import time
import unittest

import harness

END = 2  # </s>
LABELS = [[" king", " queen", " kingdom", " kingly"], ["a", "ab", "abc", "zebra"], [" yes", " no", " none of them"],
          ["\u00e9t\u00e9", "\u20ac 5", "x"]]
PROMPTS = [[2, 5, 9], [2, 314, 550, 967], [2, 40, 41, 42, 43, 44], [2]]
PLACEMENTS = [
    ["--gpu-batch-size", 4],
    ["--gpu-batch-size", 1, "--threads", 1],
    ["--gpu-batch-size", 3, "--num-gpu-batches", 2, "--percent", 0, 0, 0, 0, 0, 0],
    ["--gpu-batch-size", 5, "--num-gpu-batches", 2, "--percent", 30, 30, 30, 30, 30, 30, "--emulate-gpu", "256MiB"],
]


class Row:
    """The rule, for one row, from log-probabilities that it is told."""

    def __init__(self, prompt, choices):
        self.prompt, self.choices = prompt, choices  # tokens of each
        self.tokens, self.logprob, self.ended = [], 0.0, False

    def candidates(self):
        size = len(self.tokens)
        return sorted({choice[size] for choice in self.choices if len(choice) > size and choice[:size] == self.tokens})

    def step(self, logprobs):
        """`logprobs`: of each candidate."""
        options = dict(logprobs)
        if self.tokens in self.choices:
            longer = sum(math.exp(logprob) for logprob in logprobs.values())
            options[END] = math.log(max(1.0 - longer, 1e-300))
        best = min(options, key=lambda token: (-options[token], token))
        self.tokens.append(best)
        self.logprob += options[best]
        self.ended = best == END or (self.tokens in self.choices and not self.candidates())

    def choice(self):
        return self.choices.index(self.tokens[:-1] if self.tokens[-1] == END else self.tokens)


class ChoicesTest(harness.VerbTest):
    def requests(self, **more):
        return [{"token_ids": prompt, "choices": choices, **more} for prompt in PROMPTS for choices in LABELS]

    def generate(self, records, *words, status=0):
        source = harness.write_jsonl(self.folder / "in.jsonl", records)
        result = self.run_verb("generate", "--input", source, "--output", "-", "--quiet", "--allow-duplicate-ids",
                               "--offload-dir", self.folder, *words, status=status)
        return [json.loads(line) for line in result.stdout.splitlines()], result.stdout

    def choices(self, *args, **more):
        return [line["response"]["body"]["choices"][0] for line in self.generate(*args, **more)[0]]

    def score_candidates(self, rows):
        """[{candidate: log-probability}] of each row's next token."""
        lines = [{"context_token_ids": row.prompt + row.tokens, "continuation_token_ids": [token]}
                 for row in rows for token in row.candidates()]
        source = harness.write_jsonl(self.folder / "score.jsonl", lines)
        result = self.run_verb("score", "--input", source, "--output", "-", "--quiet", "--allow-duplicate-ids")
        found = iter([json.loads(line)["logprob_sum"] for line in result.stdout.splitlines()])
        return [{token: next(found) for token in row.candidates()} for row in rows]

    def tokens_of(self, texts):
        """As the tokenizer cuts them, without the start token."""
        source = harness.write_jsonl(self.folder / "texts.jsonl", [{"prompt": text} for text in texts])
        result = self.run_verb("tokenize", "--input", source, "--output", "-", "--quiet")
        return [json.loads(line)["token_ids"][1:] for line in result.stdout.splitlines()]

    def test_answers_are_what_the_rule_makes_of_the_scores(self):
        rows = [Row(request["token_ids"], self.tokens_of(request["choices"])) for request in self.requests()]
        while running := [row for row in rows if not row.ended]:
            for row, logprobs in zip(running, self.score_candidates(running)):
                row.step(logprobs)
        for row, answer in zip(rows, self.choices(self.requests()), strict=True):
            self.assertEqual(answer["token_ids"], row.tokens)
            self.assertEqual(answer["choice"]["index"], row.choice())
            self.assertAlmostEqual(answer["choice"]["logprob"], row.logprob, delta=1e-3)
            self.assertEqual(answer["finish_reason"], "stop")

    def test_the_same_bytes_everywhere(self):
        for more in {}, {"temperature": 1.0, "logprobs": 3}:
            expected = self.generate(self.requests(**more), *PLACEMENTS[0])[1]
            for placement in PLACEMENTS[1:]:
                self.assertEqual(self.generate(self.requests(**more), *placement)[1], expected, placement)

    def test_draws_take_other_choices(self):
        drawn = {self.choices([{"token_ids": [2, 5, 9], "choices": ["x", "y", "z"], "temperature": 1.0, "seed": seed}])[0]["text"]
                 for seed in range(12)}
        self.assertGreater(len(drawn), 1)

    def test_a_flag_names_the_choices_of_all_lines(self):
        source = self.folder / "prompts.txt"
        source.write_text("Is it?\nOr not?\n")
        words = ["generate", "--input", source, "--output", "-", "--quiet", "--choice", "yes", "--choice", "no"]
        for line in self.run_verb(*words, "--max-new-tokens", 1).stdout.splitlines():
            self.assertIn(json.loads(line)["response"]["body"]["choices"][0]["text"], ("yes", "no"))
        report = self.folder / "report.json"
        self.run_verb(*words, "--report", report)
        self.assertEqual(json.loads(report.read_text())["sampling"]["choices"], ["yes", "no"])

    def test_inspect_counts_them(self):
        output = self.folder / "out.jsonl"
        _, lines = self.generate(self.requests())
        output.write_bytes(lines)
        taken = {}
        for line in lines.splitlines():
            answer = json.loads(line)["response"]["body"]["choices"][0]
            taken.setdefault(answer["text"], []).append(answer["choice"]["logprob"])
        shown = self.run_verb("inspect", output).stdout.decode()
        for text, logprobs in taken.items():
            share = 100 * len(logprobs) / len(lines.splitlines())
            self.assertRegex(shown, rf'{len(logprobs)} +{share:.1f} %  "{re.escape(text)}", mean log-probability '
                                    rf'{sum(logprobs) / len(logprobs):.2f}\n')
        plain = self.folder / "plain.jsonl"
        plain.write_bytes(self.generate([{"token_ids": [2, 5], "max_tokens": 2}])[1])
        self.assertNotIn("choices", self.run_verb("inspect", plain).stdout.decode())

    def test_an_interrupted_run_goes_on_with_the_same_choices(self):
        source = harness.write_jsonl(self.folder / "many.jsonl", [{"token_ids": [2, 5 + n], "choices": LABELS[n % 4]}
                                                                 for n in range(400)])
        words = ["generate", "--input", source, "--quiet", "--gpu-batch-size", 2, "--num-gpu-batches", 1, "--choice", "x"]
        whole, output = self.folder / "whole.jsonl", self.folder / "out.jsonl"
        self.run_verb(*words, "--output", whole)
        part = self.folder / "out.jsonl.part"
        run = self.background([self.binary, *words, "--output", output], stderr=subprocess.DEVNULL)
        while run.poll() is None and not (part.exists() and part.stat().st_size > 0):
            time.sleep(0.002)
        run.send_signal(signal.SIGKILL)
        run.wait(harness.TIMEOUT_S)
        if part.exists():
            other = [*words[:-1], "y", "--output", output]
            self.assertIn(b"sampling flags", self.run_verb(*other, status=52).stderr)
        self.run_verb(*words, "--output", output)
        self.assertEqual(output.read_bytes(), whole.read_bytes())

    def test_flags_that_name_no_choice_are_refused(self):
        source = harness.write_jsonl(self.folder / "in.jsonl", [{"prompt": "a"}])
        for choice, words in ("", "empty"), (os.fsdecode(b"\xff"), "is not UTF-8"), ("a" * 70000, "65,536 bytes"):
            self.assertIn(words, self.refusal(2, "generate", "--input", source, "--choice", choice))
        self.generate([{"prompt": "a"}], "--choice", "yes", "--min-new-tokens", 5, "--max-new-tokens", 1)

    def test_without_a_tokenizer_lines_are_errors(self):
        lines, _ = self.generate([{"token_ids": [2, 5], "choices": ["a"]}], "--tokenizer", "none", status=21)
        self.assertEqual(lines[0]["error"]["code"], "no_tokenizer")


if __name__ == "__main__":
    ChoicesTest.binary = pathlib.Path(sys.argv.pop(1)).resolve()
    unittest.main()
