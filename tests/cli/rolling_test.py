"""Caches that roll (`--rolling`): rows grow past the model's positions, the same bytes come out wherever KV lies and however rows
are batched, and what cannot roll is refused with its reason. What it computes is held against transformers by
tests/parity (golden_kv/*.rolling-*). Standard library only.

  python3 rolling_test.py path/to/spillway [unittest arguments]
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

POSITIONS = 336  # of the models here
MODEL = PARITY_MODELS / "llama-groups-of-four"
H2O = ["--kv-policy", "h2o", "--kv-budget", 40, "--rolling"]
WINDOW = ["--kv-policy", "window", "--kv-budget", 40, "--kv-sinks", 4, "--rolling"]
SHARES = {"version": 1, "kv": {"policy": "h2o", "head_budgets": [[0.05, 0.3], [0.4, {"kept": {"tokens": 64}}]], "rolling": True}}


def rows(seed, num_rows=6, most=500):
    rng = random.Random(seed)
    return [{"token_ids": [2, *(rng.randrange(4, 256) for _ in range(rng.choice([1, 50, 200, POSITIONS - 1])))],
             "max_tokens": rng.choice([5, 90, most]), "ignore_eos": True, "temperature": number % 2} for number in range(num_rows)]


class RollingTest(harness.VerbTest):
    def output(self, records, *words, verb="generate"):
        source = harness.write_jsonl(self.folder / "in.jsonl", records)
        return self.run_verb(verb, "--input", source, "--output", "-", "--quiet", "--offload-dir", self.folder,
                             "--allow-duplicate-ids", *words).stdout

    def test_rows_grow_past_the_positions_the_same_bytes_everywhere(self):
        for number, (model, flags) in enumerate([
            ("llama-groups-of-four", H2O), ("qwen3-biased", [*WINDOW, "--kv-bits", 8]),
            ("neox-parallel", [*H2O, "--kv-bits", "8,4"]), ("qwen3moe-plain", WINDOW),
            ("llama-groups-of-four", ["--policy", "shares.json", "--kv-bits", "8,4"])]):
            (self.folder / "shares.json").write_text(json.dumps(SHARES))
            records = rows(number)
            words = ["--model", PARITY_MODELS / model, *flags]
            expected = self.output(records, *words, "--gpu-batch-size", 8)
            for line, record in zip(map(json.loads, expected.splitlines()), records):
                self.assertEqual(len(harness.choice(line)["token_ids"]), record["max_tokens"])
            for placement in ([*in_turn(ON_CPU, number, 1)], [*in_turn(ON_EMULATED_GPU, number, 1)], [["--gpu-batch-size", 1]],
                              [["--gpu-batch-size", 3, "--prefill-chunk", 7]]):
                with self.subTest(model=model, placement=placement):
                    self.assertEqual(self.output(records, *words, *placement[-1]), expected)

    def test_a_row_is_what_it_is_alone(self):
        """Beside a longer prompt, in a stream, and in a shard, to the bit of its log-probabilities."""
        records = [{**record, "custom_id": str(number), "logprobs": 3} for number, record in enumerate(rows(21, 7, most=120))]
        records.append({"token_ids": [5] * (POSITIONS - 1), "max_tokens": 9, "custom_id": "long"})
        for flags in (H2O, ["--policy", "shares.json"]):
            (self.folder / "shares.json").write_text(json.dumps(SHARES))
            words = ["--model", MODEL, *flags]
            whole = self.output(records, *words, "--gpu-batch-size", 4).splitlines()
            for number in (0, 2, 6):  # greedy ones
                alone, = self.output(records[number : number + 1], *words).splitlines()
                self.assertEqual(harness.choice(json.loads(alone)), harness.choice(json.loads(whole[number])))
            source = harness.write_jsonl(self.folder / "in.jsonl", records)
            for shard in range(3):
                self.run_verb("generate", "--input", source, "--output", "out.jsonl", "--quiet", "--shard", f"{shard}/3", *words)
            parts = sorted(self.folder.glob("out-*.jsonl"))
            self.run_verb("merge", *parts, "--output", "out.jsonl")
            self.assertEqual((self.folder / "out.jsonl").read_bytes().splitlines(), whole)
            for path in self.folder.glob("out*"):
                path.unlink()

    def test_memory_is_that_of_the_cache(self):
        sizes = ["--prompt-len", 64, "--num-requests", 8, "--cpu-memory", "256MiB"]
        planned = {}
        for new_tokens in (2000, 16_000_000):
            text = self.run_verb("plan", "--model", MODEL, *sizes, "--gen-len", new_tokens, *H2O).stdout.decode()
            self.assertIn("40 tokens" if "40 tokens" in text else "20 heavy + 20 recent", text)
            self.assertIn(", rolling", text)
            planned[new_tokens] = next(line for line in text.splitlines() if "planned" in line)
        self.assertEqual(planned[2000], planned[16_000_000])

    def test_prompts_that_begin_alike(self):
        header = [2, *(5 + at % 90 for at in range(199))]
        records = [{"token_ids": [*header, *range(5, 6 + at)], "max_tokens": 200, "ignore_eos": True} for at in range(12)]
        for words in (H2O, WINDOW):
            apart = self.output(records, "--model", MODEL, *words, "--no-prefix-sharing")
            report = self.folder / "report.json"
            self.assertEqual(self.output(records, "--model", MODEL, *words, "--report", report), apart)
            self.assertGreaterEqual(json.loads(report.read_text())["workload"]["shared_prompt_tokens"], 11 * 192)

    def test_texts_longer_than_the_positions_are_scored(self):
        ids = rows(5, 1)[0]["token_ids"] + [5 + at * 7 % 200 for at in range(2 * POSITIONS)]
        source = harness.write_jsonl(self.folder / "in.jsonl", [{"token_ids": ids}])
        words = ["score", "--model", MODEL, "--input", source, "--output", "-", "--quiet", "--gpu-batch-size", 1]
        line = json.loads(self.run_verb(*words, *H2O).stdout)
        self.assertEqual(line["num_tokens"], len(ids) - 1)
        refused = json.loads(self.run_verb(*words, *H2O[:-1], status=21).stdout)
        self.assertEqual(refused["error"]["code"], "context_length_exceeded")
        refused = json.loads(self.run_verb(*words, *H2O, "--prefill", POSITIONS + 1, status=21).stdout)
        self.assertIn("give --prefill fewer", refused["error"]["message"])
        harness.write_jsonl(source, [{"text": "a " * 2 * POSITIONS}])
        line = json.loads(self.run_verb(*words, *H2O).stdout)
        self.assertGreater(line["num_tokens"], POSITIONS)

    def test_a_long_context_is_cut_and_a_long_continuation_is_not(self):
        ids = [5 + at * 7 % 200 for at in range(3 * POSITIONS)]
        words = ["score", "--model", MODEL, "--output", "-", "--quiet", *H2O, "--input"]
        pairs = [{"context_token_ids": ids[: POSITIONS + 9], "continuation_token_ids": ids[-more:]} for more in (3, 400)]
        lines = self.run_verb(*words, harness.write_jsonl(self.folder / "in.jsonl", pairs)).stdout.splitlines()
        self.assertEqual([json.loads(line)["context_tokens_cut"] for line in lines], [9, 9])
        self.assertEqual([json.loads(line)["num_tokens"] for line in lines], [3, 400])
        lines = self.run_verb(*words, self.folder / "in.jsonl", "--prefill", 20).stdout.splitlines()
        self.assertEqual([json.loads(line).get("context_tokens_cut", 0) for line in lines], [0, 0])

    def test_a_text_of_many_contexts_has_a_perplexity(self):
        text = self.folder / "text.txt"
        text.write_text("one two three four five six seven " * 150)
        words = ["score", "--model", MODEL, "--perplexity", text, "--quiet", *H2O, "--window", 2 * POSITIONS]
        self.assertIn(b"perplexity", self.run_verb(*words, "--stride", 300, "--prefill", 50).stdout)
        self.assertIn("give --prefill fewer", self.refusal(2, *words, "--stride", 300))

    def test_limits_that_yield_do_not_end_with_the_positions(self):
        choices = [{"token_ids": [5] * (POSITIONS - 1), "choices": [" one two three", " four five six"]}]
        self.assertIsNone(json.loads(self.output(choices, "--model", MODEL, *H2O))["error"])

    def test_lines_that_cannot_run_say_why(self):
        long = [{"token_ids": [5] * (POSITIONS + 1), "max_tokens": 3}, {"token_ids": [5] * 9, "max_tokens": 900},
                {"token_ids": [5] * 9, "max_tokens": 9}]
        source = harness.write_jsonl(self.folder / "in.jsonl", long)
        words = ["generate", "--model", MODEL, "--input", source, "--output", "-", "--quiet", "--kv-policy", "h2o", "--rolling"]
        lines = [json.loads(line) for line in self.run_verb(*words, "--kv-budget", "50%", status=21).stdout.splitlines()]
        self.assertIn(f"is over the model's {POSITIONS} positions; shorten the prompt", lines[0]["error"]["message"])
        self.assertIn("keeps 455 of them", lines[1]["error"]["message"])
        self.assertIn("let it keep fewer, a number of tokens", lines[1]["error"]["message"])
        self.assertIsNone(lines[2]["error"])
        lines = [json.loads(line) for line in self.run_verb(*words, "--kv-budget", 64, status=21).stdout.splitlines()]
        self.assertIsNone(lines[1]["error"])

    def test_what_cannot_roll_is_refused(self):
        source = harness.write_jsonl(self.folder / "in.jsonl", [{"token_ids": [2, 5, 6]}])
        base = ["--input", source, "--output", "-", "--quiet"]
        for words, reason in [
            (["--model", harness.BUNDLED_MODEL, *H2O], "has learned positions"),
            (["--model", PARITY_MODELS / "dynamic", *H2O], "depend on a row's length"),
            (["--model", PARITY_MODELS / "mistral-windowed", *WINDOW], "windows of their own"),
            (["--model", PARITY_MODELS / "granite4-unturned", *WINDOW], "know no positions"),
            (["--model", MODEL, *H2O, "--kv-bits", 4], "give --kv-bits 8,4 or 8"),
            (["--model", MODEL, "--rolling"], "keeps every token"),
            (["--model", MODEL, *H2O, "--shadow", "50%"], "does not roll")]:
            with self.subTest(reason=reason):
                self.assertIn(reason, self.refusal(2, "generate", *base, *words))
        self.assertIn("within the model's positions", self.refusal(2, "calibrate", "--model", MODEL, "--input", source,
                                                                  "--output", "kv.json", "--rolling", "--kv-policy", "h2o"))

    def test_plans_searches_and_policy_files_know_it(self):
        sizes = ["--prompt-len", 64, "--gen-len", 2000, "--num-requests", 8]
        report = self.report_of("bench", "--model", MODEL, *sizes, *H2O)
        self.assertIs(report["policy"]["kv"]["rolling"], True)
        self.run_verb("plan", "--model", MODEL, *sizes, *WINDOW)
        self.run_verb("search", "--model", MODEL, *sizes, *H2O, "--output", "policy.json", "--machine",
                      harness.REPOSITORY / "examples" / "machines" / "rtx-4090.json", "--allow-4bit")
        self.assertIs(json.loads((self.folder / "policy.json").read_text())["kv"]["rolling"], True)
        self.run_verb("simulate", "--model", MODEL, *sizes, "--policy", "policy.json", "--machine",
                      harness.REPOSITORY / "examples" / "machines" / "rtx-4090.json")
        self.assertIn("keeps 1032 of them", self.refusal(2, "bench", "--model", MODEL, *sizes, "--kv-policy", "h2o", "--kv-budget",
                                                  "50%", "--rolling"))
        self.assertIn("2064 tokens", self.refusal(2, "bench", "--model", MODEL, *sizes, *H2O[:-1]))

    def test_an_interrupted_run_goes_on_rolling_only(self):
        source = harness.write_jsonl(self.folder / "in.jsonl", rows(3, 40, most=200))
        words = ["generate", "--model", MODEL, "--input", source, "--quiet", "--gpu-batch-size", 2, "--num-gpu-batches", 1,
                 "--allow-duplicate-ids", "--output"]
        whole, output = self.folder / "whole.jsonl", self.folder / "out.jsonl"
        self.run_verb(*words, whole, *H2O)
        self.killed_with_lines([self.binary, *words, output, *H2O], output)
        self.assertEqual(harness.run(self.binary, [*words, output, *H2O[:-1]]).status, 52)
        self.run_verb(*words, output, *H2O)
        self.assertEqual(output.read_bytes(), whole.read_bytes())


if __name__ == "__main__":
    RollingTest.binary = pathlib.Path(sys.argv.pop(1)).resolve()
    unittest.main()
