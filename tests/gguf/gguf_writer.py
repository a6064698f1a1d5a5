"""Writes a Hugging Face folder as a GGUF file, in the way of llama.cpp's converter: names, order of rotated rows, norms of
Gemma, metadata. For tests; standard library only.

  python3 gguf_writer.py FOLDER FILE.gguf [Q8_0]
"""

import array
import json
import math
import pathlib
import random
import struct
import sys

U32, I32, F32, BOOL, TEXT, LIST = 4, 5, 6, 7, 8, 9
TYPES = {"F32": 0, "F16": 1, "Q4_0": 2, "Q4_1": 3, "Q5_0": 6, "Q5_1": 7, "Q8_0": 8, "Q2_K": 10, "Q3_K": 11, "Q4_K": 12, "Q5_K": 13, "Q6_K": 14,
         "BF16": 30, "MXFP4": 39}
# Values and bytes of a block, and where its fp16 are, with values that make weights of about a tenth.
BLOCKS = {"Q4_0": (32, 18, {0: 2**-6}), "Q4_1": (32, 20, {0: 2**-6, 2: -2**-3}), "Q5_0": (32, 22, {0: 2**-7}), "Q5_1": (32, 24, {0: 2**-7, 2: -2**-3}),
          "Q8_0": (32, 34, {0: 2**-10}), "Q2_K": (256, 84, {80: 2**-8, 82: 2**-8}), "Q3_K": (256, 110, {108: 2**-10}),
          "Q4_K": (256, 144, {0: 2**-12, 2: 2**-9}), "Q5_K": (256, 176, {0: 2**-13, 2: 2**-9}), "Q6_K": (256, 210, {208: 2**-15}), "MXFP4": (32, 17, {})}
SIZES = {"F32": 4, "F16": 2, "BF16": 2}
ALIGNMENT = 32
PARTS = {"input_layernorm": "attn_norm", "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
         "self_attn.o_proj": "attn_output", "self_attn.qkv_proj": "attn_qkv", "self_attn.q_norm": "attn_q_norm",
         "self_attn.k_norm": "attn_k_norm", "post_attention_layernorm": "ffn_norm", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up",
         "mlp.gate_up_proj": "ffn_up", "mlp.down_proj": "ffn_down"}
FOUR_NORMS = {"post_attention_layernorm": "post_attention_norm", "pre_feedforward_layernorm": "ffn_norm",
              "post_feedforward_layernorm": "post_ffw_norm"}
TWO_NORMS = {"post_attention_layernorm": "post_attention_norm", "post_feedforward_layernorm": "post_ffw_norm"}
NORMS = {"gemma2": FOUR_NORMS, "gemma3": FOUR_NORMS, "olmo2": TWO_NORMS, "exaone4": TWO_NORMS, "seed_oss": TWO_NORMS,
         "glm4": {"post_self_attn_layernorm": "post_attention_norm", "post_mlp_layernorm": "post_ffw_norm"}}
OF_GPT_OSS = {"post_attention_layernorm": "post_attention_norm", "mlp.router": "ffn_gate_inp"}
OF_EXPERTS = {"block_sparse_moe.gate": "ffn_gate_inp", "block_sparse_moe.router.layer": "ffn_gate_inp", "mlp.gate": "ffn_gate_inp", "mlp.shared_expert_gate": "ffn_gate_inp_shexp",
              "mlp.shared_expert.gate_proj": "ffn_gate_shexp", "mlp.shared_expert.up_proj": "ffn_up_shexp",
              "mlp.shared_expert.down_proj": "ffn_down_shexp"}
EXPERT_PARTS = {"gate_proj": "gate", "up_proj": "up", "down_proj": "down", "w1": "gate", "w3": "up", "w2": "down"}
WHOLE = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}
ARCHITECTURES = {"gemma": "gemma", "gemma2": "gemma2", "gemma3_text": "gemma3", "llama": "llama", "mistral": "llama", "phi3": "phi3",
                 "qwen2": "qwen2", "qwen3": "qwen3", "gpt_oss": "gpt-oss", "mixtral": "llama", "exaone4": "exaone4", "glm4": "glm4",
                 "granite": "granite", "granitemoe": "granitemoe", "granitemoehybrid": "granite", "olmo2": "olmo2", "olmo3": "olmo2", "seed_oss": "seed_oss",
                 "smollm3": "smollm3", "qwen2_moe": "qwen2moe", "qwen3_moe": "qwen3moe"}
PAIRS_TOGETHER = ("granite", "granitemoe", "llama", "smollm3")
FACTORS = {"attention_multiplier": "attention.scale", "embedding_multiplier": "embedding_scale", "residual_multiplier": "residual_scale",
           "logits_scaling": "logit_scale"}
