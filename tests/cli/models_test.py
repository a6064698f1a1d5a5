"""Models by name and the text parts of larger ones. Standard library only.

  python3 models_test.py path/to/spillway [unittest arguments]
"""

import json
import pathlib
import shutil
import sys
import unittest

import bad_models
import harness

PARITY_MODELS = harness.REPOSITORY / "tests" / "parity" / "models"
SMALL = ["--prompt-len", 8, "--gen-len", 4, "--num-requests", 2]


class Shapes(harness.VerbTest):
    def test_all_are_listed_with_their_sizes(self):
        lines = self.run_verb("inspect", "--shapes").stdout.decode().splitlines()
        rows = {line.split()[0]: line for line in lines[1:]}
        self.assertEqual(len(rows), len(lines) - 1)
        for name in ("opt-175b", "gpt2", "llama-3.1-70b", "mistral-7b", "qwen2.5-7b", "qwen2.5-32b", "qwen2.5-72b", "qwen3-8b",
                     "qwen3-32b", "gemma-2-27b", "gemma-3-1b", "gemma-3-27b"):
            self.assertIn(name, rows)
        self.assertEqual(rows["qwen3-8b"].split(), ["qwen3-8b", "qwen3", "8190735360", "15.26", "GiB", "144.0", "KiB"])
        self.assertTrue(rows["gemma-3-27b"].endswith("1024 tokens in 52 of 62 layers"), rows["gemma-3-27b"])

    def test_every_one_can_be_planned(self):
        lines = self.run_verb("inspect", "--shapes").stdout.decode().splitlines()
        for name in (line.split()[0] for line in lines[1:]):
            report = self.report_of("plan", "--model", name, *SMALL, "--percent", 0, 0, 0, 100, 0, 100, "--cpu-memory", "64GiB",
                                    "--disk-space", "1TB")
            self.assertEqual(report["model"]["name"], name)

    def test_a_path_beside_the_list_is_refused(self):
        self.assertIn("--shapes", self.refusal(2, "inspect", "--shapes", "folder"))
        self.assertIn("--shapes", self.refusal(2, "inspect"))
        self.assertIn("no such file or folder; give what is to be printed, or --shapes", self.refusal(12, "inspect", "opt-125m"))

    def test_a_cached_model_of_the_hub_is_inspected_by_its_name(self):
        snapshot = self.folder / "models--me--tales" / "snapshots" / "abc"
        snapshot.parent.mkdir(parents=True)
        snapshot.symlink_to(harness.BUNDLED_MODEL)
        shown = self.run_verb("inspect", "me/tales", env={**(self.env or {}), "HF_HUB_CACHE": str(self.folder)}).stdout.decode()
        self.assertIn("format      safetensors", shown)

    def test_a_name_has_any_case(self):
        report = self.report_of("plan", "--model", "Llama-3.2-1B", *SMALL)
        self.assertEqual(report["model"]["name"], "llama-3.2-1b")

    def test_a_wrong_name_has_its_nearest_told(self):
        line = self.refusal(12, "plan", "--model", "Qwen3-7B", *SMALL)
        self.assertIn("qwen3-4b, ", line)
        self.assertIn("qwen3-8b", line)
        self.refusal(12, "plan", "--model", "./qwen3-8b", *SMALL)

    def test_dummy_weights_of_each_family_run(self):
        for model in ("qwen2-grouped-tied", "qwen3-biased", "gemma-scaled", "gemma2-full", "gemma3-wide-window"):
            report = self.report_of("bench", "--model", PARITY_MODELS / model, "--dummy-weights", *SMALL)
            self.assertEqual(report["workload"]["num_errors"], 0, model)


class TextParts(harness.VerbTest):
    """A model of images, made of a small one: its config.json under text_config, its tensors under a prefix."""

    def make(self, prefix, head_prefix):
        folder = self.folder / "whole"
        shutil.copytree(PARITY_MODELS / "mistral-narrow-heads", folder)
        bad_models.as_text_part("mistral3", torch_dtype="bfloat16", vision_config={"hidden_size": 8})(folder)
        for shard in sorted(folder.glob("*.safetensors")):
            self.rename(shard, prefix, head_prefix)
        index = folder / "model.safetensors.index.json"
        names = json.loads(index.read_text())["weight_map"]
        weight_map = {self.renamed(name, prefix, head_prefix): file for name, file in names.items()}
        weight_map["vision_tower.ln.weight"] = min(names.values())
        index.write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))
        return folder

    @staticmethod
    def renamed(name, prefix, head_prefix):
        return head_prefix + name if name.startswith("lm_head") else prefix + name.removeprefix("model.")

    def rename(self, shard, prefix, head_prefix):
        file = bad_models.Safetensors(shard.parent, shard.name)
        entries = {name: entry for name, entry in file.header.items() if name != "__metadata__"}
        file.header = {self.renamed(name, prefix, head_prefix): entry for name, entry in entries.items()}
        if "-00001-" in shard.name:
            end = len(file.body)
            file.header["vision_tower.ln.weight"] = {"dtype": "BF16", "shape": [4], "data_offsets": [end, end + 8]}
            file.body += bytes(8)
        file.write()

    def answers(self, model, *flags):
        source = harness.write_jsonl(self.folder / "in.jsonl", [{"token_ids": [2, 17, 300], "max_tokens": 12}])
        result = self.run_verb("generate", "--model", model, "--input", source, "--output", "-", *flags)
        return harness.choice(json.loads(result.stdout))["token_ids"], result.stderr.decode()

    def test_tensors_are_found_under_each_name(self):
        expected, _ = self.answers(PARITY_MODELS / "mistral-narrow-heads", "--quiet")
        for prefix, head_prefix in (("language_model.model.", "language_model."), ("model.language_model.", ""),
                                    ("model.text_model.", "")):
            model = self.make(prefix, head_prefix)
            found, told = self.answers(model, "--no-progress")
            self.assertEqual(found, expected, prefix)
            self.assertIn("mistral3: text only; 1 tensors of other parts are skipped", told)
            quiet, told = self.answers(model, "--quiet")
            self.assertEqual(quiet, expected)
            self.assertNotIn("text only", told)
            shutil.rmtree(model)

    def test_a_store_of_one_says_nothing(self):
        expected, _ = self.answers(PARITY_MODELS / "mistral-narrow-heads", "--quiet")
        self.run_verb("convert", "--model", self.make("language_model.model.", "language_model."), "--output",
                      self.folder / "store")
        found, told = self.answers(self.folder / "store", "--no-progress")
        self.assertEqual(found, expected)
        self.assertNotIn("text only", told)


if __name__ == "__main__":
    harness.VerbTest.binary = pathlib.Path(sys.argv.pop(1)).resolve()
    unittest.main()
