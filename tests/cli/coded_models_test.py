"""Checkpoints that other programs have coded give what the values of their codes give. Standard library only.

  python3 coded_models_test.py path/to/spillway [unittest arguments]
"""

import json
import pathlib
import shutil
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "gguf"))

import coded_models
import gguf_writer
import harness

MODEL = harness.REPOSITORY / "tests" / "parity" / "models" / "llama-groups-of-four"
MXFP4_MODEL = MODEL.parent / "gptoss-mxfp4"


class CodedTest(harness.FolderTest):
    def make(self, form):
        """The folder of codes, and that of their values."""
        config = json.loads((MODEL / "config.json").read_text(encoding="utf-8"))
        folders = [self.folder / f"{form}-{kind}" for kind in ("coded", "plain")]
        for folder in folders:
            folder.mkdir()
            for file in MODEL.glob("*.json"):
                if not file.name.endswith("index.json"):
                    shutil.copy(file, folder)
            shutil.copy(MODEL / "merges.txt", folder)
        coded_models.make(gguf_writer.read_tensors(MODEL), config, form, *folders)
        return folders

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
                self.assertEqual(self.answers(coded), self.answers(plain))

    def test_stores_and_fewer_bits_are_made_of_them(self):
        coded, plain = self.make("gptq-8-ordered")
        disk = ["--percent", 0, 0, 0, 100, 0, 100, "--offload-dir", self.folder]
        self.assertEqual(self.answers(coded, *disk), self.answers(plain))
        self.assertEqual(self.answers(coded, "--weight-bits", 8), self.answers(plain, "--weight-bits", 8))

    def test_inspect_names_the_codes(self):
        coded, _ = self.make("awq")
        text = harness.run(self.binary, ["inspect", coded]).stdout.decode()
        self.assertIn(" I32", text)
        self.assertIn("every tensor of the model is there", text)


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
