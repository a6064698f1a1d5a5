"""Prompts as long as models of 131,072 positions take: the same answers whole and in chunks, from memory and from disk, and
memory that stays as planned, without anything that grows with the square of the length. Standard library only.

  python3 long_context_test.py path/to/spillway [unittest arguments]

SPILLWAY_LONG_PROMPT is the number of tokens of a prompt, 20,000 where it is not set; 131,056 take a minute a run.
"""

import json
import os
import pathlib
import random
import struct
import sys
import unittest

import harness

PROMPT = int(os.environ.get("SPILLWAY_LONG_PROMPT", "20000"))
NEW = 16
POSITIONS = 131072
VOCABULARY = 256
HIDDEN = 64
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 8192}
YARN = {"rope_type": "yarn", "factor": 32.0, "original_max_position_embeddings": 4096}
ON_DISK = ["--percent", 0, 100, 0, 0, 0, 0]
# The program itself, the line, and what is read of the model: all that may come on top of the plan.
BESIDE_THE_PLAN = 48 << 20


def write_model(folder, scaling, num_heads):
    """A decoder layer of the Llama family with random weights, one KV head."""
    folder.mkdir()
    head_dim = HIDDEN // num_heads
    config = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": HIDDEN, "intermediate_size": 64,
              "num_hidden_layers": 1, "num_attention_heads": num_heads, "num_key_value_heads": 1, "head_dim": head_dim,
              "vocab_size": VOCABULARY, "max_position_embeddings": POSITIONS, "rms_norm_eps": 1e-5, "rope_theta": 500000.0,
              "rope_scaling": scaling, "hidden_act": "silu", "tie_word_embeddings": False, "torch_dtype": "float16",
              "bos_token_id": 1, "eos_token_id": 2}
    (folder / "config.json").write_text(json.dumps(config))
    layer = "model.layers.0."
    shapes = {"model.embed_tokens.weight": [VOCABULARY, HIDDEN], "model.norm.weight": [HIDDEN],
              "lm_head.weight": [VOCABULARY, HIDDEN], layer + "input_layernorm.weight": [HIDDEN],
              layer + "post_attention_layernorm.weight": [HIDDEN], layer + "self_attn.q_proj.weight": [HIDDEN, HIDDEN],
              layer + "self_attn.k_proj.weight": [head_dim, HIDDEN], layer + "self_attn.v_proj.weight": [head_dim, HIDDEN],
              layer + "self_attn.o_proj.weight": [HIDDEN, HIDDEN], layer + "mlp.gate_proj.weight": [64, HIDDEN],
              layer + "mlp.up_proj.weight": [64, HIDDEN], layer + "mlp.down_proj.weight": [HIDDEN, 64]}
    rng = random.Random(1)
    header, data = {}, b""
    for name, shape in shapes.items():
        count = shape[0] * (shape[1] if len(shape) > 1 else 1)
        values = [1.0 if len(shape) == 1 else rng.gauss(0, 0.3) for _ in range(count)]
        raw = struct.pack(f"<{count}e", *values)
        header[name] = {"dtype": "F16", "shape": shape, "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + data)
    return folder


def token_ids(count):
    rng = random.Random(3)
    return [rng.randrange(3, VOCABULARY) for _ in range(count)]


class LongContextTest(harness.VerbTest):
    def setUp(self):
        super().setUp()
        self.llama3 = write_model(self.folder / "llama3", LLAMA3, 1)

    def answer(self, model, *words):
        """The new tokens of a row of so many, whose memory must have been as planned."""
        prompts = harness.write_jsonl(self.folder / "in.jsonl", [{"prompt": token_ids(PROMPT)}])
        output = self.folder / "out.jsonl"
        report = self.report_of("generate", "--model", model, "--tokenizer", "none", "--input", prompts, "--output", output,
                                "--overwrite", "--ignore-eos", "--max-new-tokens", NEW, *words)
        cpu = report["tiers"]["cpu"]
        if harness.SLOWDOWN == 1:  # sanitizers take memory of their own
            self.assertLess(cpu["peak_bytes"], cpu["planned_peak_bytes"] + BESIDE_THE_PLAN, words)
        tokens = harness.choice(harness.read_jsonl(output)[0])["token_ids"]
        self.assertEqual(len(tokens), NEW)
        return tokens

    def test_chunks_and_places_give_the_same_tokens(self):
        for model in (self.llama3, write_model(self.folder / "yarn", YARN, 2)):
            expected = self.answer(model)
            for words in (["--prefill-chunk", PROMPT], ["--prefill-chunk", 3000, *ON_DISK]):
                self.assertEqual(self.answer(model, *words), expected, words)

    def test_evicting_caches(self):
        for policy in (["window", "--kv-budget", 1024], ["h2o", "--kv-budget", "20%"]):
            words = ["--kv-policy", *policy]
            expected = self.answer(self.llama3, *words)
            self.assertEqual(self.answer(self.llama3, *words, "--prefill-chunk", 5000, *ON_DISK), expected, words)

    def test_the_longest_prompt_is_planned_without_its_square(self):
        words = ["--model", self.llama3, "--tokenizer", "none", "--num-requests", 1, "--gen-len", NEW]
        report = self.report_of("plan", *words, "--prompt-len", POSITIONS - NEW)
        planned = report["tiers"]["cpu"]["planned_peak_bytes"]
        self.assertGreater(planned, POSITIONS * 256)  # K and V of 64 elements in 16 bits
        self.assertLess(planned, 128 << 20)
        self.refusal(2, "plan", *words, "--prompt-len", POSITIONS - NEW + 1)

    def test_score(self):
        lines = harness.write_jsonl(self.folder / "in.jsonl", [{"token_ids": token_ids(PROMPT)}])
        scores = []
        for words in ([], ["--prefill-chunk", PROMPT, *ON_DISK]):
            output = self.folder / "scores.jsonl"
            report = self.report_of("score", "--model", self.llama3, "--tokenizer", "none", "--input", lines, "--output", output,
                                    "--overwrite", *words)
            scores.append(harness.read_jsonl(output))
            self.assertEqual(scores[-1][0]["num_tokens"], PROMPT - 1)
        self.assertEqual(scores[0], scores[1])


if __name__ == "__main__":
    LongContextTest.binary = pathlib.Path(sys.argv.pop(1)).resolve()
    unittest.main()
