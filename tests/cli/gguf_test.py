"""GGUF files give what the Hugging Face folders that they are made of give. Standard library only.

  python3 gguf_test.py path/to/spillway [unittest arguments]
"""

import json
import math
import pathlib
import random
import shutil
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "gguf"))

import coded_models
import gguf_writer
import harness

PARITY_MODELS = harness.REPOSITORY / "tests" / "parity" / "models"
SLIDING, FULL = "sliding_attention", "full_attention"
# Changes that make of a small model one that the format can tell: which layers of Gemma have windows, and how queries are
# scaled, is known of the architecture.
CASES = {
    "llama-plain": {},
    "yarn": {},
    "mistral-windowed": {},
    "mistral-narrow-heads": {},
    "mistral-wide-window": {"sliding_window": None},
    "qwen2-grouped-tied": {"sliding_window": None},
    "qwen3-grouped-tied": {},
    "qwen3-biased": {},
    "gemma-one-key-head": {},
    "gemma2-windowed-capped": {"query_pre_attn_scalar": 32},
    "gemma3-wide-window": {"query_pre_attn_scalar": 32, "layer_types": [SLIDING] * 3, "sliding_window": 11, "rope_parameters": {
        SLIDING: {"rope_type": "default", "rope_theta": 10000.0}, FULL: {"rope_type": "default", "rope_theta": 1000000.0}}},
    "phi3-plain": {},
    "phi3-window": {},
    "phi3-partial": {},
    "olmo2-plain": {},
    "olmo3-windowed": {"rope_scaling": {"rope_type": "yarn", "factor": 8.0, "original_max_position_embeddings": 64, "attention_factor": 1.375}},
    "smollm3-plain": {},
    "granite-biased": {"eos_token_id": 2},  # its own is "r", which a file's tokenizer takes for special text
    "granitemoe-biased": {},
    "granite4-unturned": {"position_embedding_type": "rope"},
    "glm4-plain": {},
    "exaone4-hybrid": {"rope_scaling": {"rope_type": "llama3", "factor": 16.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                                        "original_max_position_embeddings": 8192}},
    "exaone4-full": {},
    "seedoss-plain": {},
    "gptoss-wide": {},
    "gptoss-mxfp4": {"layer_types": [SLIDING, FULL]},
    "mixtral-plain": {},
    "mixtral-stacked": {},
    "mixtral-windowed": {},
    "qwen2moe-plain": {},
    "qwen2moe-windowed": {"use_sliding_window": False, "norm_topk_prob": False},
    "qwen3moe-plain": {},
    "qwen3moe-stacked-windowed": {"use_sliding_window": False},
}
PROMPTS = ["So the youngest brother set out, and when he had gone a little way he met an old woman.", "The king said: 3 x 17 = ", "a"]


class GgufTest(harness.FolderTest):
    def folder_of(self, name, changes):
        folder = self.folder / "published" / name
        shutil.copytree(PARITY_MODELS / name, folder)
        path = folder / "config.json"
        config = json.loads(path.read_text(encoding="utf-8"))
        path.write_text(json.dumps(config | changes), encoding="utf-8")
        return folder

    def run_spillway(self, *arguments):
        return harness.run(self.binary, arguments, env={"XDG_CACHE_HOME": str(self.folder)})

    def answers(self, model, *flags):
        lines = [{"prompt": prompt, "max_tokens": 12, "logprobs": 1} for prompt in PROMPTS]
        source = harness.write_jsonl(self.folder / "in.jsonl", lines)
        result = self.run_spillway("generate", "--model", model, "--input", source, "--output", "-", "--quiet", *flags)
        self.assertEqual(result.status, 0, result.stderr.decode())
        choices = [json.loads(line)["response"]["body"]["choices"][0] for line in result.stdout.splitlines()]
        # Which tokens are special, and so have no text, differs: a file has none but those it needs.
        return [(choice["token_ids"], choice["logprobs"]["token_logprobs"]) for choice in choices]

    def refusal(self, status, model, *says):
        result = self.run_spillway("generate", "--model", model, "--input", "/dev/null", "--output", "-", "--quiet")
        self.assertEqual(result.status, status, result.stderr.decode())
        lines = result.stderr.decode().splitlines()
        self.assertEqual(len(lines), 1, lines)
        for text in says:
            self.assertIn(text, lines[0])

    def converted(self, name, changed=None, **options):
        path = self.folder / f"{name}.gguf"
        gguf_writer.convert(PARITY_MODELS / name, path, changed=changed, **options)
        return path


