#!/usr/bin/env python3
"""Tokens per second of `spillway generate` beside transformers: same machine, same weights, same prompts, one run.

  python benchmarks/compare_transformers.py path/to/spillway --work /tmp/compare [--quick] [--models NAME|FOLDER ...]

Needs the PyPI packages torch, transformers, safetensors and numpy, 12 GiB of memory and 3 GiB of disk under --work for
a shape of 1.3 G parameters. A seeded fp16 checkpoint of each named shape is made under --work once; a folder is used as
it is. With --llama-cpp (the source folder of llama.cpp, built there in build/) the decode of its llama-batched-bench on
the same checkpoint in F16 stands beside; needs the PyPI packages gguf and sentencepiece. The reference runs in float32
and in bfloat16 with all threads, in inference mode, with logits of the last position only, after a warm-up, with the faster of its
attention implementations; its rounds and spillway's alternate, and the best round of each counts. Where the processor
can, spillway runs with --cpu-compute bf16 too. Decode is compared with the faster reference, prefill with the one that
computes in the same type. Also measured in the same run: how fast this machine reads memory, in turns with spillway's
decode at batch 1, and spillway's peak memory against weights + KV. When other programs use the processor meanwhile, the
table says that it is no measurement, and the exit status is 1.
"""

import argparse
import dataclasses
import datetime
import gc
import json
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

import safetensors.torch
import torch
import transformers

import llama_cpp
import origin
from other_programs import QUIET_FRAC, OtherPrograms

REPOSITORY = pathlib.Path(__file__).resolve().parents[1]
OPT = {"vocab_size": 50272, "max_position_embeddings": 2048}
SHAPES = {
    "opt-125m": transformers.OPTConfig(
        hidden_size=768, ffn_dim=3072, num_hidden_layers=12, num_attention_heads=12, **OPT
    ),
    "opt-1.3b": transformers.OPTConfig(
        hidden_size=2048, ffn_dim=8192, num_hidden_layers=24, num_attention_heads=32, **OPT
    ),
    "llama-3.2-1b": transformers.LlamaConfig(
        vocab_size=128256, max_position_embeddings=131072, hidden_size=2048, intermediate_size=8192,
        num_hidden_layers=16, num_attention_heads=32, num_key_value_heads=8, head_dim=64, tie_word_embeddings=True,
    ),
    "llama-3.1-8b": transformers.LlamaConfig(
        vocab_size=128256, max_position_embeddings=131072, hidden_size=4096, intermediate_size=14336,
        num_hidden_layers=32, num_attention_heads=32, num_key_value_heads=8, head_dim=128, tie_word_embeddings=False,
    ),
}
MEASURED = ["opt-125m", "opt-1.3b", "llama-3.2-1b"]
SHARD_BYTES = 2 << 30
TOKENIZER_FILES = ("vocab.json", "merges.txt", "tokenizer_config.json", "special_tokens_map.json")
REFERENCES = {"fp32": torch.float32, "bf16": torch.bfloat16}
PEERS = ["llama.cpp"]
OURS = {"spillway": "fp32", "spillway bf16": "bf16"}  # what each computes in
ATTENTION = ["sdpa", "eager"]
CALIBRATION_TOKENS = 6
DECODE_GOAL, PREFILL_GOAL, READ_GOAL = 1.5, 1.0, 0.85
MEMORY_SLACK_BYTES = 200 << 20
READ_TURNS = 7


@dataclasses.dataclass
class Rate:
    """Tokens per second of one engine at one batch size: the best of the rounds so far."""

    prefill: float = 0.0
    decode: float = 0.0
    note: str = ""

    def keep_best(self, other):
        self.prefill = max(self.prefill, other.prefill)
        self.decode = max(self.decode, other.decode)
        self.note = other.note or self.note


# --- weights and prompts


def checkpoint(work, name):
    """The folder of a seeded fp16 checkpoint, made when it is not there; a name that is a folder stands for itself."""
    if pathlib.Path(name).is_dir():
        return pathlib.Path(name)
    folder = work / name
    if (folder / "model.safetensors.index.json").exists():
        return folder
    print(f"making {folder}", flush=True)
    folder.mkdir(parents=True, exist_ok=True)
    config = SHAPES[name]
    config.dtype = "float16"
    with torch.device("meta"):
        model = transformers.AutoModelForCausalLM.from_config(config)
    config.architectures = [type(model).__name__]
    config.save_pretrained(folder)
    for file in TOKENIZER_FILES:
        shutil.copy(REPOSITORY / "examples" / "tales-opt-8m" / file, folder)
    write_shards(folder, list(model.named_parameters()))
    return folder


