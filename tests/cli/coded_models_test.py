"""Checkpoints that other programs have coded give what the values of their codes give. Standard library only.

  python3 coded_models_test.py path/to/spillway [unittest arguments]
"""

import json
import pathlib
import shutil
import struct
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "gguf"))

import coded_models
import gguf_writer
import harness

MODEL = harness.REPOSITORY / "tests" / "parity" / "models" / "llama-groups-of-four"
MXFP4_MODEL = MODEL.parent / "gptoss-mxfp4"


class CodedTest(harness.FolderTest):
    def make(self, form, model=MODEL):
        """The folder of codes, and that of their values."""
        config = json.loads((model / "config.json").read_text(encoding="utf-8"))
        folders = [self.folder / f"{model.name}-{form}-{kind}" for kind in ("coded", "plain")]
        for folder in folders:
            folder.mkdir()
            for file in model.glob("*.json"):
                if not file.name.endswith("index.json"):
                    shutil.copy(file, folder)
            shutil.copy(model / "merges.txt", folder)
        coded_models.make(gguf_writer.read_tensors(model), config, form, *folders)
        return folders

    def change_tensor(self, folder, name, data):
        changed = coded_models.Folder(json.loads((folder / "config.json").read_text()))
        changed.tensors = gguf_writer.read_tensors(folder)
        kind, shape, _ = changed.tensors[name]
        changed.tensors[name] = (kind, shape, data)
        changed.write(folder)

    def inspect(self, model):
        return harness.run(self.binary, ["inspect", model]).stdout.decode()

    def answers(self, model, *flags, env=None):
        lines = [{"prompt": list(range(5, 40)), "max_tokens": 8, "logprobs": 1}]
        source = harness.write_jsonl(self.folder / "in.jsonl", lines)
        result = harness.run(self.binary, ["generate", "--model", model, "--input", source, "--output", "-", "--quiet", *flags],
                             env=env)
        self.assertEqual(result.status, 0, result.stderr.decode())
        return json.loads(result.stdout)["response"]["body"]["choices"]

    def refusal(self, status, model, says):
        result = harness.run(self.binary, ["generate", "--model", model, "--input", "/dev/null", "--output", "-", "--quiet"])
        self.assertEqual(result.status, status, result.stderr.decode())
        self.assertEqual(len(result.stderr.splitlines()), 1, result.stderr)
        self.assertIn(says, result.stderr.decode())

    def change(self, folder, **changes):
        path = folder / "config.json"
        config = json.loads(path.read_text())
        config["quantization_config"] |= changes
        path.write_text(json.dumps(config))


