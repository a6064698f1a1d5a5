"""`spillway calibrate`: the budgets it finds, the file it writes and what takes that file. Standard library only.

  python3 calibrate_test.py path/to/spillway [unittest arguments]
"""

import json
import os
import pathlib
import re
import shutil
import sys
import unittest

import harness

BINARY = pathlib.Path()
TALES = harness.REPOSITORY / "examples" / "heldout_tales.txt"
SMALL_MODEL = harness.REPOSITORY / "tests" / "parity" / "models" / "prenorm-head64"
SAMPLE = ["--window", 96, "--prefill", 48, "--sample", 3]


class Calibrate(harness.VerbTest):
    def calibrate(self, *words):
        self.run_verb("calibrate", "--text", TALES, *SAMPLE, "--output", "kv.json", "--report", "r.json", "--quiet", *words)
        policy = json.loads((self.folder / "kv.json").read_text())
        return policy, json.loads((self.folder / "r.json").read_text())["calibration"]

    def test_the_loss_is_within_the_bound_and_kv_is_saved(self):
        policy, found = self.calibrate("--model", SMALL_MODEL, "--max-loss", "5%")
        self.assertLessEqual(found["perplexity"], 1.05 * found["perplexity_full"])
        self.assertLess(found["kv_frac"], 1.0)
        budgets = [budget["kept"]["frac"] for budget in policy["kv"]["layer_budgets"]]
        self.assertEqual(budgets, [layer["kept_frac"] for layer in found["layers"]])
        self.assertAlmostEqual(sum(budgets) / len(budgets), found["kv_frac"], delta=0.011)  # whole tokens of 96

    def test_the_report_names_model_and_policy_as_a_run_does(self):
        self.calibrate("--model", SMALL_MODEL, "--max-loss", "5%", "--kv-bits", 8)
        calibrated = json.loads((self.folder / "r.json").read_text())
        run = self.report_of("bench", "--model", SMALL_MODEL, "--policy", self.folder / "kv.json", "--kv-bits", 8,
                             "--prompt-len", 8, "--gen-len", 8)
        self.assertEqual(calibrated["model"]["name"], run["model"]["name"])
        for key in ("kv", "kv_bits", "weight_bits"):
            self.assertEqual(calibrated["policy"][key], run["policy"][key])

    def test_a_folder_whose_name_is_not_utf8(self):
        model = self.folder / os.fsdecode(b"model-\xff")
        shutil.copytree(SMALL_MODEL, model)
        self.calibrate("--model", model, "--max-loss", "5%")
        self.assertEqual(json.loads((self.folder / "r.json").read_text())["model"]["name"], "model-\ufffd")

    def test_the_bundled_model_keeps_little_in_its_late_layers(self):
        _, found = self.calibrate("--max-loss", "2%")
        kept = [layer["kept_frac"] for layer in found["layers"]]
        self.assertEqual(len(kept), 8)
        self.assertLess(sum(kept[3:]) / 5, sum(kept[:3]) / 3)

    def test_where_kv_lies_makes_no_difference(self):
        """Smaller budgets have a smaller log, in the files of the largest."""
        for bound in ("1%", "200%"):
            words = ["--model", SMALL_MODEL, "--max-loss", bound]
            in_memory = self.calibrate(*words)
            on_disk = self.calibrate(*words, "--percent", 0, 100, 0, 0, 0, 100)
            self.assertEqual(on_disk[0]["kv"], in_memory[0]["kv"])
            self.assertEqual(on_disk[1], in_memory[1])

    def test_a_looser_bound_keeps_no_more(self):
        kept = [self.calibrate("--model", SMALL_MODEL, "--max-loss", loss)[1]["kv_frac"] for loss in ("0%", "1%", "30%")]
        self.assertEqual(kept, sorted(kept, reverse=True))

    def test_generate_plan_and_score_take_the_file_and_choose_the_rest(self):
        policy, found = self.calibrate("--model", SMALL_MODEL, "--max-loss", "5%")
        requests = [{"token_ids": [2, *range(5, 5 + n)], "max_tokens": 12} for n in (3, 40, 90)]
        source = harness.write_jsonl(self.folder / "in.jsonl", requests)
        common = ["--model", SMALL_MODEL, "--policy", "kv.json", "--quiet", "--report", "g.json"]
        outputs = []
        for flags in ([], ["--gpu-batch-size", 2, "--num-gpu-batches", 2, "--percent", 0, 30, 0, 50, 0, 100]):
            outputs.append(self.run_verb("generate", "--input", source, "--output", "-", *common, *flags).stdout)
            kv = json.loads((self.folder / "g.json").read_text())["kv"]
            self.assertEqual(kv["policy"], "h2o")
        self.assertEqual(outputs[0], outputs[1])
        self.run_verb("plan", *common, "--prompt-len", 64, "--gen-len", 64)
        printed = self.run_verb("score", "--model", SMALL_MODEL, "--policy", "kv.json", "--perplexity", TALES, "--window",
                                64, "--stride", 64, "--quiet").stdout.decode()
        self.assertRegex(printed, r"^perplexity [0-9.]+ \([0-9]+ tokens\)\n$")

    def test_budgets_of_another_model_are_refused(self):
        self.calibrate("--model", SMALL_MODEL, "--max-loss", "5%")
        result = self.run_verb("plan", "--policy", "kv.json", "--prompt-len", 8, "--gen-len", 8, status=3)
        self.assertIn("KV budgets for 2 layers", result.stderr.decode())
        t4 = harness.REPOSITORY / "examples" / "machines" / "t4.json"
        for words in (["search", "--machine", t4], ["simulate", "--machine", t4], ["bench"]):
            self.run_verb(*words, "--policy", "kv.json", "--prompt-len", 8, "--gen-len", 8, status=3)
        shown = self.run_verb("inspect", "kv.json").stdout.decode()
        self.assertIn("kv policy   h2o", shown)

    def test_bad_flags(self):
        for words, part in (
            (["--text", "none.txt"], "none.txt"),
            ([], "--text"),
            (["--text", TALES, "--window", 4000], "--window 4000"),
            (["--text", TALES, "--window", 64, "--prefill", 64], "--prefill 64"),
            (["--text", TALES, "--max-loss", "-1%"], "--max-loss"),
            (["--text", TALES, "--kv-policy", "full"], "--kv-policy full"),
            (["--text", TALES, "--kv-budget", "20%", "--kv-policy", "h2o"], "--kv-budget"),
        ):
            result = harness.run(BINARY, ["calibrate", *words], cwd=self.folder)
            self.assertIn(result.status, (2, 20), words)
            self.assertTrue(re.search(re.escape(part), result.stderr.decode()), result.stderr)


if __name__ == "__main__":
    harness.VerbTest.binary = BINARY = pathlib.Path(sys.argv.pop(1)).resolve()
    unittest.main()
