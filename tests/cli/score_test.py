"""`spillway score` as a user meets it: forms of input and output, bad lines, perplexity's flags, the report, and the same
bytes for every block shape, placement and number of threads. tests/parity/score_parity_test.py checks the values.
Standard library only.

  python3 score_test.py path/to/spillway [unittest arguments]
"""

import json
import pathlib
import random
import sys
import unittest

import bad_score_lines
import harness

BINARY = pathlib.Path()
HELDOUT = harness.REPOSITORY / "examples" / "heldout_tales.txt"
KEYS = ["custom_id", "logprob_sum", "num_tokens", "token_logprobs", "greedy_match"]
EMULATED = ["--emulate-gpu", "1GiB"]
# All told one a pass after different first passes, and in one pass.
FEEDS = [[], ["--prefill", 1], ["--prefill", 9]]
# The first one is what the others are compared with.
POLICIES = [
    ["--gpu-batch-size", 4],
    ["--gpu-batch-size", 1],
    ["--gpu-batch-size", 64],
    ["--gpu-batch-size", 3, "--threads", 1],
    ["--gpu-batch-size", 2, "--num-gpu-batches", 3, "--percent", 0, 0, 0, 100, 0, 100],
    ["--gpu-batch-size", 4, "--num-gpu-batches", 2, "--percent", 0, 30, 0, 40, 0, 70, "--prefill-chunk", 7],
    ["--gpu-batch-size", 3, "--num-gpu-batches", 2, "--percent", 0, 0, 0, 0, 0, 0, "--no-overlap"],
    ["--gpu-batch-size", 4, "--num-gpu-batches", 2, "--percent", 50, 50, 50, 50, 50, 50, *EMULATED],
    ["--gpu-batch-size", 6, "--num-gpu-batches", 2, "--percent", 30, 30, 30, 30, 30, 30, "--cpu-attention", *EMULATED],
    ["--gpu-batch-size", 3, "--num-gpu-batches", 4, "--percent", 0, 0, 0, 0, 0, 0, "--threads", 1, *EMULATED],
    ["--cpu-memory", "64MiB"],
]


def ragged_texts(num_rows, max_tokens):
    rng = random.Random(5)
    rows = [{"text": "Once upon a time there was a king."}, {"context": "Once upon a ", "continuation": "time"}]
    while len(rows) < num_rows:
        length = rng.choice([1, 2, rng.randint(3, max_tokens), rng.randint(3, max_tokens)])
        rows.append({"token_ids": [2] + [rng.randrange(4, 384) for _ in range(length - 1)]})
    return rows


class ScoreTest(harness.FolderTest):
    def setUp(self):
        super().setUp()
        self.output = self.folder / "scores.jsonl"

    def write(self, records, name="in.jsonl"):
        return harness.write_jsonl(self.folder / name, records)

    def score(self, *words, status=0, **options):
        result = harness.run(BINARY, ["score", *words], cwd=self.folder, env={"TMPDIR": str(self.folder)}, **options)
        self.assertEqual(result.status, status, result.stderr.decode(errors="replace"))
        return result

    def lines(self, records, *flags, **options):
        result = self.score("--input", self.write(records), "--quiet", *flags, **options)
        return [json.loads(line) for line in result.stdout.splitlines()]