def write_shards(folder, parameters):
    """Seeded weights in files of about SHARD_BYTES, and their index last."""
    generator = torch.Generator().manual_seed(0)
    shards = [[]]
    size = 0
    for parameter in parameters:
        shards[-1].append(parameter)
        size += parameter[1].numel() * 2
        if size > SHARD_BYTES * len(shards):
            shards.append([])
    place_of = {}
    for number, shard in enumerate(filter(None, shards), 1):
        file = f"model-{number:05}.safetensors"
        state = {key: initial(key, value.shape, generator) for key, value in shard}
        safetensors.torch.save_file(state, folder / file, metadata={"format": "pt"})
        place_of |= dict.fromkeys(state, file)
    index = {"metadata": {"total_size": size}, "weight_map": place_of}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))


def initial(name, shape, generator):
    if "norm.weight" in name:
        return torch.ones(shape, dtype=torch.float16)
    return (0.02 * torch.randn(shape, generator=generator)).half()


def make_prompts(batch, length, vocab_size):
    generator = torch.Generator().manual_seed(batch)
    return torch.randint(4, vocab_size, (batch, length), generator=generator)


# --- the reference


def load_reference(folder, dtype):
    return transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=dtype, attn_implementation="sdpa").eval()


@torch.inference_mode()
def reference_round(model, prompts, new_tokens):
    """(Rate, generated ids) of one greedy generation of `new_tokens` tokens a row."""
    begin = time.perf_counter()
    output = model(prompts, use_cache=True, logits_to_keep=1)
    token = output.logits[:, -1].argmax(-1, keepdim=True)
    middle = time.perf_counter()
    tokens = [token]
    for _ in range(new_tokens - 1):
        output = model(token, past_key_values=output.past_key_values, use_cache=True, logits_to_keep=1)
        token = output.logits[:, -1].argmax(-1, keepdim=True)
        tokens.append(token)
    end = time.perf_counter()
    rate = Rate(prompts.numel() / (middle - begin), prompts.shape[0] * (new_tokens - 1) / (end - middle))
    return rate, torch.cat(tokens, 1).tolist()


def choose_attention(model, prompts):
    """Warms up and leaves the model with the implementation that decodes faster."""
    decode = {}
    for name in ATTENTION:
        model.set_attn_implementation(name)
        reference_round(model, prompts, CALIBRATION_TOKENS)
        decode[name] = reference_round(model, prompts, CALIBRATION_TOKENS)[0].decode
    best = max(decode, key=decode.get)
    model.set_attn_implementation(best)
    return best


# --- spillway

# Runs a command and prints its peak in KiB. A process of its own: a child starts with its parent's peak, and this
# script's is that of the reference models.
PEAK_OF_CHILD = """
import resource, subprocess, sys
status = subprocess.run(sys.argv[1:]).returncode
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
sys.exit(status)
"""


@dataclasses.dataclass
class SpillwayRun:
    rate: Rate
    tokens: list
    report: dict
    peak_bytes: int


def computes_in_bf16(binary):
    done = subprocess.run([binary, "plan", "--model", "opt-125m", "--cpu-compute", "bf16"], capture_output=True)
    return done.returncode == 0


