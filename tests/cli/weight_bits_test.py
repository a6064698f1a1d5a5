"""`--weight-bits 8` and `4`: quantised at load or by `convert`, the same bytes either way; stores that do not fit the flag,
or are damaged, are refused. Standard library only.

  python3 weight_bits_test.py path/to/spillway [unittest arguments]
"""

import json
import pathlib
import shutil
import sys
import unittest

import harness

PARITY_MODELS = harness.REPOSITORY / "tests" / "parity" / "models"
HELD_OUT = harness.REPOSITORY / "examples" / "heldout_tales.txt"
SMALL = ["--prompt-len", 20, "--gen-len", 5, "--num-requests", 4]
ON_DISK = ["--percent", 0, 0, 0, 100, 0, 100]
MIXED = ["--percent", 0, 40, 0, 50, 0, 50]
EMULATED = ["--emulate-gpu", "256MiB", "--percent", 30, 30, 30, 30, 30, 30]
BITS = (8, 4)


class WeightBitsTest(harness.VerbTest):
    def convert(self, *words, name="model.store"):
        store = self.folder / name
        self.run_verb("convert", *words, "--seed", 3, "--output", store, "--quiet")
        return store

    def completions(self, *words):
        """The bytes of a run of generate, and what is left in its offload folder."""
        offload = self.folder / "offload"
        shutil.rmtree(offload, ignore_errors=True)
        offload.mkdir()
        source = harness.write_jsonl(self.folder / "in.jsonl", [
            {"prompt": "Once upon a time there was a king", "max_tokens": 9},
            {"prompt": "The", "max_tokens": 14, "temperature": 0.9},
            {"token_ids": [2, 7, 9], "max_tokens": 5, "logprobs": 2}])
        result = self.run_verb("generate", *words, "--input", source, "--output", "-", "--seed", 3, "--quiet",
                               "--gpu-batch-size", 2, "--offload-dir", offload)
        return result.stdout, sorted(path.name for path in offload.iterdir())


