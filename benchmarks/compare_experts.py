#!/usr/bin/env python3
"""Tokens per second of a mixture of experts under a memory limit below its size: `spillway bench` beside llama.cpp's
memory-mapped file, in the same cgroup, page cache counted. Weights are random, of 4 bits in both.

  sudo python benchmarks/compare_experts.py path/to/spillway --llama-cpp SOURCE --work /tmp/compare [--layers N --limit BYTES]

Needs root (it makes a memory cgroup), llama.cpp's source folder, built there in build/, and the PyPI packages gguf and
numpy. The shape is that of Qwen3-30B-A3B with fewer layers: a folder with its config.json for Spillway, and a GGUF file of
Q4_0 for llama.cpp, made under --work once. llama.cpp runs at each of --peer-batches until one does not fit, without its
second copy of the weights (--no-repack), which the limit does not hold; with --peer-new-tokens it decodes that many tokens
only, and what all of --new-tokens would take follows from the time of a pass. --cpu-memory is 256 MiB below the limit.
"""

import argparse
import json
import pathlib
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

import compare_offload  # noqa: E402

BELOW_LIMIT = 256 << 20
SHAPE = {
    "model_type": "qwen3_moe", "hidden_size": 2048, "num_attention_heads": 32, "num_key_value_heads": 4, "head_dim": 128,
    "intermediate_size": 6144, "moe_intermediate_size": 768, "num_experts": 128, "num_experts_per_tok": 8, "norm_topk_prob": True,
    "decoder_sparse_step": 1, "mlp_only_layers": [], "vocab_size": 151936, "max_position_embeddings": 40960, "rope_theta": 1e6,
    "rms_norm_eps": 1e-6, "tie_word_embeddings": False, "torch_dtype": "bfloat16", "hidden_act": "silu",
}


def config_folder(args):
    folder = args.work / f"experts-{args.layers}"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(SHAPE | {"num_hidden_layers": args.layers}))
    return folder


# --- the file for llama.cpp


def layer_matrices(layer):
    """(name, rows, columns, experts or 0) as llama.cpp calls them."""
    hidden, ffn, experts = SHAPE["hidden_size"], SHAPE["moe_intermediate_size"], SHAPE["num_experts"]
    q = SHAPE["num_attention_heads"] * SHAPE["head_dim"]
    kv = SHAPE["num_key_value_heads"] * SHAPE["head_dim"]
    for name, rows, cols, count in (("attn_q", q, hidden, 0), ("attn_k", kv, hidden, 0), ("attn_v", kv, hidden, 0), ("attn_output", hidden, q, 0),
                                    ("ffn_gate_exps", ffn, hidden, experts), ("ffn_up_exps", ffn, hidden, experts),
                                    ("ffn_down_exps", hidden, ffn, experts)):
        yield f"blk.{layer}.{name}.weight", rows, cols, count


