#!/usr/bin/env python3
"""Tokens per second under a memory limit far below the model's size: `spillway generate` beside Hugging Face Accelerate's
disk offload and, with --llama-cpp, llama.cpp's memory-mapped file. Same machine, same weights, the same cgroup limit for
all, page cache counted.

  sudo python benchmarks/compare_offload.py path/to/spillway --work /tmp/compare [--model SHAPE --limit BYTES] [--quick]

Needs root (it makes a memory cgroup), and the PyPI packages torch, transformers, accelerate, safetensors and numpy; for
llama.cpp gguf and sentencepiece too. The checkpoint (a shape of compare_transformers.py, seeded) is made under --work
once, and so are the sides' files: four times the model's size on disk in all. --only runs one side, and the others' files
may be deleted then; sides that are not run keep their rows of --output. Accelerate runs in bfloat16 with all threads, in
inference mode, with logits of the last position only (in one product), at each batch size until one does not fit; its
prefill is the first forward pass. With --peer-new-tokens the others decode that many tokens only, and what all of
--new-tokens would take follows from the time of a pass, which hardly grows with the row. llama.cpp runs without its
second copy of the weights (--no-repack), which the limit does not hold. Spillway runs blocks of growing size with the
full cache and with H2O at 20 %, in bfloat16 too unless --cpu-compute says fp32 (which any processor can). Beside each
row stands the bound of a decode pass: its bytes over the disk's rate, as a plain O_DIRECT read of the same store gives it
right behind the row, or FLOPs over the matrix rate that torch's bf16 product of that many rows reaches.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

import llama_cpp  # noqa: E402
import raw_disk  # noqa: E402

KV_FLAGS = {"full": [], "H2O 20 %": ["--kv-policy", "h2o", "--kv-budget", "20%"]}
BATCH_ROWS = {"full": 64, "H2O 20 %": 128}  # staged three times
SIDES = ["spillway", "accelerate", "llama.cpp"]

# --- the limit


class MemoryGroup:
    """A cgroup with a memory limit, version 1 or 2; `command` puts a process into it before it starts."""

    def __init__(self, limit_bytes):
        v2 = pathlib.Path("/sys/fs/cgroup/cgroup.controllers").exists()
        root = pathlib.Path("/sys/fs/cgroup" if v2 else "/sys/fs/cgroup/memory")
        self.folder = root / f"spillway-compare-{os.getpid()}"
        self.folder.mkdir()
        (self.folder / ("memory.max" if v2 else "memory.limit_in_bytes")).write_text(str(limit_bytes))
        # Swap would be a second disk tier; where the kernel does not account for it there is none of it to limit.
        swap = self.folder / ("memory.swap.max" if v2 else "memory.memsw.limit_in_bytes")
        if swap.exists():
            swap.write_text("0" if v2 else str(limit_bytes))

    def command(self, words):
        enter = f"echo $$ > {self.folder}/cgroup.procs && exec \"$@\""
        return ["sh", "-c", enter, "sh", *map(str, words)]

    def close(self):
        """Waits for processes that are ending: a cgroup with one in it cannot be removed."""
        for _ in range(100):
            try:
                return self.folder.rmdir()
            except OSError:
                time.sleep(0.1)
        print(f"compare_offload: {self.folder} still has a process; remove it by hand", file=sys.stderr)


# --- Accelerate, in a process of its own


def accelerate_child(arguments):
    import accelerate
    import torch
    import transformers

    folder, offload, batch, prompt_tokens, new_tokens = arguments
    config = transformers.AutoConfig.from_pretrained(folder)
    with accelerate.init_empty_weights():
        model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    model.tie_weights()
    accelerate.disk_offload(model.eval(), offload, execution_device=torch.device("cpu"))
    generator = torch.Generator().manual_seed(int(batch))
    prompts = torch.randint(4, config.vocab_size, (int(batch), int(prompt_tokens)), generator=generator)

    def next_token(ids, past):
        """Of each row, and the cache. The head gets a contiguous matrix: on a slice of hidden states, which is what the
        model's own logits_to_keep hands it, torch multiplies row by row with as many copies of the weights."""
        output = model.model(ids, past_key_values=past, use_cache=True)
        logits = model.lm_head(output.last_hidden_state[:, -1].contiguous())
        return logits.argmax(-1, keepdim=True), output.past_key_values

    with torch.inference_mode():
        begin = time.perf_counter()
        token, past = next_token(prompts, None)
        middle = time.perf_counter()
        for _ in range(int(new_tokens) - 1):
            token, past = next_token(token, past)
        end = time.perf_counter()
    print(json.dumps({"prefill_s": middle - begin, "decode_s": end - middle}))