class Answers(CodedTest):
    def test_codes_give_what_their_values_give(self):
        for form in coded_models.FORMS:
            with self.subTest(form=form):
                coded, plain = self.make(form)
                flags = ["--weight-bits", 16] if form in coded_models.HELD else []
                self.assertEqual(self.answers(coded, *flags), self.answers(plain))

    def test_stores_and_fewer_bits_are_made_of_them(self):
        coded, plain = self.make("gptq-8-ordered")
        disk = ["--percent", 0, 0, 0, 100, 0, 100, "--offload-dir", self.folder]
        self.assertEqual(self.answers(coded, *disk), self.answers(plain))
        self.assertEqual(self.answers(coded, "--weight-bits", 8), self.answers(plain, "--weight-bits", 8))

    def test_inspect_names_the_codes(self):
        coded, _ = self.make("awq")
        text = self.inspect(coded)
        self.assertIn(" I32", text)
        self.assertIn("every tensor of the model is there", text)
        size = (coded / "model.safetensors").stat().st_size
        self.assertIn(f"({size} bytes) in files", text)

    def test_inspect_says_why_codes_are_decoded(self):
        for form, why in (("awq", "has a scale for fewer weights than 64"), ("gptq-8-ordered", "has a scale for fewer weights than 64"),
                          ("int8-rows", "has integers with scales of 32 bits")):
            coded, _ = self.make(form)
            self.assertIn(f"codes       decoded to 16 bits: \"model.layers.0.self_attn.q_proj.weight\" {why}", self.inspect(coded))
        coded, _ = self.make("gptq-4-wide")
        name = "model.layers.1.self_attn.o_proj.g_idx"
        self.change_tensor(coded, name, struct.pack("<128i", 1, *(col // 64 for col in range(1, 128))))
        self.assertIn('"model.layers.1.self_attn.o_proj.weight" has inputs in another order', self.inspect(coded))
        self.change_tensor(coded, name, struct.pack("<128i", *([7] * 128)))
        self.assertIn("not usable", self.inspect(coded))


class Held(CodedTest):
    """Codes that are held as they are; tests/codes shows that no weight is another one."""

    def same_within(self, first, second, bound):
        """The same tokens with nearly the same log-probabilities: values lose what 16 bits do not hold of them."""
        for one, other in zip(first, second, strict=True):
            self.assertEqual(one["text"], other["text"])
            for a, b in zip(one["logprobs"]["token_logprobs"], other["logprobs"]["token_logprobs"], strict=True):
                self.assertAlmostEqual(a, b, delta=bound)

    def test_they_give_nearly_what_their_values_give(self):
        for form in coded_models.HELD:
            with self.subTest(form=form):
                coded, plain = self.make(form)
                self.same_within(self.answers(coded), self.answers(plain), 0.002)

    def test_other_families_too(self):
        """Experts, and matrices that are rows of a published one. Values of some are held in bf16."""
        for name in ("phi3-partial", "qwen3moe-plain", "qwen2moe-plain"):
            for form in ("gptq-4-wide", "awq-wide", "fp8-wide"):
                with self.subTest(name=name, form=form):
                    coded, plain = self.make(form, MODEL.parent / name)
                    self.assertIn(f"layers in {coded_models.HELD[form]}", self.inspect(coded))
                    self.same_within(self.answers(coded), self.answers(plain), 0.03)

    def test_a_policy_of_a_search_keeps_them_unless_16_bits_were_asked_for(self):
        coded, _ = self.make("gptq-4-wide")
        policy = self.folder / "policy.json"
        words = ["search", "--model", coded, "--machine", "t4", "--prompt-len", 8, "--gen-len", 8, "--output", policy, "--quiet"]
        for flags, weights in (([], "fp16, layers in int4"), (["--weight-bits", 16], "fp16")):
            found = harness.run(self.binary, [*words, *flags])
            self.assertEqual(found.status, 0, found.stderr.decode())
            self.assertEqual(self.report("plan", coded, "--machine", "t4", "--policy", policy)["weights"], weights)

    def test_placements_give_the_same(self):
        for form in coded_models.HELD:
            coded, _ = self.make(form)
            expected = self.answers(coded)
            for flags in (["--percent", 0, 0, 0, 100, 0, 100, "--offload-dir", self.folder], ["--threads", 1, "--prefill-chunk", 5],
                          ["--percent", 30, 30, 30, 30, 30, 30, "--emulate-gpu", "1GiB", "--offload-dir", self.folder]):
                with self.subTest(form=form, flags=flags):
                    self.assertEqual(self.answers(coded, *flags), expected)

    def test_a_store_has_them(self):
        for form in coded_models.HELD:
            with self.subTest(form=form):
                coded, _ = self.make(form)
                store = self.folder / f"{form}-store"
                made = harness.run(self.binary, ["convert", "--model", coded, "--output", store])
                self.assertEqual(made.status, 0, made.stderr.decode())
                self.assertEqual(self.answers(store), self.answers(coded))
                for verb, words in (("generate", ["--input", "/dev/null", "--output", "-"]), ("convert", ["--output", self.folder / "o"])):
                    refused = harness.run(self.binary, [verb, "--model", store, "--weight-bits", 16, *words])
                    self.assertEqual(refused.status, 11, refused.stderr.decode())
                    self.assertIn("a store of weights in published codes", refused.stderr.decode())

    def report(self, verb, model, *flags):
        report = self.folder / "r.json"
        words = [verb, "--model", model, "--quiet", "--report", report, "--prompt-len", 8, "--gen-len", 8, *flags]
        result = harness.run(self.binary, words)
        self.assertEqual(result.status, 0, result.stderr.decode())
        return json.loads(report.read_text())["model"]

    def test_reports_say_so(self):
        """Of 2 layers with matrices of 128, 32, 32, 96 and 96 rows of 64, and of 64 rows of 128 and of 96."""
        for form, kind in coded_models.HELD.items():
            with self.subTest(form=form):
                coded, plain = self.make(form)
                held, values = self.report("plan", coded), self.report("plan", plain)
                self.assertEqual(held["weights"], f"fp16, layers in {kind}")
                group = 36 if kind == "int4" else 68
                codes = (128 + 32 + 32 + 96 + 96 + 2 * 64 + 2 * 64) * group
                weights = 2 * ((128 + 32 + 32 + 96 + 96) * 64 + 64 * (128 + 96))
                self.assertEqual(values["weight_bytes"] - held["weight_bytes"], 2 * (weights - codes))
                self.assertEqual(self.report("plan", coded, "--dummy-weights"), held)
                self.assertIn(f"layers in {kind}", harness.run(self.binary, ["inspect", coded]).stdout.decode())

    def test_numbers_that_are_none_are_refused_or_kept(self):
        coded, _ = self.make("fp8-wide")
        name = "model.layers.1.mlp.up_proj.weight"
        self.change_tensor(coded, name, b"\x7f" + gguf_writer.read_tensors(coded)[name][2][1:])
        source = harness.write_jsonl(self.folder / "in.jsonl", [{"prompt": [5, 6, 7], "max_tokens": 2}])
        words = ["generate", "--model", coded, "--input", source, "--output", "-", "--quiet"]
        refused = harness.run(self.binary, words)
        self.assertEqual(refused.status, 44, refused.stderr.decode())
        self.assertIn("--allow-nonfinite-weights", refused.stderr.decode())
        kept = harness.run(self.binary, [*words, "--allow-nonfinite-weights"])
        self.assertIn(kept.status, (0, 21), kept.stderr.decode())


class Mxfp4(CodedTest):
    """Experts of gpt-oss; parity/parity_test.py has the tokens that transformers makes of the same folder."""

    def make_plain(self):
        plain = self.folder / "plain"
        plain.mkdir()
        for name in ("vocab.json", "merges.txt", "tokenizer_config.json", "special_tokens_map.json"):
            shutil.copy(MXFP4_MODEL / name, plain)
        config = json.loads((MXFP4_MODEL / "config.json").read_text(encoding="utf-8"))
        coded_models.make_plain_of_mxfp4(gguf_writer.read_tensors(MXFP4_MODEL), config, plain)
        return plain

    def copy_changed(self, change):
        """The folder with its tensors and config.json as `change` leaves them."""
        folder = self.folder / "changed"
        shutil.copytree(MXFP4_MODEL, folder, ignore=shutil.ignore_patterns("*safetensors*"))
        changed = coded_models.Folder(json.loads((folder / "config.json").read_text(encoding="utf-8")))
        changed.tensors = gguf_writer.read_tensors(MXFP4_MODEL)
        change(changed)
        changed.write(folder)
        return folder

    def test_codes_give_what_their_values_give(self):
        plain = self.make_plain()
        disk = ["--percent", 0, 0, 0, 100, 0, 100, "--offload-dir", self.folder]
        for flags in (["--weight-bits", 16], ["--weight-bits", 8], ["--weight-bits", 4], ["--weight-bits", 16, *disk]):
            with self.subTest(flags=flags):
                self.assertEqual(self.answers(MXFP4_MODEL, *flags), self.answers(plain, *flags))
        # Codes are summed as 16 bits are where there are no tiles for these.
        for flags in ([], disk):
            self.assertEqual(self.answers(MXFP4_MODEL, *flags, env={"SPILLWAY_ISA": "portable"}),
                             self.answers(plain, *flags, env={"SPILLWAY_ISA": "portable"}))

    def weight_bytes(self, model, *flags):
        report = self.folder / "plan.json"
        words = ["plan", "--model", model, "--prompt-len", 8, "--gen-len", 8, "--quiet", "--report", report, *flags]
        self.assertEqual(harness.run(self.binary, words).status, 0)
        return json.loads(report.read_text())["model"]["weight_bytes"]

    def test_they_are_held_as_they_are(self):
        """Of 2 layers, 6 experts and 3 matrices of 64 x 96, whose rows are padded to whole groups of 64."""
        saved = self.weight_bytes(MXFP4_MODEL, "--weight-bits", 16) - self.weight_bytes(MXFP4_MODEL)
        codes = 2 * 96 * 36 + 64 * 2 * 36
        self.assertEqual(saved, 2 * 6 * (3 * 64 * 96 * 2 - codes))
        self.assertLess(self.weight_bytes(MXFP4_MODEL), self.weight_bytes(self.make_plain()))

    def test_a_policy_of_a_search_keeps_them(self):
        policy = self.folder / "policy.json"
        words = ["search", "--model", MXFP4_MODEL, "--machine", "t4", "--prompt-len", 8, "--gen-len", 8, "--output", policy, "--quiet"]
        found = harness.run(self.binary, words)
        self.assertEqual(found.status, 0, found.stderr.decode())
        self.assertEqual(self.weight_bytes(MXFP4_MODEL, "--machine", "t4", "--policy", policy), self.weight_bytes(MXFP4_MODEL))

    def test_a_store_has_the_codes(self):
        store = self.folder / "store"
        made = harness.run(self.binary, ["convert", "--model", MXFP4_MODEL, "--output", store])
        self.assertEqual(made.status, 0, made.stderr.decode())
        self.assertEqual(self.answers(store), self.answers(MXFP4_MODEL))
        self.assertEqual(self.weight_bytes(store), self.weight_bytes(MXFP4_MODEL))
        again = harness.run(self.binary, ["convert", "--model", store, "--weight-bits", 8, "--output", self.folder / "other"])
        self.assertEqual(again.status, 11, again.stderr.decode())
        self.assertIn("--weight-bits", again.stderr.decode())

    def test_numbers_beyond_fp16_are_refused(self):
        name = "model.layers.1.mlp.experts.down_proj_scales"

        def make_small(changed):
            kind, shape, data = changed.tensors[name]
            changed.tensors[name] = (kind, shape, bytes([90] * len(data)))

        folder = self.copy_changed(make_small)
        source = harness.write_jsonl(self.folder / "in.jsonl", [{"prompt": [5, 6, 7], "max_tokens": 2}])
        words = ["generate", "--model", folder, "--input", source, "--output", "-", "--quiet"]
        refused = harness.run(self.binary, words)
        self.assertEqual(refused.status, 11, refused.stderr.decode())
        self.assertIn("give --weight-bits 16", refused.stderr.decode())
        self.assertEqual(harness.run(self.binary, [*words, "--weight-bits", 16]).status, 0)

    def test_without_a_type_they_are_held_in_bf16(self):
        folder = self.copy_changed(lambda changed: changed.config.pop("torch_dtype"))
        text = harness.run(self.binary, ["inspect", folder]).stdout.decode()
        self.assertIn("in memory as bf16", text)
        self.assertIn("every tensor of the model is there, 0 more", text)
        self.assertEqual(self.answers(folder), self.answers(MXFP4_MODEL))

    def test_parts_that_do_not_agree_are_named(self):
        name = "model.layers.0.mlp.experts.down_proj_scales"
        folder = self.copy_changed(lambda changed: changed.tensors.pop(name))
        self.refusal(11, folder, "down_proj_blocks")


class Refusals(CodedTest):
    def test_what_is_not_read_is_named(self):
        folder, _ = self.make("gptq-4")
        self.change(folder, bits=3)
        self.refusal(11, folder, '"bits" of "quantization_config" is 3')
        self.change(folder, quant_method="bitsandbytes")
        self.refusal(11, folder, '"quant_method" of "quantization_config" is bitsandbytes')
        folder, _ = self.make("awq")
        self.change(folder, version="gemv")
        self.refusal(11, folder, '"version" of "quantization_config" is gemv')

    def test_parts_that_do_not_agree_are_named(self):
        folder, _ = self.make("packed-4")
        self.change(folder, config_groups={"group_0": {"weights": {"num_bits": 4, "type": "int", "group_size": 8}}})
        self.refusal(11, folder, "weight_scale")


if __name__ == "__main__":
    CodedTest.binary = pathlib.Path(sys.argv.pop(1)).resolve()
    unittest.main()