class Stores(WeightBitsTest):
    def test_a_store_gives_what_quantising_at_load_gives(self):
        for name in ("prenorm-head64", "fp32-plain", "bf16-head128", "postnorm-projected", "gelu-head80-untied"):
            model = PARITY_MODELS / name
            plain, _ = self.completions("--model", model)
            for bits in BITS:
                with self.subTest(model=name, bits=bits):
                    expected, _ = self.completions("--model", model, "--weight-bits", bits)
                    self.assertNotEqual(expected, plain)
                    store = self.convert("--model", model, "--weight-bits", bits)
                    for flags in ([], ["--weight-bits", bits], ON_DISK, MIXED, EMULATED):
                        found, left = self.completions("--model", store, *flags)
                        self.assertEqual(found, expected, flags)
                        self.assertEqual(left, [], "weights are read from the store itself")
                    shutil.rmtree(store)

    def test_dummy_weights(self):
        model = ["--model", "opt-125m", "--dummy-weights"]
        expected, _ = self.completions(*model, "--weight-bits", 4)
        store = self.convert(*model, "--weight-bits", 4)
        self.assertEqual(self.completions("--model", store, *MIXED)[0], expected)

    def test_the_store_says_what_it_holds(self):
        for bits in BITS:
            store = self.convert("--model", harness.BUNDLED_MODEL, "--weight-bits", bits, name=f"{bits}")
            table = json.loads((store / "store.json").read_text())["store"]
            self.assertEqual(table["shape"]["weight_bits"], bits)
            kinds = {tensor["name"].split(".")[-2]: tensor["dtype"] for tensor in table["tensors"]}
            self.assertEqual(kinds["embed_tokens"], f"q{bits}")
            self.assertEqual(kinds["embed_positions"], "fp16")
            self.assertIn(f"q{bits}", self.run_verb("inspect", store).stdout.decode())
        plain = self.convert("--model", harness.BUNDLED_MODEL, name="16")
        self.assertNotIn("weight_bits", (plain / "store.json").read_text())

    def test_a_store_of_16_bits_can_be_converted(self):
        model = PARITY_MODELS / "fp32-plain"
        plain = self.convert("--model", model, name="plain")
        direct = self.convert("--model", model, "--weight-bits", 4, name="direct")
        again = self.convert("--model", plain, "--weight-bits", 4, name="again")
        self.assertEqual((again / "weights.bin").read_bytes(), (direct / "weights.bin").read_bytes())
        copy = self.convert("--model", direct, name="copy")
        self.assertEqual((copy / "weights.bin").read_bytes(), (direct / "weights.bin").read_bytes())

    def test_each_number_of_bits_has_a_store_of_its_own_on_first_use(self):
        offload = self.folder / "first"
        offload.mkdir()
        for count, bits in enumerate((16, 8, 4), start=1):
            words = ["bench", *SMALL, *ON_DISK, "--quiet", "--offload-dir", offload, "--weight-bits", bits]
            for _ in range(2):
                self.run_verb(*words)
                self.assertEqual(len(list(offload.glob("spillway-*.store"))), count)

    def test_other_bits_than_asked_for_are_refused(self):
        stores = {bits: self.convert("--model", harness.BUNDLED_MODEL, "--weight-bits", bits, name=f"s{bits}")
                  for bits in (16, 8, 4)}
        before = sorted(self.folder.rglob("*"))
        for held, store in stores.items():
            for bits in (16, 8, 4):
                if bits == held:
                    continue
                for verb in ("bench", "plan"):
                    line = self.refusal(11, verb, "--model", store, *SMALL, "--weight-bits", bits)
                    self.assertIn(f"{held}-bit weights", line)
        self.refusal(11, "convert", "--model", stores[4], "--weight-bits", 8, "--output", self.folder / "no")
        self.assertEqual(sorted(self.folder.rglob("*")), before)

    def test_damaged_stores_are_refused(self):
        store = self.convert("--model", harness.BUNDLED_MODEL, "--weight-bits", 4)
        weights = store / "weights.bin"
        table = store / "store.json"
        good = weights.read_bytes()
        text = table.read_text()
        for at in (0, 2, 5000, len(good) - 4096):
            weights.write_bytes(good[:at] + bytes([good[at] ^ 1]) + good[at + 1:])
            for flags in ([], ON_DISK, MIXED):
                self.refusal(41, "bench", "--model", store, *SMALL, *flags, "--offload-dir", self.folder)
        weights.write_bytes(good[:-4096])
        self.refusal(10, "bench", "--model", store, *SMALL)
        weights.write_bytes(good)
        self.run_verb("bench", "--model", store, *SMALL, "--quiet")
        table.write_text(text.replace('"weight_bits":4', '"weight_bits":8'))
        self.refusal(10, "bench", "--model", store, *SMALL)
        table.write_text(text[: len(text) // 2])
        self.refusal(10, "bench", "--model", store, *SMALL)


class Runs(WeightBitsTest):
    def test_report_and_plan_say_what_runs(self):
        bytes_of = {}
        peak_of = {}
        for bits in (16, 8, 4):
            words = ["--weight-bits", bits, *SMALL, "--gpu-batch-size", 4]
            planned = self.report_of("plan", *words)
            measured = self.report_of("bench", *words)
            for report in (planned, measured):
                self.assertEqual(report["policy"]["weight_bits"], bits)
            for tier, use in planned["tiers"].items():
                self.assertEqual(use["planned_bytes"], measured["tiers"][tier]["planned_bytes"])
            bytes_of[bits] = planned["model"]["weight_bytes"]
            peak_of[bits] = measured["tiers"]["cpu"]["peak_bytes"]
        self.assertLess(bytes_of[8], 0.6 * bytes_of[16])
        self.assertLess(bytes_of[4], 0.6 * bytes_of[8])
        saved = bytes_of[16] - bytes_of[4]
        self.assertLess(peak_of[4], peak_of[16] - 0.7 * saved, "nothing of 16 bits is kept beside")

    def test_a_policy_file_states_the_bits(self):
        policy = self.folder / "p.json"
        policy.write_text(json.dumps({"version": 1, "weight_bits": 4}))
        self.assertEqual(self.report_of("bench", "--policy", policy, *SMALL)["policy"]["weight_bits"], 4)
        report = self.report_of("bench", "--policy", policy, "--weight-bits", 8, *SMALL)
        self.assertEqual(report["policy"]["weight_bits"], 8)
        store = self.convert("--model", harness.BUNDLED_MODEL)
        self.assertIn("16-bit weights", self.refusal(11, "bench", "--policy", policy, "--model", store, *SMALL))

    def test_search_simulate_and_plan_for_another_machine(self):
        machine = harness.REPOSITORY / "examples" / "machines" / "t4.json"
        words = ["--model", "opt-6.7b", "--machine", machine, "--prompt-len", 64, "--gen-len", 8, "--num-requests", 8,
                 "--weight-bits", 4, "--gpu-batch-size", 8, "--num-gpu-batches", 1, "--quiet"]
        policy = self.folder / "found.json"
        self.run_verb("search", *words, "--output", policy)
        self.assertEqual(json.loads(policy.read_text())["weight_bits"], 4)
        report = self.folder / "simulated.json"
        self.run_verb("simulate", *words, "--policy", policy, "--report", report)
        simulated = json.loads(report.read_text())
        self.assertEqual(simulated["policy"]["weight_bits"], 4)
        self.assertLess(simulated["model"]["weight_bytes"], 4.2e9)  # 13.3e9 in 16 bits
        self.run_verb("plan", *words, "--policy", policy)

    def test_calibrate_and_score_take_the_flag(self):
        words = ["--weight-bits", 4, "--kv-policy", "h2o", "--quiet", "--sample", 1, "--window", 64]
        self.run_verb("calibrate", *words, "--text", HELD_OUT, "--max-loss", "50%")
        text = self.folder / "t.txt"
        text.write_text("Once upon a time there was a king who had a daughter.\n")
        report = self.folder / "score.json"
        self.run_verb("score", "--perplexity", text, "--weight-bits", 8, "--report", report, "--quiet")
        self.assertEqual(json.loads(report.read_text())["policy"]["weight_bits"], 8)

    def test_quantising_costs_little(self):
        """The bundled model on text it was not trained on: 8 bits within 0.3 % of 16, 4 bits within 3 %."""
        text = self.folder / "held_out.txt"
        whole_text = HELD_OUT.read_text(encoding="utf-8")
        text.write_text(whole_text[:len(whole_text) // 5], encoding="utf-8")

        def perplexity(bits):
            report = self.folder / f"{bits}.json"
            self.run_verb("score", "--perplexity", text, "--start-each-window", "--window", 512, "--stride", 256,
                          "--weight-bits", bits, "--report", report, "--quiet")
            return json.loads(report.read_text())["score"]["perplexity"]
        whole = perplexity(16)
        self.assertLess(perplexity(8), 1.003 * whole)
        self.assertLess(perplexity(4), 1.03 * whole)

    def test_bad_flags(self):
        self.assertIn("16, 8 or 4", self.refusal(2, "bench", "--weight-bits", 2, *SMALL))
        line = self.refusal(2, "bench", "--weight-bits", 4, "--allow-nonfinite-weights", *SMALL)
        self.assertIn("--allow-nonfinite-weights", line)
        policy = self.folder / "p.json"
        policy.write_text(json.dumps({"version": 1, "weight_bits": 3}))
        self.assertIn("$.weight_bits", self.refusal(3, "bench", "--policy", policy, *SMALL))


if __name__ == "__main__":
    harness.VerbTest.binary = pathlib.Path(sys.argv.pop(1)).resolve()
    unittest.main()