class Answers(GgufTest):
    def test_each_architecture_answers_as_its_folder(self):
        for name, changes in CASES.items():
            with self.subTest(model=name):
                folder = self.folder_of(name, changes)
                file = self.folder / f"{name}.gguf"
                gguf_writer.convert(folder, file)
                self.assertEqual(self.answers(file), self.answers(folder))

    def test_experts_may_have_tensors_of_their_own(self):
        """As Mixtral's had in 2023."""
        for coded in (False, True):
            with self.subTest(coded=coded):
                stacked = self.converted("mixtral-plain", coded=coded)
                apart = self.folder / "apart.gguf"
                gguf_writer.convert(PARITY_MODELS / "mixtral-plain", apart, coded=coded, apart=True)
                self.assertEqual(self.answers(apart), self.answers(stacked))

    def test_one_number_may_be_a_list_of_it_for_each_layer(self):
        """As of Granite 4, of which some models have layers without keys."""
        plain = self.answers(self.converted("granite-biased"))
        for name, changed in (("listed", {"granite.attention.head_count_kv": [2, 2]}), ("unset", {"granite.rope.scaling.finetuned": True})):
            with self.subTest(name=name):
                self.assertEqual(self.answers(self.converted("granite-biased", changed)), plain)

    def test_granite_without_experts_is_granite(self):
        plain = self.answers(self.converted("granite-biased"))
        file = self.folder / "other.gguf"
        gguf_writer.convert(self.folder_of("granite-biased", {"model_type": "granitemoe"}), file)
        self.assertEqual(self.answers(file), plain)

    def test_windows_are_those_that_the_file_says(self):
        gemma, every = "gemma3-wide-window", [SLIDING, FULL, SLIDING]
        ropes = {SLIDING: {"rope_type": "default", "rope_theta": 777.0}, FULL: {"rope_type": "default", "rope_theta": 1000000.0}}
        folder = self.folder_of(gemma, {"query_pre_attn_scalar": 32, "layer_types": every, "sliding_window": 11, "rope_parameters": ropes,
                                        "final_logit_softcapping": 5.0})
        file = self.folder / "gemma.gguf"
        gguf_writer.convert(folder, file, changed={"gemma3.attention.sliding_window_pattern": 2, "gemma3.rope.freq_base_swa": 777.0,
                                                   "gemma3.rope.freq_base": 1000000.0})
        self.assertEqual(self.answers(file), self.answers(folder))
        gptoss = self.folder_of("gptoss-wide", {"layer_types": [FULL, SLIDING]})
        file = self.folder / "gptoss.gguf"
        gguf_writer.convert(gptoss, file, changed={"gpt-oss.attention.sliding_window_pattern": [False, True]})
        self.assertEqual(self.answers(file), self.answers(gptoss))

    def test_factors_of_yarn_are_multiplied(self):
        rope = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64}
        plain = self.folder_of("llama-plain", {"rope_scaling": rope})
        files = {}
        for name, changed in (("neutral", {"attn_factor": 1.0, "yarn_ext_factor": -1.0}), ("twice", {"attn_factor": 2.0}),
                              ("published", {"yarn_attn_factor": 1.25, "attn_factor": 2.0})):
            files[name] = self.folder / f"{name}.gguf"
            gguf_writer.convert(plain, files[name], changed={f"llama.rope.scaling.{key}": value for key, value in changed.items()})
        self.assertEqual(self.answers(files["neutral"]), self.answers(plain))
        for name, factor in (("twice", 2 * (1 + 0.1 * math.log(4))), ("published", 2.5)):
            config = json.loads((plain / "config.json").read_text())
            config["rope_scaling"]["attention_factor"] = factor
            (plain / "config.json").write_text(json.dumps(config))
            self.assertEqual(self.answers(files[name]), self.answers(plain), name)

    def test_windows_without_a_list_are_all_but_each_fourth(self):
        folder = self.folder_of("olmo3-typed", {"layer_types": [SLIDING] * 3, "rope_parameters": None, "rope_theta": 500000.0})
        file = self.folder / "olmo3.gguf"
        gguf_writer.convert(folder, file, changed={"olmo2.attention.sliding_window_pattern": None})
        self.assertEqual(self.answers(file), self.answers(folder))

    def test_llama3_scaling_is_told_by_its_factors(self):
        rope = {"rope_type": "llama3", "factor": 32.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                "original_max_position_embeddings": 8192}
        folder = self.folder_of("llama-plain", {"rope_scaling": rope, "rope_theta": 500000.0})
        file = self.folder / "llama-plain.gguf"
        gguf_writer.convert(folder, file)
        self.assertEqual(self.answers(file), self.answers(folder))

    def test_parts_of_a_file_are_one_model(self):
        whole = self.converted("llama-plain")
        parts = gguf_writer.split(PARITY_MODELS / "llama-plain", self.folder / "parts", 3)
        self.assertEqual(self.answers(parts[0]), self.answers(whole))
        self.refusal(12, parts[1], "is one of 3 parts; give --model the first of them")
        parts[2].unlink()
        self.refusal(12, parts[0], "parts-00003-of-00003.gguf")

    def test_a_file_of_another_name_and_a_folder_of_one_are_read(self):
        file = self.converted("llama-plain")
        expected = self.answers(file)
        folder = self.folder / "holds-one"
        folder.mkdir()
        for place in (self.folder / "UPPER.GGUF", self.folder / "sha256-0123", folder / "model.gguf"):
            shutil.copy(file, place)
        (folder / "mmproj-model.gguf").write_bytes(b"GGUF")
        for model in (self.folder / "UPPER.GGUF", self.folder / "sha256-0123", folder):
            with self.subTest(model=model.name):
                self.assertEqual(self.answers(model), expected)
                self.assertEqual(self.answers(file, "--tokenizer", model), expected)
                self.assertIn("format      GGUF", self.run_spillway("inspect", model).stdout.decode())
        shutil.copy(file, folder / "other.gguf")
        self.refusal(12, folder, "holds 2 GGUF files (model.gguf, other.gguf); give the path of one of them")

    def test_a_folder_of_parts_is_one_model(self):
        folder = self.folder / "holds-parts"
        folder.mkdir()
        parts = gguf_writer.split(PARITY_MODELS / "llama-plain", folder / "parts", 3)
        self.assertEqual(self.answers(folder), self.answers(parts[0]))

    def test_a_store_of_it_and_fewer_bits_run(self):
        file = self.converted("llama-plain")
        store = self.folder / "store"
        self.assertEqual(self.run_spillway("convert", "--model", file, "--output", store, "--quiet").status, 0)
        self.assertEqual(self.answers(store), self.answers(file))
        disk = ["--percent", 0, 0, 0, 100, 0, 100, "--offload-dir", self.folder]
        self.assertEqual(self.answers(file, *disk), self.answers(file))
        self.assertEqual(self.answers(file, "--weight-bits", 8), self.answers(PARITY_MODELS / "llama-plain", "--weight-bits", 8))

    def test_codes_are_told_by_inspect(self):
        text = self.run_spillway("inspect", self.converted("llama-plain", coded=True)).stdout.decode()
        self.assertIn("format      GGUF", text)
        self.assertIn("Q8_0", text)
        self.assertIn("every tensor of the model is there", text)