class Lines(ScoreTest):
    def test_the_keys_of_a_line(self):
        lines = self.lines([{"text": "Once upon a time"}, {"token_ids": [2, 5, 9]}, {"text": ""}])
        self.assertEqual([list(line) for line in lines], [KEYS] * 3)
        self.assertEqual([line["custom_id"] for line in lines], ["1", "2", "3"])
        text, ids, nothing = lines
        self.assertEqual((text["num_tokens"], len(text["token_logprobs"])), (4, 4))
        self.assertEqual((ids["num_tokens"], ids["token_logprobs"][0], len(ids["token_logprobs"])), (2, None, 3))
        self.assertEqual([nothing[key] for key in KEYS[1:]], [0, 0, [], True])
        for line in (text, ids):
            scored = [value for value in line["token_logprobs"] if value is not None]
            self.assertLess(max(scored), 0.0)
            self.assertAlmostEqual(line["logprob_sum"], sum(scored), places=5)

    def test_a_continuation_is_scored_after_its_context(self):
        """Where the texts are cut alike, the parts have the entries of the whole."""
        whole, tail, moved = self.lines([
            {"text": "Once upon a time there was"},
            {"context": "Once upon a time", "continuation": " there was"},
            {"custom_id": "x", "context": "Once upon a time \n ", "continuation": "there"},
        ])
        self.assertEqual(tail["token_logprobs"], whole["token_logprobs"][-tail["num_tokens"]:])
        self.assertEqual(moved["custom_id"], "x")
        self.assertGreater(moved["num_tokens"], 1)  # the spaces are the continuation's

    def test_what_the_model_generates_is_a_greedy_match(self):
        source = self.write([{"prompt": "Once upon a time", "max_tokens": 12, "logprobs": 0}])
        generated = harness.run(BINARY, ["generate", "--input", source, "--quiet"])
        choice = harness.choice(json.loads(generated.stdout))
        pair = {"context": "Once upon a time", "continuation": choice["text"]}
        own, other = self.lines([pair, pair | {"continuation": choice["text"] + " Tuesday"}])
        self.assertTrue(own["greedy_match"])
        for scored, chosen in zip(own["token_logprobs"], choice["logprobs"]["token_logprobs"]):
            self.assertAlmostEqual(scored, chosen, places=5)
        self.assertFalse(other["greedy_match"])

    def test_a_txt_file_and_standard_streams(self):
        texts = ["Once upon a time", "The king"]
        expected = self.lines([{"text": text} for text in texts])
        plain = self.folder / "in.txt"
        plain.write_text("".join(text + "\n" for text in texts))
        self.score(plain, "--output", self.output, "--quiet")
        self.assertEqual(harness.read_jsonl(self.output), expected)
        stream = "".join(json.dumps({"text": text}) + "\n" for text in texts).encode()
        result = self.score("--input", "-", "--output", "-", "--quiet", stdin=stream)
        self.assertEqual([json.loads(line) for line in result.stdout.splitlines()], expected)

    def test_an_existing_output_is_kept_unless_told(self):
        source = self.write([{"text": "a"}])
        self.output.write_text("precious")
        self.score("--input", source, "--output", self.output, status=52)
        self.assertEqual(self.output.read_text(), "precious")
        self.score("--input", source, "--output", self.output, "--overwrite", "--quiet")
        self.assertEqual(len(harness.read_jsonl(self.output)), 1)
        self.assertEqual(sorted(path.name for path in self.folder.iterdir()), ["in.jsonl", "scores.jsonl"])

    def test_bad_lines_fail_alone(self):
        good = json.dumps(bad_score_lines.GOOD).encode()
        cases = bad_score_lines.CASES
        source = self.folder / "in.jsonl"
        source.write_bytes(b"\n".join([good] + [line for _, bad, _ in cases for line in (bad, good)]) + b"\n")
        result = self.score("--input", source, "--output", self.output, status=21)
        self.assertIn(b"carry errors", result.stderr)
        lines = harness.read_jsonl(self.output)
        self.assertEqual(len(lines), 2 * len(cases) + 1)
        self.assertEqual({line["logprob_sum"] for line in lines[::2]}, {lines[0]["logprob_sum"]})
        for index, (name, _, text) in enumerate(cases):
            with self.subTest(name):
                number = 2 * index + 2
                line = lines[number - 1]
                self.assertEqual(list(line), ["custom_id", "error"])
                self.assertEqual(list(line["error"]), ["code", "message"])
                self.assertTrue(line["error"]["message"].startswith(f"line {number}: "), line)
                self.assertIn(text, line["error"]["message"])
                self.assertLessEqual(len(line["error"]["message"].encode()), 300)

    def test_messages_are_scored_as_generate_would_have_come_to_them(self):
        template = self.folder / "plain.jinja"
        template.write_text("</s>{% for m in messages %}{{ m.content }} {% endfor %}")
        context, answer = "Once upon a time", "there was a king."
        messages = [{"role": "user", "content": context}, {"role": "assistant", "content": answer}]
        asked = harness.write_jsonl(self.folder / "asked.jsonl", [
            {"messages": messages[:1], "max_tokens": 8}, {"prompt": "a", "max_tokens": 1}])
        out = self.folder / "answers.jsonl"
        result = harness.run(BINARY, ["generate", "--input", asked, "--output", out, "--chat-template", template, "--quiet",
                                      "--logprobs", 0])
        self.assertEqual(result.status, 0, result.stderr)
        chat = harness.read_jsonl(out)[0]["response"]["body"]["choices"][0]
        said = {"role": "assistant", "content": chat["message"]["content"]}
        by_ids, own = self.lines([{"messages": messages}, {"messages": [*messages[:1], said]}], "--chat-template", template)
        self.assertEqual(by_ids["num_tokens"], len(by_ids["token_logprobs"]))
        self.assertTrue(own["greedy_match"])
        for ours, theirs in zip(own["token_logprobs"], chat["logprobs"]["content"], strict=True):
            self.assertAlmostEqual(ours, theirs["logprob"], delta=1e-5)

    def test_lists_of_ids_are_scored_as_the_text_they_are_of(self):
        whole, = self.lines([{"token_ids": [2, 15, 8, 30, 44]}])
        pair, = self.lines([{"context_token_ids": [2, 15], "continuation_token_ids": [8, 30, 44]}])
        self.assertEqual(pair["token_logprobs"], whole["token_logprobs"][2:])
        self.assertEqual(pair["num_tokens"], 3)

    def test_flags_of_chats_belong_to_lines(self):
        text = self.folder / "a.txt"
        text.write_text("Once upon a time")
        self.assertIn(b"--system: belongs to --input", self.score("--perplexity", text, "--system", "x", status=2).stderr)

    def test_empty_files_and_files_without_anything_to_score(self):
        self.assertEqual(self.lines([]), [])
        records = [{"token_ids": [2]}, {"text": ""}]
        only_start, empty = self.lines(records)
        self.assertEqual((only_start["token_logprobs"], only_start["num_tokens"]), ([None], 0))
        self.assertEqual(empty["token_logprobs"], [])
        machine = harness.REPOSITORY / "examples" / "machines" / "xeon-2-cores.json"  # so that it is searched and predicted
        self.assertEqual(self.lines(records, "--machine", machine), [only_start, empty])
        self.assertEqual(len(self.lines([{"text": "Once upon"}, *records], "--machine", machine)), 3)