def q4_0(rows, cols, rng):
    """Random blocks: 18 bytes of 32 weights, a scale of fp16 first, of weights about 0.02 from zero."""
    import numpy

    data = rng.integers(0, 256, (rows, cols // 32 * 18), dtype=numpy.uint8)
    scale = numpy.frombuffer(numpy.float16(0.005).tobytes(), dtype=numpy.uint8)
    data[:, 0::18], data[:, 1::18] = scale[0], scale[1]
    return data


def gguf_values(writer, layers):
    writer.add_context_length(SHAPE["max_position_embeddings"])
    writer.add_embedding_length(SHAPE["hidden_size"])
    writer.add_block_count(layers)
    writer.add_feed_forward_length(SHAPE["intermediate_size"])
    writer.add_expert_feed_forward_length(SHAPE["moe_intermediate_size"])
    writer.add_expert_count(SHAPE["num_experts"])
    writer.add_expert_used_count(SHAPE["num_experts_per_tok"])
    writer.add_head_count(SHAPE["num_attention_heads"])
    writer.add_head_count_kv(SHAPE["num_key_value_heads"])
    writer.add_key_length(SHAPE["head_dim"])
    writer.add_value_length(SHAPE["head_dim"])
    writer.add_rope_freq_base(SHAPE["rope_theta"])
    writer.add_layer_norm_rms_eps(SHAPE["rms_norm_eps"])
    writer.add_tokenizer_model("no_vocab")
    writer.add_vocab_size(SHAPE["vocab_size"])


def make_gguf(path, layers):
    if path.exists():
        return
    import gguf
    import numpy

    rng = numpy.random.default_rng(1)
    part = path.with_suffix(".part")
    writer = gguf.GGUFWriter(part, "qwen3moe", use_temp_file=True)
    gguf_values(writer, layers)
    coded = {"raw_dtype": gguf.GGMLQuantizationType.Q4_0}

    def add_norm(name, size):
        writer.add_tensor(f"{name}.weight", numpy.ones(size, dtype=numpy.float32))

    for name in ("token_embd.weight", "output.weight"):
        writer.add_tensor(name, q4_0(SHAPE["vocab_size"], SHAPE["hidden_size"], rng), **coded)
    add_norm("output_norm", SHAPE["hidden_size"])
    for layer in range(layers):
        for name, rows, cols, count in layer_matrices(layer):
            data = q4_0(rows * max(1, count), cols, rng)
            writer.add_tensor(name, data.reshape(count, rows, -1) if count else data, **coded)
        router = rng.standard_normal((SHAPE["num_experts"], SHAPE["hidden_size"]), dtype=numpy.float32) * numpy.float32(0.02)
        writer.add_tensor(f"blk.{layer}.ffn_gate_inp.weight", router)
        for name, size in (("attn_norm", SHAPE["hidden_size"]), ("ffn_norm", SHAPE["hidden_size"]),
                           ("attn_q_norm", SHAPE["head_dim"]), ("attn_k_norm", SHAPE["head_dim"])):
            add_norm(f"blk.{layer}.{name}", size)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    part.rename(path)


# --- the sides


def spillway_round(group, folder, rows, args):
    report = args.work / "report.json"
    words = [args.binary, "bench", "--model", folder, "--dummy-weights", "--weight-bits", 4, "--kv-bits", args.kv_bits, "--quiet"]
    words += ["--cpu-compute", args.cpu_compute]
    words += ["--cpu-memory", args.limit - BELOW_LIMIT, "--prompt-len", args.prompt_tokens, "--gen-len", args.new_tokens]
    words += ["--num-requests", rows, "--offload-dir", args.work, "--report", report]
    done = subprocess.run(group.command(words), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    if done.returncode != 0:
        print(f"  spillway, {rows} rows: {done.stderr.strip()[:200]}", flush=True)
        return None
    read = json.loads(report.read_text())
    decode = read["phases"]["decode"]
    disk = decode["links"]["disk_read"]
    seconds = read["time_s"]["decode"]
    row = {
        "rows": rows,
        "decode": read["throughput"]["decode_tokens_per_s"],
        "generated": read["throughput"]["generated_tokens_per_s"],
        "bytes_a_pass": disk["bytes"] / decode["passes"],
        "weight_bytes_on_disk": read["placement"]["weights"]["realised"]["disk"] * read["model"]["weight_bytes"],
        "compute_busy": decode["compute_s"] / seconds,
        "disk_busy": disk["busy_s"] / seconds,
    }
    print(f"  spillway {json.dumps(row)}", flush=True)
    return row


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("binary", type=pathlib.Path)
    parser.add_argument("--llama-cpp", type=pathlib.Path, help="its source folder, built there in build/; without it Spillway runs alone")
    parser.add_argument("--work", type=pathlib.Path, required=True)
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--limit", type=int, default=1456 << 20)
    parser.add_argument("--rows", type=int, nargs="+", default=[512])
    parser.add_argument("--peer-batches", type=int, nargs="+", default=[1, 8, 32, 64, 128])
    parser.add_argument("--prompt-tokens", type=int, default=32)
    parser.add_argument("--new-tokens", type=int, default=64)
    parser.add_argument("--peer-new-tokens", type=int, default=8)
    parser.add_argument("--kv-bits", default="8")
    parser.add_argument("--cpu-compute", choices=["fp32", "int8"], default="fp32", help="Spillway's; llama.cpp rounds to 8 bits beside codes")
    parser.add_argument("--output", type=pathlib.Path)
    args = parser.parse_args()
    args.binary, args.work = args.binary.resolve(), args.work.resolve()
    folder = config_folder(args)
    rows = {"spillway": [], "llama.cpp": []}
    if args.llama_cpp:
        gguf = args.work / f"experts-{args.layers}.gguf"
        make_gguf(gguf, args.layers)
    group = compare_offload.MemoryGroup(args.limit)
    try:
        rows["spillway"] = [row for count in args.rows if (row := spillway_round(group, folder, count, args))]
        for batch in args.peer_batches if args.llama_cpp else []:
            row = compare_offload.llama_cpp_round(group, gguf, batch, args)
            if row is None:
                break
            rows["llama.cpp"].append(row)
    finally:
        group.close()
    if all(rows.values()):
        best = {side: max(row["generated"] for row in found) for side, found in rows.items()}
        print(f"generated: {best['spillway']:.1f} beside {best['llama.cpp']:.2f} tokens/s, {best['spillway'] / best['llama.cpp']:.1f} x")
    if args.output:
        args.output.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