def spillway_round(binary, folder, prompts, new_tokens, threads, cpu_compute):
    with tempfile.TemporaryDirectory() as name:
        place = pathlib.Path(name)
        requests = [{"token_ids": ids, "max_tokens": new_tokens, "ignore_eos": True} for ids in prompts.tolist()]
        (place / "in.jsonl").write_text("".join(json.dumps(request) + "\n" for request in requests))
        words = [binary, "generate", "--model", folder, "--input", place / "in.jsonl", "--output", place / "out.jsonl"]
        words += ["--report", place / "report.json", "--quiet", "--gpu-batch-size", prompts.shape[0]]
        words += ["--threads", threads, "--cpu-compute", cpu_compute]
        done = subprocess.run([sys.executable, "-c", PEAK_OF_CHILD, *map(str, words)], stdout=subprocess.PIPE, text=True)
        if done.returncode != 0:
            sys.exit(f"spillway ended with status {done.returncode}")
        report = json.loads((place / "report.json").read_text())
        lines = [json.loads(line) for line in (place / "out.jsonl").read_text().splitlines()]
    tokens = [line["response"]["body"]["choices"][0]["token_ids"] for line in lines]
    throughput = report["throughput"]
    rate = Rate(throughput["prefill_tokens_per_s"], throughput["decode_tokens_per_s"])
    return SpillwayRun(rate, tokens, report, int(done.stdout) * 1024)


# --- llama.cpp


# Runs the converter, which refuses tokenizers that it does not know: a shape's is of no account.
CONVERT = """
import conversion.base, convert_hf_to_gguf
known = conversion.base.TextModel.get_vocab_base_pre
def base_pre(self, tokenizer):
    try:
        return known(self, tokenizer)
    except NotImplementedError:
        return "gpt-2"
conversion.base.TextModel.get_vocab_base_pre = base_pre
convert_hf_to_gguf.main()
"""


def gguf_of(source, work, folder):
    """The checkpoint in F16 as llama.cpp reads it, made once by the converter of llama.cpp's own `source` folder."""
    file = work / f"{folder.name}-f16.gguf"
    if not file.exists():
        words = [sys.executable, "-c", CONVERT, folder, "--outtype", "f16", "--outfile", file.with_suffix(".part")]
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        subprocess.run([str(word) for word in words], check=True, cwd=source, **quiet)
        file.with_suffix(".part").rename(file)
    return file


def llama_cpp_round(source, gguf, batch, options):
    words = llama_cpp.bench_words(source, gguf, batch, options)
    line = llama_cpp.bench_line(subprocess.run(words, capture_output=True, text=True, check=True).stdout)
    return Rate(line["speed_pp"], line["speed_tg"])


# --- the machine


def memory_read_bytes_per_s(buffer, seconds):
    """The mean of `seconds` of summing a buffer with all threads: no cache holds it, and a sum only reads."""
    begin = time.perf_counter()
    read = 0
    while time.perf_counter() - begin < seconds:
        buffer.sum()
        read += buffer.nbytes
    return read / (time.perf_counter() - begin)


# --- one cell of the table: a model at a batch size


def looked_up_bytes(config):
    """Bytes of the tables of which a token reads one line: positions, and embeddings that the head does not share."""
    positions = config.max_position_embeddings + 2 if config.model_type == "opt" else 0
    embeddings = 0 if config.tie_word_embeddings else config.vocab_size
    return (positions + embeddings) * config.hidden_size * 2


def read_turns(decode_weight_rate, seconds):
    """[(bytes/s of weights that a decode reads, bytes/s of the memory right before and right behind it, their mean)].

    A shared machine's memory has from one second to the next half as much again, and then not.
    """
    buffer = torch.ones(1 << 28, dtype=torch.int64)
    before = memory_read_bytes_per_s(buffer, seconds)
    turns = []
    for _ in range(READ_TURNS):
        rate = decode_weight_rate()
        behind = memory_read_bytes_per_s(buffer, seconds)
        turns.append((rate, (before + behind) / 2))
        before = behind
    return turns