class Perplexity(ScoreTest):
    def setUp(self):
        super().setUp()
        self.text = self.folder / "text.txt"
        self.text.write_text(HELDOUT.read_text(encoding="utf-8")[:2000], encoding="utf-8")

    def perplexity(self, *flags, **options):
        return self.score("--perplexity", self.text, "--quiet", *flags, **options).stdout

    def test_it_is_printed_last(self):
        line = self.perplexity()
        self.assertRegex(line, rb"\Aperplexity \d+\.\d\d \(\d+ tokens\)\n\Z")
        shown = self.score("--perplexity", self.text, "--no-progress").stdout
        self.assertTrue(shown.endswith(line), shown)
        self.assertIn(b"tokens/s", shown)

    def test_one_window_is_the_score_of_the_text(self):
        """A text shorter than the window, the same in a line."""
        self.text.write_text("Once upon a time there was a king who had three sons.")
        (line,) = self.lines([{"text": self.text.read_text()}])
        report = self.folder / "r.json"
        self.perplexity("--report", report)
        score = json.loads(report.read_text())["score"]
        self.assertEqual(score["num_tokens"], line["num_tokens"])
        self.assertAlmostEqual(score["logprob_sum"], line["logprob_sum"], places=9)

    def test_standard_input(self):
        result = self.score("--perplexity", "-", "--quiet", stdin=self.text.read_bytes())
        self.assertEqual(result.stdout, self.perplexity())

    def test_windows_that_cannot_be(self):
        refused = [
            (2, ["--window", "2049"], b"2048"),
            (2, ["--window", "64", "--stride", "65"], b"64"),
            (2, ["--window", "1"], b"--window"),
            (2, ["--stride", "0"], b"--stride"),
            (2, ["--prefill", "0"], b"--prefill"),
            (2, ["--output", self.output], b"--output"),
            (2, ["--input", self.text], b"--perplexity"),
            (20, ["--report", self.text], b"--report"),
        ]
        for status, words, named in refused:
            with self.subTest(words):
                result = self.score("--perplexity", self.text, *words, status=status)
                self.assertEqual(result.stdout, b"")
                self.assertIn(named, result.stderr)
        for words in (["--window", "9"], ["--stride", "9"], ["--start-each-window"], []):
            source = ["--input", self.write([{"text": "a"}])] if words else []
            self.assertIn(b"--perplexity", self.score(*source, *words, status=2).stderr)

    def test_a_window_below_the_usual_stride(self):
        self.assertEqual(self.perplexity("--window", 64), self.perplexity("--window", 64, "--stride", 64))

    def test_texts_that_cannot_be(self):
        for content, named in ((b"", b"too short"), (b"a\xff", b"UTF-8"), (b"a\0b", b"NUL")):
            self.text.write_bytes(content)
            self.assertIn(named, self.score("--perplexity", self.text, status=20).stderr)
        self.assertIn(b"--perplexity", self.score("--perplexity", self.folder / "none.txt", status=20).stderr)
        self.assertIn(b"--perplexity", self.score("--perplexity", self.folder, status=20).stderr)
        self.text.write_text("Once upon a time")
        self.assertIn(b"--tokenizer", self.score("--perplexity", self.text, "--tokenizer", "none", status=2).stderr)