# Types of matrices, the model that they are of, how `inspect` names what holds them, and bytes of a weight of each.
LONG_CODES = {"attn_q": "Q4_K", "attn_k": "Q5_K", "attn_v": "Q6_K", "attn_output": "Q2_K", "ffn_gate": "Q3_K", "ffn_up": "Q4_K", "ffn_down": "Q6_K",
              "token_embd": "Q6_K"}
EXPERT_CODES = {"attn_q": "Q4_K", "attn_v": "Q6_K", "ffn_gate_exps": "Q4_K", "ffn_up_exps": "Q5_K", "ffn_down_exps": "Q6_K", "token_embd": "Q4_K"}
MIXED_EXPERTS = {"attn_q": "Q8_0", "attn_k": "Q8_0", "attn_v": "Q8_0", "_exps": "MXFP4", "output.weight": "Q8_0"}
SHORT_CODES = {"attn_q": "Q4_0", "attn_k": "Q5_0", "attn_v": "Q8_0", "ffn_gate": "Q4_1", "ffn_up": "Q4_0", "ffn_down": "Q4_1"}


class Held(GgufTest):
    """Codes are held as they are; gguf_type_test.cc shows that no weight is another one."""

    def wide_folder(self, model="llama-groups-of-four"):
        """A small model with 256 columns. Its weights are any."""
        folder = self.folder / f"wide-{model}"
        if folder.exists():
            return folder
        shutil.copytree(PARITY_MODELS / model, folder)
        config = json.loads((folder / "config.json").read_text())
        config |= {"hidden_size": 256, "intermediate_size": 512, "head_dim": 32, "moe_intermediate_size": 256}
        tensors = gguf_writer.read_tensors(folder)
        sizes = {64: 256, 128: 256, 32: 64, 96: 512, 16: 32, 11: 11, 384: 384}
        wide = coded_models.Folder(config)
        drawn = random.Random(7)
        for name, (kind, shape, _) in tensors.items():
            shape = [256 if size == 32 and "experts" in name else sizes[size] for size in shape]
            mean, spread = (0.0, 0.02) if len(shape) == 2 else (1.0, 0.2)
            wide.tensors[name] = (kind, shape, coded_models.halfs([drawn.gauss(mean, spread) for _ in range(math.prod(shape))]))
        wide.write(folder)
        return folder

    def files(self):
        for name, folder, coded in (("long", self.wide_folder(), LONG_CODES), ("short", PARITY_MODELS / "llama-groups-of-four", SHORT_CODES),
                                    ("experts", self.wide_folder("qwen3moe-plain"), EXPERT_CODES),
                                    ("mxfp4", PARITY_MODELS / "qwen3moe-plain", MIXED_EXPERTS)):
            path = self.folder / f"{name}.gguf"
            gguf_writer.convert(folder, path, coded=coded)
            yield name, path

    def test_they_give_nearly_what_their_values_give(self):
        for name, file in self.files():
            with self.subTest(name=name):
                held, decoded = self.answers(file), self.answers(file, "--weight-bits", 16)
                for (ids, logprobs), (other_ids, others) in zip(held, decoded, strict=True):
                    self.assertEqual(ids, other_ids)
                    for one, other in zip(logprobs, others, strict=True):
                        self.assertAlmostEqual(one, other, delta=0.005)

    def test_every_matrix_counts(self):
        """Other codes in one matrix alone are seen in what test_they_give_nearly_what_their_values_give compares."""
        folder = self.wide_folder()
        whole, changed = self.folder / "whole.gguf", self.folder / "changed.gguf"
        gguf_writer.convert(folder, whole, coded=LONG_CODES)
        expected = self.answers(whole)
        for part, kind in LONG_CODES.items():
            with self.subTest(part=part):
                gguf_writer.convert(folder, changed, coded=LONG_CODES | {part: "Q4_K" if kind != "Q4_K" else "Q6_K"})
                self.assertGreater(max(abs(a - b) for (_, one), (_, other) in zip(expected, self.answers(changed), strict=True)
                                       for a, b in zip(one, other)), 0.02)

    def test_inspect_says_what_is_not_held(self):
        file = self.folder / "some.gguf"
        for coded, says in ((SHORT_CODES | {"attn_v": "Q5_1"}, 'codes       4 of 14 matrices of layers have 16 bits, the first: '
                             '"model.layers.0.self_attn.v_proj.weight" is in Q5_1, which is not held'),
                            ({"": "Q5_1"}, 'codes       decoded to 16 bits: "model.layers.0.self_attn.q_proj.weight" is in Q5_1'),
                            ({"token_embd": "Q8_0"}, None)):
            gguf_writer.convert(PARITY_MODELS / "llama-groups-of-four", file, coded=coded)
            text = self.run_spillway("inspect", file).stdout.decode()
            if says:
                self.assertIn(says, text)
            else:
                self.assertNotIn("\ncodes", text)

    def test_placements_and_stores_give_the_same(self):
        for name, file in self.files():
            expected = self.answers(file)
            for flags in (["--percent", 0, 0, 0, 100, 0, 100, "--offload-dir", self.folder], ["--threads", 1, "--prefill-chunk", 5],
                          ["--percent", 30, 30, 30, 30, 30, 30, "--emulate-gpu", "1GiB", "--offload-dir", self.folder]):
                with self.subTest(name=name, flags=flags):
                    self.assertEqual(self.answers(file, *flags), expected)
            store = self.folder / f"{name}-store"
            self.assertEqual(self.run_spillway("convert", "--model", file, "--output", store, "--quiet").status, 0)
            self.assertEqual(self.answers(store), expected)

    def test_they_take_their_bytes(self):
        dense = {"q": 40, "k": 60, "v": 60, "output": 60, "gate": 60, "up": 40, "down": 60}
        types = {"long": ("fp16, layers in q4_k and q6_k, embedding and head in q6_k\n", dense),
                 "short": ("fp16, layers in fp16, q4_0, q4_1 and q8_0", {"q": 36, "k": 68, "v": 68, "output": 128, "gate": 40, "up": 36, "down": 40}),
                 "experts": ("bf16, layers in bf16, q4_k and q6_k, embedding in q4_k\n", {"q": 40, "k": 128, "v": 60, "output": 128, "gate": 40, "up": 60, "down": 60}),
                 "mxfp4": ("bf16, layers in q8_0, experts in MXFP4, head in q8_0\n", {"q": 68, "k": 68, "v": 68, "output": 68, "gate": 36, "up": 36, "down": 36})}
        for name, file in self.files():
            with self.subTest(name=name):
                names, bytes_of = types[name]
                hidden, ffn, q, kv = {"long": (256, 512, 256, 64), "short": (64, 96, 128, 32), "experts": (256, 256, 256, 64),
                                          "mxfp4": (64, 32, 128, 32)}[name]
                experts = 11 if name in ("experts", "mxfp4") else 1
                self.assertIn(f"in memory as {names}", self.run_spillway("inspect", file).stdout.decode())
                shapes = {"q": (q, hidden), "k": (kv, hidden), "v": (kv, hidden), "output": (hidden, q), "gate": (experts * ffn, hidden),
                          "up": (experts * ffn, hidden), "down": (experts * hidden, ffn)}
                # Elements of 16 bits stand in no groups.
                def bytes_in(rows, cols, group):
                    return rows * (2 * cols if group == 128 else math.ceil(cols / 64) * group)

                less = 2 * sum(bytes_in(*shape, 128) - bytes_in(*shape, bytes_of[part]) for part, shape in shapes.items())
                end = (384, hidden)  # the embedding, or the head
                less += bytes_in(*end, 128) - bytes_in(*end, {"long": 60, "short": 128, "experts": 40, "mxfp4": 68}[name])
                self.assertEqual(self.weight_bytes(file, "--weight-bits", 16) - self.weight_bytes(file), less)
                self.assertEqual(self.weight_bytes(file, "--dummy-weights"), self.weight_bytes(file))

    def weight_bytes(self, model, *flags):
        report = self.folder / "r.json"
        words = ["plan", "--model", model, "--quiet", "--report", report, "--prompt-len", 8, "--gen-len", 8, *flags]
        result = self.run_spillway(*words)
        self.assertEqual(result.status, 0, result.stderr.decode())
        found = json.loads(report.read_text())
        self.assertEqual(found["policy"].get("weight_bits"), 16 if "--weight-bits" in flags else None)  # none of published codes
        return found["model"]["weight_bytes"]