def measure(binary, name, folder, references, batch, options):
    config = references["fp32"].config
    prompts = make_prompts(batch, options.prompt_tokens, config.vocab_size)
    rates = {kind: Rate(note=choose_attention(model, prompts)) for kind, model in references.items()}
    rates |= {kind: Rate() for kind in [*options.ours, *options.peers]}
    gguf = gguf_of(options.llama_cpp, options.work, folder) if options.peers else None
    runs = {}
    peak_bytes = 0
    others = OtherPrograms()
    for _ in range(options.rounds):
        for kind in options.ours:
            runs[kind] = spillway_round(binary, folder, prompts, options.new_tokens, options.threads, OURS[kind])
            rates[kind].keep_best(runs[kind].rate)
            peak_bytes = max(peak_bytes, runs[kind].peak_bytes)
        for kind, model in references.items():
            rate, tokens = reference_round(model, prompts, options.new_tokens)
            rates[kind].keep_best(rate)
            if kind == "fp32":
                equal_rows = {kind: sum(a == b for a, b in zip(tokens, run.tokens)) for kind, run in runs.items()}
        for kind in options.peers:
            rates[kind].keep_best(llama_cpp_round(options.llama_cpp, gguf, batch, options))
    run = runs["spillway"]
    weight_bytes = run.report["model"]["weight_bytes"]
    kv_bytes = run.report["kv"]["bytes"]
    decode_bytes = (weight_bytes - looked_up_bytes(config)) / batch

    def decode_weight_rate():
        fp32 = spillway_round(binary, folder, prompts, options.new_tokens, options.threads, OURS["spillway"])
        return fp32.rate.decode * decode_bytes

    decode_s = batch * (options.new_tokens - 1) / rates["spillway"].decode
    turns = read_turns(decode_weight_rate, decode_s) if batch == 1 else []
    best_decode = max(rates[kind].decode for kind in REFERENCES)
    return {
        "model": folder.name,
        "batch": batch,
        "rates": {kind: dataclasses.asdict(rate) for kind, rate in rates.items()},
        "decode_ratio": {kind: rates[kind].decode / best_decode for kind in options.ours},
        "prefill_ratio": {kind: rates[kind].prefill / rates[OURS[kind]].prefill for kind in options.ours},
        "peer_ratio": {
            kind: rates[kind].decode / rates[peer].decode for peer in options.peers for kind in options.ours
        },
        "read_turns": turns,
        "peak_bytes": peak_bytes,
        "peak_goal_bytes": round(1.1 * (weight_bytes + kv_bytes)) + MEMORY_SLACK_BYTES,
        "weight_bytes": weight_bytes,
        "kv_bytes": kv_bytes,
        "rows_equal_to_fp32": equal_rows,
        "isa": {kind: run.report["machine"].get("isa") for kind, run in runs.items()},
        "others_cpu_frac": others.frac(),
    }


def measure_all(options):
    cells = []
    for name in options.models:
        folder = checkpoint(options.work, name)
        references = {kind: load_reference(folder, dtype) for kind, dtype in REFERENCES.items()}
        for batch in options.batches:
            cell = measure(options.binary, name, folder, references, batch, options)
            cells.append(cell)
            print(row(cell), flush=True)
        del references
        gc.collect()
    return cells


# --- tables



def head(ours, peers):
    parts = ["model", "batch"]
    for what in ("decode", "prefill"):
        parts += [f"{what} {kind}" for kind in REFERENCES]
        parts += [f"{what} {kind}" for kind in peers]
        parts += [text for kind in ours for text in (f"{what} {kind}", "ratio")]
    parts += ["peak memory", "goal"]
    return f"| {' | '.join(parts)} |\n{'|---' * len(parts)}|"


def row(cell):
    parts = [cell["model"], str(cell["batch"])]
    for what, digits in (("decode", 1), ("prefill", 0)):
        parts += [f"{cell['rates'][kind][what]:.{digits}f}" for kind in [*REFERENCES, *PEERS] if kind in cell["rates"]]
        for kind, ratio in cell[f"{what}_ratio"].items():
            parts += [f"{cell['rates'][kind][what]:.{digits}f}", f"{ratio:.2f}"]
    parts += [f"{cell[key] / 2**20:.0f} MiB" for key in ("peak_bytes", "peak_goal_bytes")]
    return f"| {' | '.join(parts)} |"


def read_share(cell):
    """The median of the turns' shares of the memory's rate."""
    return statistics.median(rate / memory for rate, memory in cell["read_turns"])


def read_line(cell):
    shares = sorted(rate / memory for rate, memory in cell["read_turns"])
    rates, memory = ([turn[i] / 1e9 for turn in cell["read_turns"]] for i in (0, 1))
    return (
        f"{cell['model']} at batch 1 reads weights at {read_share(cell):.0%} of the memory's rate before and behind it "
        f"(median of {len(shares)} turns; {shares[0]:.0%} to {shares[-1]:.0%}): {min(rates):.1f} to {max(rates):.1f} GB/s, "
        f"memory {min(memory):.1f} to {max(memory):.1f}."
    )


