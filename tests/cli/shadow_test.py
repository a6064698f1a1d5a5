"""`generate --shadow`: what a KV policy costs on a sample of the job's own rows. Standard library only.

  python3 shadow_test.py path/to/spillway [unittest arguments]
"""

import json
import pathlib
import random
import sys
import unittest

import harness

TESTS = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(TESTS))

from placements import ON_CPU, ON_EMULATED_GPU, PARITY_MODELS  # noqa: E402

NUM_ROWS = 12
TALES = [{"prompt": f"{beginning} a king who had {count} daughters, and", "max_tokens": 24}
         for beginning in ("Once upon a time there was", "Far from here lived") for count in ("three", "seven", "twelve")]


def records(seed=1):
    rng = random.Random(seed)
    return [{"token_ids": [2, *(rng.randrange(4, 384) for _ in range(30 + 7 * row))], "max_tokens": 9 + row % 3,
             "temperature": row % 2} for row in range(NUM_ROWS)]


class ShadowTest(harness.VerbTest):
    def answer(self, *words, model=PARITY_MODELS / "llama-groups-of-four", share="25%", lines=None, output="-",
               written="report.json"):
        """(result, receipt)"""
        source = harness.write_jsonl(self.folder / "in.jsonl", lines or records())
        report = self.folder / "report.json"
        written = self.folder / written
        shadow = ["--shadow", share] if share else []
        result = self.run_verb("generate", "--model", model, "--input", source, "--output", output, "--offload-dir",
                               self.folder, "--report", report, "--ignore-eos", *shadow, *words)
        return result, json.loads(written.read_text()).get("quality")

    def test_the_answers_are_those_without_it(self):
        expected, none = self.answer("--kv-policy", "h2o", "--kv-budget", 8, share=None)
        found, receipt = self.answer("--kv-policy", "h2o", "--kv-budget", 8)
        self.assertEqual(found.stdout, expected.stdout)
        self.assertIsNone(none)
        self.assertEqual(receipt["num_rows"], 3)
        self.assertEqual(receipt["answers"]["num_rows"], 3)

    def test_a_cache_that_keeps_everything_loses_nothing(self):
        result, receipt = self.answer("--kv-policy", "h2o", "--kv-budget", "100%", share="100%")
        self.assertEqual(receipt["num_rows"], NUM_ROWS)
        self.assertEqual(receipt["num_tokens"], sum(line["max_tokens"] for line in records()))
        self.assertGreater(receipt["same_token_frac"], 0.98)  # near-equal logits may change places
        self.assertLess(receipt["divergence"], 1e-5)
        self.assertNotIn(b"more perplexing", result.stderr)

    def test_less_kv_loses_more(self):
        divergences = [self.answer("--kv-policy", "h2o", "--kv-budget", budget, model=harness.BUNDLED_MODEL, share="100%",
                                   lines=TALES)[1]["divergence"] for budget in ("60%", "20%", "5%")]
        self.assertEqual(divergences, sorted(divergences))
        self.assertGreater(divergences[2], 10 * divergences[0])

    def test_codes_alone_are_compared_too(self):
        _, eight = self.answer("--kv-bits", 8, share="100%")
        _, four = self.answer("--kv-bits", 4, share="100%")
        self.assertLess(eight["divergence"], four["divergence"])
        self.assertGreater(eight["divergence"], 0.0)

    def test_a_small_uniform_budget_of_the_bundled_model_warns_before_and_after(self):
        result, receipt = self.answer("--kv-policy", "h2o", "--kv-budget", "5%", model=harness.BUNDLED_MODEL, share="50%",
                                      lines=TALES, output=self.folder / "out.jsonl")
        warnings = [line for line in (result.stderr + result.stdout).splitlines() if b"more perplexing" in line]
        self.assertEqual(len(warnings), 2)
        self.assertIn(b"calibrate", warnings[0])
        self.assertGreater(receipt["divergence"], 0.05)
        self.assertIn(b"quality", result.stdout)

    def test_the_receipt_is_the_same_wherever_things_lie(self):
        receipts = []
        for placement in [[], *ON_CPU[:2], *ON_EMULATED_GPU[:2]]:
            _, receipt = self.answer("--kv-policy", "h2o", "--kv-budget", 8, "--kv-bits", "8,4", *placement, share="50%")
            del receipt["seconds"]
            receipts.append(receipt)
        self.assertEqual(receipts, receipts[:1] * len(receipts))

    def test_choices_and_shards(self):
        lines = [{**line, "choices": ["yes", "no"]} for line in records()]
        lines = [{key: value for key, value in line.items() if key != "token_ids"} | {"prompt": f"Is it {at}?"}
                 for at, line in enumerate(lines)]
        _, receipt = self.answer("--kv-policy", "window", "--kv-budget", 6, "--shard", "1/2", model=harness.BUNDLED_MODEL,
                                 lines=lines, output=self.folder / "out.jsonl", share=0.5,
                                 written="report-00001-of-00002.json")
        self.assertEqual(receipt["num_rows"], 3)

    def test_long_answers_make_the_sample_smaller(self):
        lines = [{"token_ids": [2, 5 + row % 3, 6 + row // 3], "max_tokens": 330} for row in range(1024)]
        _, receipt = self.answer("--kv-policy", "window", "--kv-budget", 16, lines=lines, share="100%")
        self.assertEqual(receipt["num_rows"], 512)

    def test_what_has_nothing_to_compare_is_refused(self):
        source = harness.write_jsonl(self.folder / "in.jsonl", records())
        words = ["--model", PARITY_MODELS / "llama-groups-of-four", "--input", source, "--output", "out.jsonl"]
        for more in (["--shadow", "1%"], ["--shadow", "0%", "--kv-policy", "h2o"], ["--shadow", "101%", "--kv-policy", "h2o"],
                     ["--shadow", "x", "--kv-policy", "h2o"]):
            self.assertIn("--shadow", self.refusal(2, "generate", *words, *more))
        self.assertIn("--shadow", self.refusal(2, "generate", "--model", harness.BUNDLED_MODEL, "--stream", "--shadow", "1%"))
        self.assertEqual([path.name for path in self.folder.iterdir()], ["in.jsonl"])

    def test_a_full_cache_that_does_not_fit_is_refused(self):
        lines = [{"token_ids": [2] + [7] * 1800, "max_tokens": 4} for _ in range(2)]
        source = harness.write_jsonl(self.folder / "in.jsonl", lines)
        words = ["--model", "opt-125m", "--dummy-weights", "--tokenizer", "none", "--input", source, "--output", "out.jsonl",
                 "--kv-policy", "h2o", "--kv-budget", 8, "--disk-space", 0, "--ignore-eos"]
        words += ["--cpu-memory", "300MiB"]
        self.assertIn("--shadow", self.refusal(32, "generate", *words, "--shadow", "1%"))
        self.run_verb("generate", *words)


if __name__ == "__main__":
    harness.VerbTest.binary = pathlib.Path(sys.argv.pop(1)).resolve()
    unittest.main()