class Refusals(GgufTest):
    def test_what_is_not_read_is_named(self):
        name = "llama-plain"
        self.refusal(11, self.converted(name, {"general.architecture": "mamba"}), '"general.architecture" is "mamba"')
        self.refusal(11, self.converted("qwen3-biased", {"qwen3.expert_count": 8}), "qwen3.expert_count")
        for key, value in (("rope.scaling.finetuned", False), ("nextn_predict_layers", 1), ("attention.head_count_kv", [2, 1]),
                           ("attention.head_count_kv", [2])):
            self.refusal(10 if "kv" in key else 11, self.converted("granite-biased", {f"granite.{key}": value}), f'"granite.{key}"')
        self.refusal(11, self.converted("olmo3-windowed", {"olmo2.rope.freq_base_swa": 10000.0}), "freq_base_swa")
        self.refusal(11, self.converted("yarn", {"llama.rope.scaling.yarn_ext_factor": 0.5}), "yarn_ext_factor")
        experts = "qwen3moe-plain"
        for key, value in (("expert_gating_func", 2), ("expert_weights_scale", 2.5), ("expert_group_count", 4), ("expert_shared_count", 1)):
            self.refusal(11, self.converted(experts, {f"qwen3moe.{key}": value}), f'"qwen3moe.{key}"')
        self.refusal(10, self.converted(experts, {"qwen3moe.expert_used_count": 0}), '"qwen3moe.expert_used_count" is 0')
        self.refusal(11, self.converted(name, {"llama.rope.scaling.type": "su", "llama.rope.scaling.factor": 2.0}), "rope.scaling.type")
        self.refusal(14, self.converted(name, {"tokenizer.ggml.pre": "klingon"}), '"tokenizer.ggml.pre" is "klingon"')
        self.refusal(14, self.converted(name, {"tokenizer.ggml.model": "bert"}), "bert")
        self.refusal(10, self.converted(name, {"llama.block_count": None}), 'has no "llama.block_count"')
        self.refusal(10, self.converted(name, {"llama.block_count": "two"}), "must be an integer")
        self.refusal(11, self.converted("llama-grouped-tied"), "rope_freqs.weight")

    def test_damage_is_one_line(self):
        file = self.converted("llama-plain")
        data = file.read_bytes()
        for end in (0, 3, 7, 23, 24, 60, len(data) // 2, len(data) - 64):
            file.write_bytes(data[:end])
            result = self.run_spillway("generate", "--model", file, "--input", "/dev/null", "--output", "-", "--quiet")
            self.assertEqual(result.status, 10, (end, result.stderr))
            self.assertEqual(len(result.stderr.splitlines()), 1, result.stderr)
        file.write_bytes(b"GGUF" + (9).to_bytes(4, "little") + data[8:])
        self.refusal(11, file, "GGUF version 9")
        self.refusal(12, self.folder / "absent.gguf", "absent.gguf")


if __name__ == "__main__":
    GgufTest.binary = pathlib.Path(sys.argv.pop(1)).resolve()
    unittest.main()