def disturbance(cells):
    """A warning that travels with the table: numbers taken beside other work compare nothing."""
    worst = max(cell["others_cpu_frac"] for cell in cells)
    if worst <= QUIET_FRAC:
        return []
    return [f"**Not a measurement: other programs used up to {worst:.0%} of the processor. Run it again alone.**", ""]


def misses(cells):
    """Figures below the goals, one sentence each."""
    found = []
    for cell in cells:
        name = f"{cell['model']} batch {cell['batch']}"
        for what, goal in (("decode", DECODE_GOAL), ("prefill", PREFILL_GOAL)):
            for kind, ratio in cell[f"{what}_ratio"].items():
                if ratio < goal:
                    found.append(f"{name}, {kind}: {what} {ratio:.2f} x the reference, goal {goal}")
        if cell["peak_bytes"] > cell["peak_goal_bytes"]:
            found.append(f"{name}: peak memory {cell['peak_bytes']}, goal {cell['peak_goal_bytes']} bytes")
        if cell["batch"] == 1 and read_share(cell) < READ_GOAL:
            found.append(f"{name}: reads weights at under {READ_GOAL:.0%} of the machine's rate")
    return found


def markdown(result):
    machine = result["machine"]
    lines = [
        *disturbance(result["cells"]),
        f"Tokens per second, prompt {result['prompt_tokens']}, {result['new_tokens']} new tokens a row; "
        f"{machine['processor']}, {machine['threads']} threads; transformers {machine['transformers']}, "
        f"torch {machine['torch']}; commit {machine['commit']}, {result['date']}.",
        "",
        head(result["ours"], result["peers"]),
        *(row(cell) for cell in result["cells"]),
        "",
        *(read_line(cell) for cell in result["cells"] if cell["batch"] == 1),
    ]
    return "\n".join(lines) + "\n"


def shape_or_folder(text):
    if text not in SHAPES and not pathlib.Path(text).is_dir():
        raise argparse.ArgumentTypeError(f"{text} is no folder, nor one of {', '.join(SHAPES)}")
    return text


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("binary", type=pathlib.Path)
    parser.add_argument("--work", type=pathlib.Path, required=True, help="checkpoints are kept here")
    parser.add_argument("--models", nargs="+", type=shape_or_folder, default=MEASURED, help=f"folders, or of {', '.join(SHAPES)}")
    parser.add_argument("--llama-cpp", type=pathlib.Path, help="its source folder, built there in build/")
    parser.add_argument("--batches", nargs="+", type=int, default=[1, 8, 32])
    parser.add_argument("--prompt-tokens", type=int, default=128)
    parser.add_argument("--new-tokens", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--quick", action="store_true", help="opt-125m, batches 1 and 8, 16 new tokens, one round")
    parser.add_argument("--output", type=pathlib.Path, help="writes OUTPUT.json and OUTPUT.md (default: under --work)")
    options = parser.parse_args()
    if options.quick:
        options.models, options.batches, options.new_tokens, options.rounds = ["opt-125m"], [1, 8], 16, 1
    options.binary = options.binary.resolve()
    options.peers = PEERS if options.llama_cpp else []
    options.ours = [kind for kind in OURS if OURS[kind] == "fp32" or computes_in_bf16(options.binary)]
    return options


def main():
    options = parse_arguments()
    torch.set_num_threads(options.threads)
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    print(head(options.ours, options.peers), flush=True)
    cells = measure_all(options)
    result = {
        "date": datetime.date.today().isoformat(),
        "machine": {
            "processor": origin.processor_name(),
            "threads": options.threads,
            "torch": torch.__version__,
            "transformers": transformers.__version__,
            "commit": origin.commit(),
        },
        "prompt_tokens": options.prompt_tokens,
        "new_tokens": options.new_tokens,
        "rounds": options.rounds,
        "ours": options.ours,
        "peers": options.peers,
        "cells": cells,
    }
    output = options.output or options.work / "compare_transformers"
    pathlib.Path(f"{output}.json").write_text(json.dumps(result, indent=1) + "\n")
    pathlib.Path(f"{output}.md").write_text(markdown(result))
    print("\n" + markdown(result))
    for miss in misses(cells):
        print(f"under the goal: {miss}")
    return 1 if disturbance(cells) else 0


if __name__ == "__main__":
    sys.exit(main())