def make_offload_folder(checkpoint, offload):
    """The bf16 weights as Accelerate keeps them on disk: one memory-mapped file each."""
    if (offload / "index.json").exists():
        return
    import accelerate.utils
    import safetensors.torch
    import torch

    offload.mkdir(exist_ok=True)
    index = {}
    tied = json.loads((checkpoint / "config.json").read_text())["tie_word_embeddings"]
    for file in sorted(checkpoint.glob("*.safetensors")):
        for name, value in safetensors.torch.load_file(file).items():
            names = [name, "lm_head.weight"] if tied and "embed_tokens" in name else [name]
            for stored in names:
                index = accelerate.utils.offload_weight(value.to(torch.bfloat16), stored, str(offload), index=index)
    accelerate.utils.save_offload_index(index, str(offload))


def accelerate_round(group, checkpoint, offload, batch, args):
    words = [sys.executable, __file__, "--child", checkpoint, offload, batch, args.prompt_tokens, args.peer_new_tokens]
    done = subprocess.run(group.command(words), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or ["killed"])[-1]
        print(f"  accelerate, batch {batch}: does not run in the limit ({last[:100]})", flush=True)
        return None
    times = json.loads(done.stdout.splitlines()[-1])
    return rates_of(batch, times["prefill_s"], times["decode_s"] / (args.peer_new_tokens - 1), args)


def rates_of(batch, prefill_s, pass_s, args):
    decode_s = pass_s * (args.new_tokens - 1)
    row = {
        "rows": batch,
        "decode": batch / pass_s,
        "generated": batch * args.new_tokens / (prefill_s + decode_s),
    }
    print(f"  {row}", flush=True)
    return row


# --- llama.cpp


def leave_page_cache(path):
    """Pages that another program left there are not counted against the group that reads them: they would be memory beyond
    its limit."""
    file = os.open(path, os.O_RDONLY)
    os.fsync(file)
    os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(file)


