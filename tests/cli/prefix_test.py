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

from placements import H2O, ON_CPU, ON_EMULATED_GPU, PARITY_MODELS, WINDOW, in_turn  # noqa: E402

APART = ["--no-prefix-sharing"]
HEADS = ["--policy", TESTS / "parity" / "policies" / "heads-2x2.json"]


def tokens(rng, count):
    return [rng.randrange(4, 384) for _ in range(count)]


def prompts(seed, header=70, num_rows=16):
    """Rows of two headers, whole prompts twice, one that shares nothing, tails of no and of many tokens."""
    rng = random.Random(seed)
    headers = [[2, *tokens(rng, header)], [2, *tokens(rng, header // 2)]]
    rows = [headers[number % 3 % 2] + tokens(rng, rng.choice([0, 1, 3, 20, 40])) for number in range(num_rows)]
    return [*rows, rows[0], rows[1], [2, *tokens(rng, 50)]]


def alike(seed, prefix=140, num_rows=20):
    """Rows that all begin with so many tokens, of which whole steps of 64 are held once."""
    rng = random.Random(seed)
    header = [2, *tokens(rng, prefix - 1)]
    return [{"token_ids": header + tokens(rng, rng.choice([1, 3, 20, 40])), "max_tokens": 3 + at % 5, "temperature": at % 2}
            for at in range(num_rows)]


class PrefixTest(harness.VerbTest):
    def answers(self, verb, records, *words):
        """(output, tokens that were another row's)"""
        output, report = self.run_of(verb, records, *words)
        return output, report["workload"]["shared_prompt_tokens"]

    def run_of(self, verb, records, *words):
        """(output, report)"""
        source = harness.write_jsonl(self.folder / "in.jsonl", records)
        report = self.folder / "report.json"
        result = self.run_verb(verb, "--input", source, "--output", "-", "--quiet", "--offload-dir", self.folder,
                               "--report", report, "--allow-duplicate-ids", *words)
        return result.stdout, json.loads(report.read_text())

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
            ["postnorm-projected", "--kv-bits", 4], ["qwen3moe-plain", "--kv-bits", 4]]):
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


class HeldOnceTest(PrefixTest):
    """What all prompts of a job begin with is computed and held once."""

    def check_held(self, verb, records, words, placements, num_tokens=128, keeps_all=True):
        for flags in placements:
            expected, apart = self.run_of(verb, records, *words, *flags, *APART)
            found, held = self.run_of(verb, records, *words, *flags)
            self.assertEqual(found, expected, flags)
            self.assertEqual((apart["kv"]["prefix_tokens"], held["kv"]["prefix_tokens"]), (0, num_tokens), flags)
            self.assertEqual(held["workload"]["prompt_tokens"], apart["workload"]["prompt_tokens"])
            self.assertGreaterEqual(held["workload"]["shared_prompt_tokens"], num_tokens * (len(records) - 1))
            if flags is placements[0] and keeps_all:  # few rows on disk, in whole blocks of it, may take more
                self.assertLess(held["kv"]["bytes"], apart["kv"]["bytes"])

    def test_the_same_bytes_everywhere(self):
        for number, (model, *flags) in enumerate([
            ["llama-groups-of-four"], ["gelu-head80-untied", "--kv-bits", 8], ["qwen3-biased", "--kv-bits", "8,4"],
            ["postnorm-projected", "--kv-bits", 4], ["qwen3moe-plain"], ["yarn", "--kv-bits", 4], ["mixtral-plain", "--weight-bits", 8],
            ["gpt2-head32"], ["neox-parallel", "--kv-dtype", "bf16"]]):
            words = ["--model", PARITY_MODELS / model, *flags]
            placements = [["--gpu-batch-size", 8], ["--gpu-batch-size", 3, "--num-gpu-batches", 2, "--prefill-chunk", 7],
                          *in_turn(ON_CPU, number, 1)[1:], *in_turn(ON_EMULATED_GPU, number, 1)[1:]]
            with self.subTest(model=model):
                self.check_held("generate", alike(number), words, placements)

    def test_the_same_bytes_where_tokens_are_evicted(self):
        """Budgets and scores are those of whole prompts; windows of the model are seen in the prefix too."""
        for number, (model, *flags) in enumerate([
            ["llama-groups-of-four", *H2O], ["gelu-head80-untied", "--kv-bits", 8, *H2O], ["mistral-windowed"],
            ["gemma3-groups-windowed", "--kv-policy", "h2o-flexgen", "--kv-budget", 24], ["gptoss-plain", *H2O],
            ["qwen3-biased", "--kv-bits", "8,4", *WINDOW], ["qwen3moe-plain", "--kv-policy", "h2o", "--kv-budget", 200],
            ["llama-groups-of-four", *WINDOW], ["gemma2-windowed-capped"], ["mistral-groups-windowed", *HEADS]]):
            words = ["--model", PARITY_MODELS / model, *flags]
            placements = [["--gpu-batch-size", 8], ["--gpu-batch-size", 3, "--num-gpu-batches", 2, "--prefill-chunk", 7],
                          *in_turn(ON_CPU, number, 1)[1:], *in_turn(ON_EMULATED_GPU, number, 1)[1:]]
            with self.subTest(model=model):
                self.check_held("generate", alike(number), words, placements, keeps_all=False)

    def test_scores(self):
        rng = random.Random(3)
        header = [2, *tokens(rng, 300)]
        records = [{"context_token_ids": header + question, "continuation_token_ids": tokens(rng, 3)}
                   for question in [tokens(rng, 30) for _ in range(4)] for _ in range(4)]
        self.check_held("score", records, [], [["--gpu-batch-size", 5]], 256)

    def test_no_token_whose_logits_are_wanted(self):
        """Of texts that are scored from their beginning on nothing is held; of a prompt not its last token."""
        text = [2, *tokens(random.Random(1), 130)]
        _, report = self.run_of("score", [{"context_token_ids": text[:1], "continuation_token_ids": text[1:]}] * 3)
        self.assertEqual(report["kv"]["prefix_tokens"], 0)
        for length, num_tokens in ((128, 64), (129, 128), (64, 0), (65, 64)):
            self.check_one_prompt(text[:length], num_tokens)

    def check_one_prompt(self, prompt, num_tokens):
        records = [{"token_ids": prompt, "max_tokens": 4}] * 3
        expected, _ = self.run_of("generate", records, *APART)
        found, report = self.run_of("generate", records)
        self.assertEqual(report["kv"]["prefix_tokens"], num_tokens)
        self.assertEqual(found, expected)

    def test_shards_and_runs_that_go_on_give_the_same(self):
        records = alike(5)
        source = harness.write_jsonl(self.folder / "all.jsonl", records)
        expected, _ = self.run_of("generate", records, *APART)
        output = self.folder / "out.jsonl"
        for shard in ("1/3", "2/3", "3/3"):
            self.run_verb("generate", "--input", source, "--output", output, "--quiet", "--shard", shard)
        parts = sorted(self.folder.glob("out-*-of-*.jsonl"))
        self.run_verb("merge", *parts, "--output", output)
        self.assertEqual(output.read_bytes(), expected)

    def test_batches_of_a_stream_have_one_of_their_own(self):
        """The second batch begins otherwise than the first."""
        first, second = alike(5), alike(6)
        for words in ([], ["--kv-policy", "h2o", "--kv-budget", "30%"]):
            lines = "".join(json.dumps(line) + "\n" for line in [*first, {"flush": True}, *second]).encode()
            flags = ["generate", "--input", "-", "--output", "-", "--stream", "--verbose", *words]
            apart, held = [harness.run(self.binary, [*flags, *more], stdin=lines, cwd=self.folder, env=self.env) for more in (APART, [])]
            self.assertEqual((held.status, held.stdout), (0, apart.stdout), held.stderr)
            self.assertEqual(held.stderr.count(b"a prefix of 128 tokens"), 2, held.stderr)
            self.assertEqual(apart.stderr.count(b"a prefix of 0 tokens"), 2, apart.stderr)

    def test_a_line_that_begins_otherwise_is_named(self):
        odd = {"token_ids": [2, 5, 6, 7], "max_tokens": 2}
        for records, says in ((alike(1), False), ([*alike(1), odd], True), ([odd, *alike(1)], False)):
            source = harness.write_jsonl(self.folder / "in.jsonl", records)
            stderr = self.run_verb("generate", "--input", source, "--output", "-", "--overwrite").stderr
            text = b"line 21 does not begin as the 20 before it, which have 128 more tokens in common"
            self.assertEqual(text in stderr, says, stderr)

    def test_synthetic_rows_may_have_one(self):
        words = ["--prompt-len", 200, "--prefix-len", 150, "--gen-len", 3, "--num-requests", 6]
        prints = set()
        for flags in (["--gpu-batch-size", 6], ["--gpu-batch-size", 2, "--cpu-memory", "64MiB"], ["--gpu-batch-size", 4, "--prefill-chunk", 9]):
            report = self.report_of("bench", *words, *flags)
            self.assertEqual(report["kv"]["prefix_tokens"], 128)
            prints.add(report["fingerprint"])
        self.assertEqual(len(prints), 1)
        self.assertEqual(self.report_of("plan", *words)["kv"]["prefix_tokens"], 128)
        self.assertIn("--prefix-len 200", self.refusal(2, "plan", "--prompt-len", 200, "--prefix-len", 200))

    def test_plans_count_it_once(self):
        source = harness.write_jsonl(self.folder / "in.jsonl", alike(2))
        reports = []
        for words in ([], APART):
            report = self.folder / "plan.json"
            self.run_verb("plan", "--input", source, "--report", report, "--gpu-batch-size", 10, "--quiet", *words)
            reports.append(json.loads(report.read_text()))
        held, apart = reports
        self.assertEqual((held["kv"]["prefix_tokens"], apart["kv"]["prefix_tokens"]), (128, 0))
        # Nine of ten rows of a block, of two blocks' batches, save 128 tokens in each of the layers.
        self.assertGreater(apart["kv"]["bytes"], 2 * held["kv"]["bytes"])

    def test_keys_that_turn_by_their_length_hold_none(self):
        for model in ("dynamic", "longrope"):
            _, report = self.run_of("generate", alike(1), "--model", PARITY_MODELS / model)
            self.assertEqual(report["kv"]["prefix_tokens"], 0, model)

    def test_a_prefix_that_would_fill_memory_is_cut(self):
        """An eighth of the device's memory at most."""
        rng = random.Random(3)
        header = [2, *tokens(rng, 300)]
        records = [{"token_ids": header + tokens(rng, 3), "max_tokens": 2} for _ in range(3)]
        found, report = self.run_of("generate", records, "--cpu-memory", "14MiB", "--gpu-batch-size", 1)
        self.assertLess(report["kv"]["prefix_tokens"], 256)
        expected, _ = self.run_of("generate", records, *APART)
        self.assertEqual(found, expected)


if __name__ == "__main__":
    PrefixTest.binary = pathlib.Path(sys.argv.pop(1)).resolve()
    unittest.main()