BYTES = [n for n in range(256) if 33 <= n <= 126 or 161 <= n <= 172 or n >= 174]  # that stand for themselves in a vocabulary


def read_tensors(folder):
    """Name -> (type, shape, bytes)."""
    tensors = {}
    for path in sorted(folder.glob("*.safetensors")):
        data = path.read_bytes()
        size = int.from_bytes(data[:8], "little")
        header = json.loads(data[8:8 + size])
        for name, entry in header.items():
            if name != "__metadata__":
                begin, end = entry["data_offsets"]
                tensors[usual_name(name)] = (entry["dtype"], entry["shape"], data[8 + size + begin:8 + size + end])
    return dict(usual_names(tensors))


def usual_names(tensors):
    """Those of Granite's fused matrices as gate and up."""
    for name, (kind, shape, data) in tensors.items():
        prefix, fused, _ = name.partition(".shared_mlp.input_linear")
        if fused:
            for part, rows in zip(("gate", "up"), rows_of(data, 2)):
                yield f"{prefix}.mlp.{part}_proj.weight", (kind, [shape[0] // 2, shape[1]], rows)
        else:
            yield name.replace("shared_mlp.output_linear", "mlp.down_proj"), (kind, shape, data)


def usual_name(name):
    """Stacks of Granite's experts, as those of other models are called."""
    name = name.replace("block_sparse_moe.input_linear.weight", "block_sparse_moe.experts.gate_up_proj")
    return name.replace("block_sparse_moe.output_linear.weight", "block_sparse_moe.experts.down_proj")


def floats(kind, data):
    if kind == "F32":
        return list(array.array("f", data))
    if kind == "F16":
        return list(struct.unpack(f"<{len(data) // 2}e", data))
    return [struct.unpack("<f", bytes(2) + data[i:i + 2])[0] for i in range(0, len(data), 2)]


def pairs_together(shape, data, num_heads):
    """Rows of each head: the first of each half, the second of each half, ..."""
    row_bytes = len(data) // shape[0]
    rows = [data[i:i + row_bytes] for i in range(0, len(data), row_bytes)]
    half = shape[0] // num_heads // 2
    order = [head * 2 * half + part * half + i for head in range(num_heads) for i in range(half) for part in range(2)]
    return b"".join(rows[i] for i in order)


def nearest_half(value):
    return struct.unpack("<e", struct.pack("<e", value))[0]


def q8_0(values):
    """Blocks of 32: a scale of 16 bits, and codes."""
    blocks = []
    for begin in range(0, len(values), 32):
        block = values[begin:begin + 32]
        scale = max(abs(value) for value in block) / 127
        codes = [round(value / scale) if scale else 0 for value in block]
        blocks.append(struct.pack("<e32b", scale, *codes))
    return b"".join(blocks)


def any_blocks(kind, count, name):
    """Blocks of any codes for `count` values, always the same of one name."""
    values, size, factors = BLOCKS[kind]
    drawn = random.Random(name)
    blocks = []
    for _ in range(count // values):
        block = bytearray(drawn.randbytes(size))
        for at, factor in factors.items():
            block[at:at + 2] = struct.pack("<e", factor * drawn.choice((0.5, 0.75, 1.0)))
        if kind == "MXFP4":  # a power of two in front, from 2^-8 to 2^-6
            block[0] = drawn.choice((119, 120, 121))
        blocks.append(bytes(block))
    return b"".join(blocks)


def text(value):
    data = value.encode("utf-8")
    return struct.pack("<Q", len(data)) + data


def typed(value):
    """A value with its type in front; of a list its elements' type."""
    if isinstance(value, bool):
        return BOOL, struct.pack("<B", value)
    if isinstance(value, int):
        return U32, struct.pack("<I", value)
    if isinstance(value, float):
        return F32, struct.pack("<f", value)
    if isinstance(value, str):
        return TEXT, text(value)
    kind = {str: TEXT, int: I32, float: F32, bool: BOOL}[type(value[0])]
    parts = [text(item) if kind == TEXT else struct.pack({I32: "<i", F32: "<f", BOOL: "<B"}[kind], item) for item in value]
    return LIST, struct.pack("<IQ", kind, len(value)) + b"".join(parts)


def encoded(values, tensors):
    """A file's bytes. `tensors`: (name, shape, type's number, bytes)."""
    head = [b"GGUF", struct.pack("<IQQ", 3, len(tensors), len(values))]
    for name, value in values.items():
        kind, data = typed(value)
        head += [text(name), struct.pack("<I", kind), data]
    offset, body = 0, []
    for name, shape, kind, data in tensors:
        head += [text(name), struct.pack(f"<I{len(shape)}Q", len(shape), *reversed(shape)), struct.pack("<IQ", kind, offset)]
        padded = data + bytes(-len(data) % ALIGNMENT)
        body.append(padded)
        offset += len(padded)
    start = b"".join(head)
    return start + bytes(-len(start) % ALIGNMENT) + b"".join(body)


def rope_of(config):
    return config.get("rope_scaling") or config.get("rope_parameters") or {}


def rope_values(config, head_dim):
    rope = rope_of(config)
    yield "rope.freq_base", float(config.get("rope_theta", rope.get("rope_theta", 10000.0)))
    yield "rope.dimension_count", int(head_dim * config.get("partial_rotary_factor", 1.0))
    kind = rope.get("rope_type", rope.get("type", "default"))
    if kind in ("linear", "yarn"):
        yield "rope.scaling.type", kind
        yield "rope.scaling.factor", float(rope["factor"])
        if "original_max_position_embeddings" in rope:
            yield "rope.scaling.original_context_length", rope["original_max_position_embeddings"]
        for key, own in (("attention_factor", "yarn_attn_factor"), ("beta_fast", "yarn_beta_fast"), ("beta_slow", "yarn_beta_slow")):
            if key in rope:
                yield f"rope.scaling.{own}", float(rope[key])
    original = config.get("original_max_position_embeddings")
    if original:
        yield "rope.scaling.original_context_length", original
        factor = config["max_position_embeddings"] / original
        yield "rope.scaling.attn_factor", math.sqrt(1 + math.log(factor) / math.log(original))


def model_values(config):
    name = ARCHITECTURES[config["model_type"]]
    heads = config["num_attention_heads"]
    head_dim = config.get("head_dim") or config["hidden_size"] // heads
    values = {"context_length": config["max_position_embeddings"], "embedding_length": config["hidden_size"],
              "block_count": config["num_hidden_layers"], "feed_forward_length": config["intermediate_size"],
              "attention.head_count": heads, "attention.head_count_kv": config.get("num_key_value_heads", heads),
              "attention.layer_norm_rms_epsilon": float(config.get("rms_norm_eps", 1e-6))}
    if not name.startswith("granite"):
        values |= {"attention.key_length": head_dim, "attention.value_length": head_dim}
    if config.get("sliding_window"):
        values["attention.sliding_window"] = config["sliding_window"]
        if name in ("exaone4", "olmo2") and "layer_types" in config:
            values["attention.sliding_window_pattern"] = [kind == "sliding_attention" for kind in config["layer_types"]]
    if config["model_type"] == "granitemoehybrid":  # which the converter writes with the keys of layers that it has not got
        values |= {"attention.head_count_kv": [config["num_key_value_heads"]] * config["num_hidden_layers"],
                   "feed_forward_length": config["shared_intermediate_size"], "expert_count": 0, "expert_used_count": 0,
                   "expert_shared_feed_forward_length": config["shared_intermediate_size"], "rope.scaling.finetuned": True,
                   "ssm.conv_kernel": 4, "ssm.state_size": 256, "ssm.group_count": 1, "ssm.inner_size": 128}
    elif "num_experts_per_tok" in config:
        values |= {"expert_count": config.get("num_local_experts") or config["num_experts"], "expert_used_count": config["num_experts_per_tok"]}
        if config["model_type"] != "mixtral":
            values["expert_feed_forward_length"] = config.get("moe_intermediate_size", config["intermediate_size"])
    if "shared_expert_intermediate_size" in config:
        values["expert_shared_feed_forward_length"] = config["shared_expert_intermediate_size"]
    for key, value in (("attn_logit_softcapping", config.get("attn_logit_softcapping")),
                       ("final_logit_softcapping", config.get("final_logit_softcapping"))):
        if value:
            values[key] = float(value)
    if name.startswith("granite"):
        values |= {own: float(config[key]) for key, own in FACTORS.items() if key in config}
    values |= dict(rope_values(config, head_dim))
    return {"general.architecture": name} | {f"{name}.{key}": value for key, value in values.items()}


def token_values(folder, config):
    """The byte-level BPE of a folder with vocab.json and merges.txt."""
    ids = json.loads((folder / "vocab.json").read_text(encoding="utf-8"))
    size = config["vocab_size"]
    tokens, types = [f"[PAD{n}]" for n in range(size)], [5] * size  # unused
    for token, n in ids.items():
        tokens[n], types[n] = token, 1
    settings = json.loads((folder / "tokenizer_config.json").read_text(encoding="utf-8"))
    merges = [line for line in (folder / "merges.txt").read_text(encoding="utf-8").splitlines() if line and not line.startswith("#version")]
    return {"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "gpt-2", "tokenizer.ggml.tokens": tokens,
            "tokenizer.ggml.token_type": types, "tokenizer.ggml.merges": merges, "tokenizer.ggml.bos_token_id": config["bos_token_id"],
            "tokenizer.ggml.eos_token_id": config["eos_token_id"], "tokenizer.ggml.add_bos_token": settings.get("add_bos_token", False)}


def gguf_name(architecture, name):
    stem, _, kind = name.rpartition(".")
    if stem in WHOLE:
        return f"{WHOLE[stem]}.{kind}"
    _, _, layer, part = stem.split(".", 3)
    if part == "self_attn":
        return f"blk.{layer}.attn_sinks.weight"
    parts = PARTS | OF_EXPERTS | NORMS.get(architecture, OF_GPT_OSS if architecture == "gpt-oss" else {})
    return f"blk.{layer}.{parts[part]}.{kind}"


def converted(config, name, tensor, coded):
    """(name, shape, type's number, bytes) of a published tensor. `coded`: True, its values in Q8_0; {part of a name: type}, any codes
    of that type."""
    kind, shape, data = tensor
    architecture = ARCHITECTURES[config["model_type"]]
    own = gguf_name(architecture, name)
    if architecture in PAIRS_TOGETHER and (".attn_q." in own or ".attn_k." in own):
        heads = config["num_attention_heads"]
        data = pairs_together(shape, data, config.get("num_key_value_heads", heads) if ".attn_k." in own else heads)
    if len(shape) == 1 or shape[0] == 1:
        shape = shape[-1:]
        more = 1.0 if architecture.startswith("gemma") and "norm" in own else 0.0
        data = array.array("f", [value + more for value in floats(kind, data)]).tobytes()
        return own, shape, TYPES["F32"], data
    return in_type(own, kind, shape, data, coded)


def in_type(own, kind, shape, data, coded):
    """`converted`'s result for a matrix, or a stack of some, whose name and order are the file's."""
    if isinstance(coded, dict):
        types = [of for part, of in coded.items() if part in own]
        if not types:
            return own, shape, TYPES[kind], data
        return own, shape, TYPES[types[0]], any_blocks(types[0], math.prod(shape), own)
    if coded and shape[-1] % 32 == 0:
        return own, shape, TYPES["Q8_0"], q8_0(floats(kind, data))
    return own, shape, TYPES[kind], data


def mxfp4(blocks, scales):
    """Blocks of 32: a scale of 8 bits, and codes: the first 16 in the low halves of the bytes."""
    out = []
    for group, scale in enumerate(scales):
        block = blocks[16 * group:16 * group + 16]
        codes = [code for byte in block for code in (byte & 15, byte >> 4)]
        out.append(bytes([scale]) + bytes(codes[i] | codes[i + 16] << 4 for i in range(16)))
    return b"".join(out)


def rows_of(data, num_rows):
    size = len(data) // num_rows
    return [data[i:i + size] for i in range(0, len(data), size)]


def by_outputs(shape, data, width):
    """Rows of a stack of matrices that is published with a row for each input; elements of `width` bytes."""
    _, inputs, outputs = shape
    matrices = rows_of(data, shape[0])
    return [b"".join(matrix[(row * outputs + out) * width:][:width] for row in range(inputs)) for matrix in matrices for out in range(outputs)]


def experts_of(name, tensor, scales):
    """(part of the name, rows, elements of a row, type's number) of a stack of gpt-oss's experts: of biases a row is one."""
    kind, shape, data = tensor
    if name.endswith("_blocks"):
        outputs, groups = shape[0] * shape[1], shape[2]
        return name[:-7], [mxfp4(b, s) for b, s in zip(rows_of(data, outputs), rows_of(scales, outputs))], [32 * groups], "MXFP4"
    if name.endswith("_bias"):
        return name[:-5], rows_of(array.array("f", floats(kind, data)).tobytes(), shape[0] * shape[1]), [], "F32"
    return name, by_outputs(shape, data, SIZES[kind]), [shape[1]], kind


def converted_experts(config, tensors):
    """Stacks of gate, up and down, of which gate and up are published as one with their rows in turns."""
    for name in sorted(tensors):
        prefix, is_stack, stack = name.partition(".mlp.experts.")
        if not is_stack or name.endswith("_scales"):
            continue
        part, rows, inner, kind = experts_of(stack, tensors[name], tensors.get(name.replace("_blocks", "_scales"), (0, 0, 0))[2])
        ending = "bias" if stack.endswith("_bias") else "weight"
        parts = [("gate", rows[::2]), ("up", rows[1::2])] if part == "gate_up_proj" else [("down", rows)]
        for own, of_part in parts:
            shape = [config["num_local_experts"], len(of_part) // config["num_local_experts"], *inner]
            yield f"blk.{prefix.split('.')[2]}.ffn_{own}_exps.{ending}", shape, TYPES[kind], b"".join(of_part)


def lone_experts(tensors):
    """{(layer, part): [(type, shape, bytes) of each expert]} of Mixtral's and Qwen's experts, published each by itself or in stacks."""
    found = {}
    for name, (kind, shape, data) in tensors.items():
        prefix, is_expert, own = name.partition(".experts.")
        if not is_expert:
            continue
        layer = prefix.split(".")[2]
        if own[0].isdigit():
            number, part, _ = own.split(".")
            found.setdefault((layer, EXPERT_PARTS[part]), {})[int(number)] = kind, shape, data
            continue
        for number, matrix in enumerate(rows_of(data, shape[0])):
            halves = zip(("gate", "up"), rows_of(matrix, 2)) if own == "gate_up_proj" else [("down", matrix)]
            for part, half in halves:
                found.setdefault((layer, part), {})[number] = kind, [shape[1] // (2 if part != "down" else 1), shape[2]], half
    return {key: [experts[number] for number in sorted(experts)] for key, experts in found.items()}


def converted_lone_experts(tensors, coded, apart):
    """A stack of each matrix; or, `apart`, each expert's by itself, as the files of 2023 have them."""
    for (layer, part), experts in sorted(lone_experts(tensors).items()):
        kind, shape, _ = experts[0]
        for number, (_, _, data) in enumerate(experts if apart else []):
            yield in_type(f"blk.{layer}.ffn_{part}.{number}.weight", kind, shape, data, coded)
        if not apart:
            stack = b"".join(data for _, _, data in experts)
            yield in_type(f"blk.{layer}.ffn_{part}_exps.weight", kind, [len(experts), *shape], stack, coded)


def llama3_factors(config, rope):
    """What each pair of a head is turned slower by."""
    pairs = (config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]) // 2
    low, high, original = rope["low_freq_factor"], rope["high_freq_factor"], rope["original_max_position_embeddings"]
    for pair in range(pairs):
        wave = 2 * math.pi * config["rope_theta"] ** (pair / pairs)
        smooth = min(1.0, max(0.0, (original / wave - low) / (high - low)))
        yield 1 / ((1 - smooth) / rope["factor"] + smooth)


def extra_tensors(config):
    """Factors of llama3's scaling and of longrope."""
    rope = rope_of(config)
    if rope.get("rope_type") == "llama3":
        factors = array.array("f", llama3_factors(config, rope))
        yield "rope_freqs.weight", [len(factors)], TYPES["F32"], factors.tobytes()
    for key in ("long", "short"):
        if f"{key}_factor" in rope:
            factors = array.array("f", rope[f"{key}_factor"])
            yield f"rope_factors_{key}.weight", [len(factors)], TYPES["F32"], factors.tobytes()


def read(folder, coded, changed, apart=False):
    """(metadata, tensors) of a folder."""
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    found = read_tensors(folder)
    plain = {name: tensor for name, tensor in found.items() if ".experts." not in name}
    tensors = [converted(config, name, tensor, coded) for name, tensor in sorted(plain.items())]
    if config["model_type"] == "gpt_oss":
        tensors += converted_experts(config, found)
    else:
        tensors += converted_lone_experts(found, coded, apart)
    values = model_values(config) | token_values(folder, config) | (changed or {})
    return {key: value for key, value in values.items() if value is not None}, [*tensors, *extra_tensors(config)]


def convert(folder, path, coded=False, changed=None, apart=False):
    """`changed`: metadata in place of, or besides, the model's; None leaves a value out. `apart`: each expert's matrices by themselves."""
    path.write_bytes(encoded(*read(folder, coded, changed, apart)))


def split(folder, stem, count):
    """Writes `count` files that are parts of one; their paths. The first has the metadata."""
    values, tensors = read(folder, False, None)
    paths = [stem.with_name(f"{stem.name}-{n:05}-of-{count:05}.gguf") for n in range(1, count + 1)]
    for n, path in enumerate(paths):
        part = {"split.no": n, "split.count": count, "split.tensors.count": len(tensors)}
        path.write_bytes(encoded((values if n == 0 else {}) | part, tensors[n::count]))
    return paths


if __name__ == "__main__":
    convert(pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), sys.argv[3:] == ["Q8_0"])