class Reports(ScoreTest):
    def test_the_report_adds_up(self):
        report_path = self.folder / "r.json"
        records = [{"text": "Once upon a time"}, {"token_ids": [2, 5, 9]}, {"text": 5}, {"text": ""}]
        lines = self.lines(records, "--report", report_path, status=21)
        report = json.loads(report_path.read_text())
        answered = [line for line in lines if "error" not in line]
        self.assertEqual(report["score"]["num_tokens"], sum(line["num_tokens"] for line in answered))
        self.assertAlmostEqual(report["score"]["logprob_sum"], sum(line["logprob_sum"] for line in answered), places=9)
        self.assertGreater(report["score"]["perplexity"], 1.0)
        self.assertGreater(report["score"]["tokens_per_s"], 0.0)
        workload = report["workload"]
        self.assertEqual((workload["num_requests"], workload["num_completions"], workload["num_errors"]), (3, 3, 1))
        self.assertEqual(workload["generated_tokens"], 0)
        self.assertEqual(workload["prompt_tokens"], 4 + 2)  # the last token of a text is not fed
        self.assertIsNone(report["predicted"]["generated_tokens_per_s"])
        self.assertIn("predicted_tokens_per_s", report["score"])
        self.lines(records, "--report", report_path, "--prefill", 1, status=21)
        told = json.loads(report_path.read_text())
        self.assertGreater(told["phases"]["decode"]["passes"], 0)
        self.assertEqual(told["workload"]["prompt_tokens"], 4 + 2)

    def test_the_table_names_what_was_done(self):
        result = self.score("--input", self.write([{"text": "Once upon a time"}]), "--output", self.output)
        self.assertIn(b"1 scored, 0 errors", result.stdout)
        self.assertNotIn(b"generated", result.stdout)


class Invariance(ScoreTest):
    def scores(self, source, feed, policy):
        return self.score("--input", source, "--quiet", *feed, *policy).stdout

    def test_the_same_bytes_everywhere(self):
        source = self.write(ragged_texts(18, 60))
        expected = [self.scores(source, feed, POLICIES[0]) for feed in FEEDS]
        for number, policy in enumerate(POLICIES[1:]):
            feed = number % len(FEEDS)
            with self.subTest(" ".join(map(str, FEEDS[feed] + policy))):
                self.assertEqual(self.scores(source, FEEDS[feed], policy), expected[feed])

    def test_the_same_perplexity_everywhere(self):
        text = self.folder / "text.txt"
        text.write_text(HELDOUT.read_text(encoding="utf-8")[:1500], encoding="utf-8")
        sums = set()
        for policy in POLICIES[:-1]:
            report = self.folder / "r.json"
            words = ["--window", 128, "--stride", 48, "--prefill", 60, "--report", report]
            self.score("--perplexity", text, "--quiet", *words, *policy)
            sums.add(json.loads(report.read_text())["score"]["logprob_sum"])
        self.assertEqual(len(sums), 1, sums)


if __name__ == "__main__":
    BINARY = pathlib.Path(sys.argv.pop(1)).resolve()
    unittest.main()