def llama_cpp_round(group, gguf, batch, args):
    """Its first pass decodes nothing: as many passes as new tokens."""
    leave_page_cache(gguf)
    options = argparse.Namespace(threads=os.cpu_count(), prompt_tokens=args.prompt_tokens, new_tokens=args.peer_new_tokens)
    words = llama_cpp.bench_words(args.llama_cpp, gguf, batch, options)
    done = subprocess.run(
        group.command([*words, "--no-repack"]), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    if done.returncode != 0:
        print(f"  llama.cpp, batch {batch}: does not run in the limit (status {done.returncode})", flush=True)
        return None
    line = llama_cpp.bench_line(done.stdout)
    return rates_of(batch, line["t_pp"], line["t_tg"] / args.peer_new_tokens, args)


# --- spillway


def store_of(offload):
    stores = list(offload.glob("spillway-*.store"))
    if len(stores) != 1:
        sys.exit(f"compare_offload: {offload} holds {len(stores)} stores, and which one these runs read is not known")
    return stores[0] / "weights.bin"


def spillway_round(group, checkpoint, config, rows, kv, args):
    offload = args.work / f"spillway-{args.model}"
    offload.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=args.work) as name:
        place = pathlib.Path(name)
        import compare_transformers
        import torch

        generator = torch.Generator().manual_seed(rows)
        prompts = torch.randint(4, config.vocab_size, (rows, args.prompt_tokens), generator=generator).tolist()
        lines = [{"token_ids": ids, "max_tokens": args.new_tokens, "ignore_eos": True} for ids in prompts]
        (place / "in.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        batch = min(rows, BATCH_ROWS[kv])
        words = [args.binary, "generate", "--model", checkpoint, "--tokenizer", "none", "--quiet"]
        words += ["--input", place / "in.jsonl", "--output", place / "out.jsonl", "--report", place / "report.json"]
        words += ["--offload-dir", offload, "--cpu-memory", args.limit - (256 << 20), "--cpu-compute", args.cpu_compute]
        words += ["--gpu-batch-size", batch, "--num-gpu-batches", (rows + batch - 1) // batch]
        words += KV_FLAGS[kv]
        peak = [sys.executable, "-c", compare_transformers.PEAK_OF_CHILD]
        done = subprocess.run(group.command([*peak, *words]), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        if done.returncode != 0:
            print(f"  spillway, {rows} rows: {done.stderr.strip()[:200]}", flush=True)
            return None
        report = json.loads((place / "report.json").read_text())
    row = {
        "rows": rows,
        "kv": kv,
        "peak_bytes": int(done.stdout) * 1024,
        "cpu_memory_bytes": args.limit - (256 << 20),
        "flops": 2.0 * rows * matrix_parameters(config, report["model"]["num_parameters"]),
        "disk": raw_disk.read_rate(store_of(offload)),
        "decode": report["throughput"]["decode_tokens_per_s"],
        "generated": report["throughput"]["generated_tokens_per_s"],
        "disk_bytes": report["phases"]["decode"]["links"]["disk_read"]["bytes"] / report["phases"]["decode"]["passes"],
        "disk_busy": report["phases"]["decode"]["links"]["disk_read"]["busy_s"] / report["time_s"]["decode"],
        "compute": report["phases"]["decode"]["compute_s"] / report["time_s"]["decode"],
    }
    print(f"  {row}", flush=True)
    return row


def matrix_parameters(config, num_parameters):
    """Parameters that a token is multiplied by."""
    import compare_transformers

    return num_parameters - compare_transformers.looked_up_bytes(config) // 2


# --- the machine


def matrix_rate(rows):
    """FLOPs per second of torch's bf16 product of `rows` rows with matrices that are not in a cache."""
    import torch

    weights = [torch.randn(8192, 2048).bfloat16() for _ in range(8)]
    x = torch.randn(rows, 2048).bfloat16()
    best = 1e9
    for _ in range(4):
        begin = time.perf_counter()
        for weight in weights:
            torch.nn.functional.linear(x, weight)
        best = min(best, time.perf_counter() - begin)
    return 2.0 * rows * 2048 * 8192 * len(weights) / best


def bound(row, matrix):
    """Decode tokens per second that the disk or the matrix rate allows at most, and which of the two."""
    disk_s = row["disk_bytes"] / row["disk"]
    matrix_s = row["flops"] / matrix
    return row["rows"] / max(disk_s, matrix_s), "disk" if disk_s > matrix_s else "compute"


def print_table(result):
    print("| | rows | decode tokens/s | generated tokens/s | bound | disk | disk busy | compute busy | resident over cap |")
    print("|---|---|---|---|---|---|---|---|---|")
    for side, name in (("accelerate", "Accelerate bf16"), ("llama.cpp", "llama.cpp F16")):
        for row in result[side]:
            print(f"| {name} | {row['rows']} | {row['decode']:.2f} | {row['generated']:.2f} | | | | | |")
    for row in result["spillway"]:
        limit, by = row["bound"]
        over = (row["peak_bytes"] - row["cpu_memory_bytes"]) / 2**20
        print(f"| Spillway {result['cpu_compute']}, {row['kv']} | {row['rows']} | {row['decode']:.1f}"
              f" | {row['generated']:.1f} | {limit:.1f} ({by}) | {row['disk'] / 1e9:.2f} GB/s"
              f" | {100 * row['disk_busy']:.0f} % | {100 * row['compute']:.0f} % | {over:.0f} MiB |")
    for side, name in (("accelerate", "Accelerate"), ("llama.cpp", "llama.cpp")):
        print_ratios(result["spillway"], result[side], name)


def print_ratios(ours, theirs, name):
    if not theirs:
        print(f"\n{name} was not run, or runs at none of these sizes in this limit")
        return
    for kv in dict.fromkeys(row["kv"] for row in ours):
        for what in ("decode", "generated"):
            best = max(row[what] for row in ours if row["kv"] == kv)
            print(f"\n{kv}, {what}: {best / max(row[what] for row in theirs):.1f} x {name} at its best batch")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("binary", type=pathlib.Path)
    parser.add_argument("--work", type=pathlib.Path, required=True)
    parser.add_argument("--model", default="opt-1.3b", help="a shape of compare_transformers.py")
    parser.add_argument("--llama-cpp", type=pathlib.Path, help="its source folder, built there in build/")
    parser.add_argument("--only", choices=SIDES, nargs="+", help="sides that are run (all)")
    parser.add_argument("--limit", type=int, default=1536 << 20, help="bytes of memory for each side (1.5 GiB)")
    parser.add_argument("--prompt-tokens", type=int, default=32)
    parser.add_argument("--new-tokens", type=int, default=64)
    parser.add_argument("--peer-new-tokens", type=int, help="tokens that the others decode (all of --new-tokens)")
    parser.add_argument("--peer-batches", type=int, nargs="*", default=[8, 32, 64])
    parser.add_argument("--spillway-rows", type=int, nargs="*", default=[8, 32, 64, 128, 256, 512])
    parser.add_argument("--h2o-rows", type=int, nargs="*", default=[128, 256, 512], help="runs with 20 %% of the KV")
    parser.add_argument("--cpu-compute", choices=["bf16", "fp32"], default="bf16", help="what Spillway computes in")
    parser.add_argument("--quick", action="store_true", help="8 new tokens, two sizes each")
    parser.add_argument("--output", type=pathlib.Path, help="the figures as JSON")
    args = parser.parse_args()
    if args.quick:
        args.new_tokens, args.peer_batches, args.spillway_rows, args.h2o_rows = 8, [8, 32], [32, 64], [64]
    args.peer_new_tokens = args.peer_new_tokens or args.new_tokens
    args.only = args.only or [side for side in SIDES if side != "llama.cpp" or args.llama_cpp]
    if "llama.cpp" in args.only and not args.llama_cpp:
        parser.error("--only llama.cpp: needs --llama-cpp")
    import compare_transformers

    if args.model not in compare_transformers.SHAPES:
        parser.error(f"--model {args.model}: is none of {', '.join(compare_transformers.SHAPES)}")
    args.binary, args.work = args.binary.resolve(), args.work.resolve()
    checkpoint = compare_transformers.checkpoint(args.work, args.model)
    result = {
        "model": args.model, "limit_bytes": args.limit, "prompt_tokens": args.prompt_tokens, "new_tokens": args.new_tokens,
        "peer_new_tokens": args.peer_new_tokens, "cpu_compute": args.cpu_compute, **dict.fromkeys(SIDES, []),
    }
    if args.output and args.output.exists():
        result = json.loads(args.output.read_text())
    group = MemoryGroup(args.limit)
    try:
        result |= {side: [row for row in ROUNDS[side](group, checkpoint, args) if row] for side in args.only}
    finally:
        group.close()
    print(f"limit {args.limit / 2**30:.2f} GiB")
    print_table(result)
    if args.output:
        args.output.write_text(json.dumps(result, indent=2) + "\n")


def spillway_rounds(group, checkpoint, args):
    import transformers

    config = transformers.AutoConfig.from_pretrained(checkpoint)
    settings = [("full", rows) for rows in args.spillway_rows] + [("H2O 20 %", rows) for rows in args.h2o_rows]
    rows = [spillway_round(group, checkpoint, config, rows, kv, args) for kv, rows in settings]
    return [row | {"bound": bound(row, matrix_rate(row["rows"]))} for row in rows if row]


def accelerate_rounds(group, checkpoint, args):
    offload = args.work / f"accelerate-{args.model}-bf16"
    make_offload_folder(checkpoint, offload)
    return [accelerate_round(group, checkpoint, offload, batch, args) for batch in args.peer_batches]


def llama_cpp_rounds(group, checkpoint, args):
    import compare_transformers

    gguf = compare_transformers.gguf_of(args.llama_cpp, args.work, checkpoint)
    return [llama_cpp_round(group, gguf, batch, args) for batch in args.peer_batches]


ROUNDS = {"spillway": spillway_rounds, "accelerate": accelerate_rounds, "llama.cpp": llama_cpp_rounds}


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        accelerate_child(sys.argv[2:])
    else:
        main()
