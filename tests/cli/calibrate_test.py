"""`spillway calibrate`: the budgets it finds, the file it writes and what takes that file. Standard library only.

  python3 calibrate_test.py path/to/spillway [unittest arguments]
"""

import json
import math
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import time
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
        policy, found = self.calibrate("--model", SMALL_MODEL, "--max-loss", "5%", "--per", "layer")
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
        _, found = self.calibrate("--max-loss", "2%", "--per", "layer")
        kept = [layer["kept_frac"] for layer in found["layers"]]
        self.assertEqual(len(kept), 8)
        self.assertLess(sum(kept[3:]) / 5, sum(kept[:3]) / 3)

    def test_where_kv_lies_makes_no_difference(self):
        """Smaller budgets have a smaller log, in the files of the largest."""
        for bound in ("1%", "200%"):
            for per in ("layer", "head"):
                words = ["--model", SMALL_MODEL, "--max-loss", bound, "--per", per]
                in_memory = self.calibrate(*words)
                on_disk = self.calibrate(*words, "--percent", 0, 100, 0, 0, 0, 100)
                self.assertEqual(on_disk[0]["kv"], in_memory[0]["kv"])
                self.assertEqual(on_disk[1], in_memory[1])

    def test_a_looser_bound_keeps_no_more(self):
        for per in ("layer", "head"):
            kept = [self.calibrate("--model", SMALL_MODEL, "--max-loss", loss, "--per", per)[1]["kv_frac"]
                    for loss in ("0%", "1%", "30%")]
            self.assertEqual(kept, sorted(kept, reverse=True))

    def test_the_loss_of_heads_is_within_the_bound(self):
        policy, found = self.calibrate("--model", SMALL_MODEL, "--max-loss", "5%", "--kv-bits", "8,4")
        for prompts in found["prompts"]:
            self.assertLessEqual(prompts["loss"], math.log(1.05))
            self.assertLessEqual(prompts["divergence"], math.log(1.05))
        self.assertEqual(policy["kv_bits"], [8, 4])
        self.assertEqual([len(heads) for heads in policy["kv"]["head_budgets"]], [2, 2])
        self.assertLess(found["kv_frac"], 1.0)
        self.assertEqual([len(heads) for heads in found["alone_divergence"]], [2, 2])

    def test_heads_take_the_bytes_that_are_given(self):
        """After prompts of both lengths. Of a row like the windows, the plan says so too."""
        self.run_verb("calibrate", "--model", SMALL_MODEL, "--text", TALES, "--window", 96, "--sample", 8, "--kv-bits", "8,4",
                      "--kv-bytes", "40%", "--output", "kv.json", "--report", "r.json", "--quiet")
        found = json.loads((self.folder / "r.json").read_text())["calibration"]
        self.assertEqual([prompts["prompt_tokens"] for prompts in found["prompts"]], [84, 24])
        self.assertLessEqual(found["bytes_frac"], 0.4)
        self.assertGreater(found["bytes_frac"], 0.35)
        sizes = []
        for words in (["--policy", "kv.json"], []):
            row = ["--prompt-len", 84, "--gen-len", 12, "--num-requests", 1, "--gpu-batch-size", 1]
            sizes.append(self.report_of("plan", "--model", SMALL_MODEL, *row, *words)["kv"]["bytes"])
        self.assertAlmostEqual(sizes[0] / sizes[1], found["bytes_frac"], delta=1e-6)

    def test_the_prompts_of_a_job_are_a_text(self):
        """What cannot be read of it is passed over; token ids and texts one behind the other."""
        text = TALES.read_text(encoding="utf-8")[:6000]
        source = harness.write_jsonl(self.folder / "in.jsonl", [{"prompt": text[at : at + 400]} for at in range(0, 6000, 400)])
        source.write_text("no line\n" + source.read_text())
        self.run_verb("calibrate", "--model", SMALL_MODEL, "--input", source, *SAMPLE, "--kv-bytes", "40%", "--output", "kv.json",
                      "--quiet")
        self.assertIn("head_budgets", json.loads((self.folder / "kv.json").read_text())["kv"])
        (self.folder / "short.jsonl").write_text("no line\n")
        result = harness.run(BINARY, ["calibrate", "--model", SMALL_MODEL, "--input", self.folder / "short.jsonl"])
        self.assertEqual((result.status, len(result.stderr.splitlines())), (20, 1), result.stderr)

    def test_windows_however_few_and_short(self):
        for words in (["--window", 2], ["--window", 3], ["--window", 7], ["--window", 16, "--sample", 1],
                      ["--window", 16, "--sample", 2], ["--window", 16, "--sample", 3]):
            self.run_verb("calibrate", "--model", SMALL_MODEL, "--text", TALES, *words, "--report", "r.json", "--quiet",
                          "--max-loss", "900%")
            found = json.loads((self.folder / "r.json").read_text())["calibration"]
            self.assertGreaterEqual(len(found["prompts"]), 1, words)
            if "--sample" in words:
                self.assertIsNone(found["prompts"][-1]["loss_error"] if words[-1] < 3 else None, words)

    def test_a_bound_that_nothing_holds_is_said(self):
        done = self.run_verb("calibrate", "--model", SMALL_MODEL, "--text", TALES, *SAMPLE, "--kv-bits", 4, "--max-loss",
                             "0.001%", "--report", "r.json")
        self.assertIn("nothing is within --max-loss 0.001 %", done.stderr.decode())
        found = json.loads((self.folder / "r.json").read_text())["calibration"]
        self.assertFalse(found["within_bound"])
        self.assertEqual(found["kv_frac"], 1.0)
        done = self.run_verb("calibrate", "--model", SMALL_MODEL, "--text", TALES, *SAMPLE, "--kv-bits", "8,4", "--kv-bytes",
                             "80%")
        self.assertIn("--kv-bytes 80 %: all tokens in 8,4 bits take", done.stderr.decode())

    def test_little_memory_takes_smaller_batches(self):
        self.run_verb("calibrate", "--model", SMALL_MODEL, "--text", TALES, "--window", 96, "--sample", 64, "--kv-bytes", "30%",
                      "--kv-bits", "8,4", "--cpu-memory", "9MiB", "--percent", 0, 100, 0, 50, 0, 100, "--quiet")

    def test_goes_on_where_it_was_stopped(self):
        words = ["--text", TALES, "--window", 320, "--sample", 8, "--kv-bytes", "30%", "--output", "kv.json", "--quiet"]
        costs = self.folder / "kv.json.costs"
        self.run_verb("calibrate", *words)
        whole, known = (self.folder / "kv.json").read_bytes(), json.loads(costs.read_text())
        costs.unlink()
        self.stopped_after_a_window(words, costs, len(known["costs"]))
        self.assertLess(len(json.loads(costs.read_text())["costs"]), len(known["costs"]))
        self.run_verb("calibrate", *words)
        self.assertEqual((self.folder / "kv.json").read_bytes(), whole)
        # What is known is not measured again; of another calibration nothing is known.
        known["costs"][0] = 1e6
        for other, taken in ((["--kv-bits", 8], True), (["--prefill", 200], False), ([], True)):
            costs.write_text(json.dumps(known))
            self.run_verb("calibrate", *words, *other)
            first = json.loads((self.folder / "kv.json").read_text())["kv"]["head_budgets"][0][0]
            self.assertEqual(first == 1.0, taken)
            old = self.folder / "kv.json.costs.old"
            self.assertEqual(old.exists() and json.loads(old.read_text()) == known, not taken)
            old.unlink(missing_ok=True)

    def stopped_after_a_window(self, words, costs, of_all):
        line = [str(word) for word in (BINARY, "calibrate", *words)]
        for _ in range(20):
            process = self.background(line, stderr=subprocess.DEVNULL)
            while process.poll() is None and not costs.exists():
                time.sleep(0.001)
            process.send_signal(signal.SIGTERM)
            process.wait()
            if costs.exists() and len(json.loads(costs.read_text())["costs"]) < of_all:
                return
            costs.unlink(missing_ok=True)
        self.fail("no calibration was stopped half way")

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

    def pareto(self, *words):
        self.run_verb("calibrate", "--model", SMALL_MODEL, "--text", TALES, *SAMPLE, "--pareto", "--output", "kv.json", "--report",
                      "r.json", "--quiet", *words)
        return (json.loads((self.folder / "kv.json").read_text()),
                json.loads((self.folder / "r.json").read_text())["calibration"])

    @staticmethod
    def worst(setting):
        return max(0, *(value for prompts in setting["prompts"] for value in (prompts["loss"], prompts["divergence"])))

    def test_a_pareto_has_several_bits_and_the_file_the_least_within_the_bound(self):
        policy, found = self.pareto("--max-loss", "5%")
        bits = [setting["kv_bits"] for setting in found["tried"]]
        self.assertEqual({json.dumps(each) for each in bits}, {"16", "8", "[8, 4]", "4"})
        within = [setting for setting in found["tried"] if self.worst(setting) <= math.log(1.05)]
        least = min(within, key=lambda setting: setting["bytes_frac"])
        self.assertEqual((policy["kv_bits"], policy["kv"]), (least["kv_bits"], least["kv"]))
        self.assertEqual(found["bytes_frac"], least["bytes_frac"])
        self.assertTrue(found["within_bound"])
        shown = self.run_verb("inspect", "r.json").stdout.decode()
        self.assertEqual(len(shown.splitlines()), 2 + len(found["tried"]))
        self.assertIn("of prenorm-head64", shown)
        self.assertIn("spillway calibrate: prenorm-head64, 3 windows", self.run_verb("inspect", "kv.json").stdout.decode())
        self.assertIn("6 of KV heads and layers", self.run_verb("inspect", "kv.json.costs").stdout.decode())

    def test_search_chooses_from_a_pareto_within_its_bound(self):
        _, found = self.pareto("--max-loss", "20%")
        t4 = harness.REPOSITORY / "examples" / "machines" / "t4.json"
        chosen = {}
        for loss in ("0%", "5%", "900%"):
            done = self.run_verb("search", "--model", SMALL_MODEL, "--machine", t4, "--calibration", "r.json", "--max-loss", loss,
                                 "--prompt-len", 64, "--gen-len", 32, "--gpu-memory", "24MiB", "--output", "p.json")
            policy = json.loads((self.folder / "p.json").read_text())
            self.run_verb("plan", "--model", SMALL_MODEL, "--machine", t4, "--policy", "p.json", "--prompt-len", 64, "--gen-len", 32)
            chosen[loss] = (policy["kv_bits"], policy["kv"], done.stdout.decode())
        self.assertEqual(chosen["0%"][:2], (16, {"policy": "full"}))
        self.assertNotIn("full KV", chosen["0%"][2])  # nothing else is within the bound
        for line in chosen["900%"][2].splitlines()[1:11]:
            self.assertEqual(line.count("KV of "), 1, line)
        known = [(setting["kv_bits"], setting["kv"]) for setting in found["tried"]]
        self.assertIn(chosen["900%"][:2], known)
        self.assertIn("--max-loss 0% costs", chosen["0%"][2])
        self.assertNotIn("--max-loss 900% costs", chosen["900%"][2])
        if chosen["5%"][:2] != (16, {"policy": "full"}):
            setting = found["tried"][known.index(chosen["5%"][:2])]
            self.assertLessEqual(self.worst(setting), math.log(1.05))

    def test_what_is_no_pareto_of_the_model_is_refused(self):
        self.pareto()
        t4 = harness.REPOSITORY / "examples" / "machines" / "t4.json"
        words = ["--machine", t4, "--prompt-len", 8, "--gen-len", 8]
        (self.folder / "bad.json").write_text('{"calibration": {"tried": []}}')
        for status, flags, part in (
            (3, ["--calibration", "r.json"], "calibrate this model"),  # of the bundled one
            (3, ["--calibration", "kv.json"], "is a policy, not a report"),
            (3, ["--calibration", "none.json"], "none.json"),
            (3, ["--calibration", "bad.json"], "is empty"),
            (2, ["--max-loss", "1%"], "--calibration"),
            (2, ["--calibration", "r.json", "--kv-bits", 8], "--kv-bits"),
            (2, ["--calibration", "r.json", "--kv-policy", "h2o"], "--kv-policy"),
            (2, ["--calibration", "r.json", "--policy", "kv.json"], "--policy"),
        ):
            self.assertIn(part, self.refusal(status, "search", *words, *flags), flags)
        for flags in (["--kv-bits", 8], ["--kv-bytes", "20%"], ["--per", "layer"]):
            self.assertIn("--pareto", self.refusal(2, "calibrate", "--text", TALES, "--pareto", *flags))

    def test_inspect_refuses_what_only_looks_like_one(self):
        for text in ('{"calibration": 3}', '{"costs": 5}'):
            (self.folder / "odd.json").write_text(text)
            self.assertIn("odd.json", self.refusal(20, "inspect", "odd.json"))

    def test_all_tokens_are_the_full_cache(self):
        """In the file, which runs at the full cache's speed, and among what was tried."""
        policy, found = self.calibrate("--model", SMALL_MODEL, "--kv-bits", 8, "--kv-bytes", "100%")
        self.assertEqual((policy["kv_bits"], policy["kv"]), (8, {"policy": "full"}))
        self.assertEqual(found["tried"][0]["kv"], {"policy": "full"})

    def test_little_text_is_said(self):
        (self.folder / "some.txt").write_text(TALES.read_text(encoding="utf-8")[:1200], encoding="utf-8")
        result = self.run_verb("calibrate", "--model", SMALL_MODEL, "--text", "some.txt", "--kv-bytes", "50%")
        self.assertRegex(result.stderr, rb"one window of \d+ tokens tell little of what a budget costs")

    def test_bad_flags(self):
        self.short = self.folder / "short.txt"
        self.short.write_text("Once upon a time there was", encoding="utf-8")
        for words, part in (
            (["--text", "none.txt"], "none.txt"),
            ([], "--text"),
            (["--text", TALES, "--input", TALES], "--text, --input"),
            (["--text", TALES, "--window", 4000], "--window 4000"),
            (["--text", TALES, "--window", 64, "--prefill", 64], "--prefill 64"),
            (["--text", TALES, "--max-loss", "-1%"], "--max-loss"),
            (["--text", TALES, "--kv-policy", "full"], "--kv-policy full"),
            (["--text", TALES, "--kv-budget", "20%", "--kv-policy", "h2o"], "--kv-budget"),
            (["--text", TALES, "--per", "token"], "--per: 'token' is not head or layer"),
            (["--text", TALES, "--per", "head", "--kv-policy", "window"], "--per head"),
            (["--text", TALES, "--per", "layer", "--kv-bytes", "20%"], "budgets per KV head, which --per layer is not"),
            (["--text", TALES, "--kv-policy", "window", "--kv-bytes", "20%"], "which --kv-policy h2o has"),
            (["--text", TALES, *SAMPLE, "--output", "a.json", "--report", "a.json.costs"], "--output"),
            (["--text", TALES, "--max-loss", "1%", "--kv-bytes", "20%"], "--kv-bytes, --max-loss"),
            (["--text", TALES, "--kv-bytes", "0.5%"], "--kv-bytes 0.5 %: each KV head keeps at least 2 %"),
            (["--text", TALES, "--kv-bytes", "0%"], "--kv-bytes"),
            (["--text", TALES, "--window", 640, "--sample", 5000], "--sample 5000: the text has "),
            (["--text", self.short], "--text: "),
        ):
            result = harness.run(BINARY, ["calibrate", *words], cwd=self.folder)
            self.assertIn(result.status, (2, 20, 60), words)
            self.assertTrue(re.search(re.escape(part), result.stderr.decode()), result.stderr)


if __name__ == "__main__":
    harness.VerbTest.binary = BINARY = pathlib.Path(sys.argv.pop(1)).resolve()
    unittest.main()
