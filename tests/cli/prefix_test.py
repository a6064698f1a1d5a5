"""Prompts that begin alike: their beginning is computed once in a batch, and every byte is what it is apart, wherever weights,
KV and states lie, in 16 bits and in codes, for `generate` and `score`, with rows that join a batch later too. Standard library
only.

  python3 prefix_test.py path/to/spillway [unittest arguments]
"""

import json
import pathlib
import random
import sys
import unittest

import harness

TESTS = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(TESTS))

from placements import ON_CPU, ON_EMULATED_GPU, PARITY_MODELS, in_turn  # noqa: E402

APART = ["--no-prefix-sharing"]


def tokens(rng, count):
    return [rng.randrange(4, 384) for _ in range(count)]


def prompts(seed, header=70, num_rows=16):
    """Rows of two headers, whole prompts twice, one that shares nothing, tails of no and of many tokens."""
    rng = random.Random(seed)
    headers = [[2, *tokens(rng, header)], [2, *tokens(rng, header // 2)]]
    rows = [headers[number % 3 % 2] + tokens(rng, rng.choice([0, 1, 3, 20, 40])) for number in range(num_rows)]
    return [*rows, rows[0], rows[1], [2, *tokens(rng, 50)]]


class PrefixTest(harness.VerbTest):
    def answers(self, verb, records, *words):
        """(output, tokens that were another row's)"""
        source = harness.write_jsonl(self.folder / "in.jsonl", records)
        report = self.folder / "report.json"
        result = self.run_verb(verb, "--input", source, "--output", "-", "--quiet", "--offload-dir", self.folder,
                               "--report", report, "--allow-duplicate-ids", *words)
        return result.stdout, json.loads(report.read_text())["workload"]["shared_prompt_tokens"]

    def check(self, verb, records, words, placements):
        for placement in placements:
            expected, none = self.answers(verb, records, *words, *placement, *APART)
            found, shared = self.answers(verb, records, *words, *placement)
            self.assertEqual(found, expected, placement)
            self.assertEqual(none, 0)
            yield shared

    def test_the_same_bytes_everywhere(self):
        for number, (model, *flags) in enumerate([
            ["llama-groups-of-four"], ["gelu-head80-untied", "--kv-bits", 8], ["qwen3-biased", "--kv-bits", "8,4"],
            ["postnorm-projected", "--kv-bits", 4], ["qwen3moe-plain"]]):
            records = [{"token_ids": row, "max_tokens": 3 + at % 5, "temperature": at % 2}
                       for at, row in enumerate(prompts(number))]
            words = ["--model", PARITY_MODELS / model, *flags]
            with self.subTest(model=model):
                shared = list(self.check("generate", records, words, [["--gpu-batch-size", 8], *in_turn(ON_CPU, number, 1)[1:],
                                                                      *in_turn(ON_EMULATED_GPU, number, 1)[1:]]))
                self.assertGreater(shared[0], 64 * 4)

    def test_scores_of_choices(self):
        rng = random.Random(3)
        header = [2, *tokens(rng, 300)]
        records = [{"context_token_ids": header + question, "continuation_token_ids": tokens(rng, 3)}
                   for question in [tokens(rng, 30) for _ in range(8)] for _ in range(4)]
        (shared,) = self.check("score", records, [], [["--gpu-batch-size", 32]])
        self.assertGreater(shared, 31 * 288)
        for _ in self.check("score", records, ["--prefill", 5], [["--gpu-batch-size", 5], ["--cpu-memory", "64MiB"]]):
            pass

    def test_rows_that_come_later_begin_as_running_ones(self):
        records = [{"token_ids": row, "max_tokens": 4 + 7 * (at % 3), "ignore_eos": True}
                   for at, row in enumerate(prompts(7, header=64, num_rows=24))]
        for shared in self.check("generate", records, [], [["--gpu-batch-size", 3], ["--gpu-batch-size", 2, "--prefill-chunk", 5],
                                                           ["--gpu-batch-size", 4, "--num-gpu-batches", 2]]):
            self.assertGreater(shared, 64)

    def test_what_keeps_no_whole_beginning_shares_none(self):
        records = [{"token_ids": row, "max_tokens": 3} for row in prompts(9)]
        for words in (["--kv-policy", "h2o", "--kv-budget", "30%"], ["--model", PARITY_MODELS / "mistral-windowed"],
                      ["--model", PARITY_MODELS / "dynamic", "--max-new-tokens", 1]):
            for shared in self.check("generate", records, words, [["--gpu-batch-size", 8]]):
                self.assertEqual(shared, 0)


if __name__ == "__main__":
    PrefixTest.binary = pathlib.Path(sys.argv.pop(1)).resolve()
    unittest.main()
