"""Placements that must give the same bytes, and the comparison of those bytes: one harness for the CPU with an emulated GPU
(cli/placement_test.py), a GPU in software (soft_gpu/soft_gpu_test.py) and a GPU (gpu/placement_check.py). Standard library
only.

A placement is a list of flags: where weights, KV and states lie, the shape of a block, and what else may not change a byte.
The first of a list is what the others are compared with.
"""

import json
import pathlib
import random
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent / "cli"))

import harness  # noqa: E402

PARITY_MODELS = harness.REPOSITORY / "tests" / "parity" / "models"
SENTENCE = "So the youngest brother set out, and when he had gone a little way he met an old woman. "
EMULATED = ["--emulate-gpu", "2GiB"]
H2O = ["--kv-policy", "h2o", "--kv-budget", "30%"]
WINDOW = ["--kv-policy", "window", "--kv-budget", 12, "--kv-sinks", 2]


def placement(percent, rows, batches, *more):
    """`percent`: shares of weights, KV and states on GPU and CPU, as --percent has them; the rest is on disk."""
    return ["--percent", *percent.split(), "--gpu-batch-size", rows, "--num-gpu-batches", batches, *more]


ON_CPU = [
    ["--gpu-batch-size", 3],
    placement("0 0 0 100 0 100", 3, 1),
    placement("0 0 0 100 0 100", 3, 4),
    placement("0 50 0 100 0 100", 2, 5),
    placement("0 100 0 0 0 100", 3, 1),
    placement("0 100 0 0 0 100", 3, 4),
    placement("0 100 0 50 0 100", 4, 2),
    placement("0 100 0 100 0 0", 3, 2),
    placement("0 100 0 100 0 50", 4, 3),
    placement("0 0 0 0 0 0", 1, 1),
    placement("0 0 0 0 0 0", 1, 5),
    placement("0 0 0 0 0 0", 4, 3),
    placement("0 30 0 40 0 70", 5, 2),
    placement("0 30 0 40 0 70", 5, 2, "--no-overlap"),
    placement("0 0 0 0 0 0", 3, 3, "--no-overlap"),
    placement("0 0 0 0 0 0", 16, 2, "--threads", 1),
    placement("0 10 0 30 0 50", 4, 3, "--prefill-chunk", 7),
    ["--cpu-memory", "64MiB"],
]
ON_EMULATED_GPU = [
    placement("100 0 100 0 100 0", 3, 2, *EMULATED),
    placement("0 100 0 100 0 100", 3, 1, *EMULATED),
    placement("0 100 0 100 0 100", 3, 4, *EMULATED),
    placement("0 100 100 0 100 0", 4, 2, *EMULATED),
    placement("50 50 50 50 50 50", 4, 2, *EMULATED),
    placement("20 80 0 100 0 100", 3, 3, *EMULATED),
    placement("20 80 0 100 0 100", 3, 3, "--no-overlap", *EMULATED),
    placement("0 0 0 0 0 0", 3, 1, *EMULATED),
    placement("0 0 0 0 0 0", 3, 4, *EMULATED),
    placement("30 30 30 30 30 30", 6, 2, *EMULATED),
    placement("30 30 30 30 30 30", 6, 2, "--no-overlap", *EMULATED),
    placement("30 30 30 30 30 30", 6, 2, "--cpu-attention", *EMULATED),
    placement("0 100 0 100 100 0", 3, 3, "--cpu-attention", *EMULATED),
    placement("0 100 0 0 0 100", 3, 3, "--cpu-attention", *EMULATED),
    placement("10 0 20 0 0 10", 2, 5, "--threads", 1, *EMULATED),
    [*EMULATED],
]
ON_HOST = ON_CPU + ON_EMULATED_GPU
# Caches that evict, with whole rows on the way.
EVICTING = [
    ["--gpu-batch-size", 3],
    ["--threads", 1, "--prefill-chunk", 5],
    placement("0 0 0 0 0 0", 4, 3),
    placement("0 100 0 50 0 100", 4, 2, "--prefill-chunk", 33),
    placement("0 30 0 40 0 70", 5, 2, "--no-overlap"),
    placement("20 80 0 100 0 100", 3, 3, *EMULATED),
    placement("30 30 30 30 30 30", 6, 2, *EMULATED),
    placement("30 30 30 30 30 30", 6, 2, "--cpu-attention", *EMULATED),
    placement("100 0 0 0 0 0", 3, 4, "--threads", 1, *EMULATED),
]


def in_turn(placements, number, count):
    """The first and `count` others, which differ by number and are all there after a few: for cases that differ little."""
    others = placements[1:]
    return [placements[0], *(others[(number * count + i) % len(others)] for i in range(min(count, len(others))))]


# Weights in groups: rows of other lengths, so other tiles.
QUANTISED = [
    ["--gpu-batch-size", 3],
    placement("0 0 0 100 0 100", 3, 4, "--threads", 1),
    placement("0 50 0 50 0 50", 20, 1),
    placement("0 30 0 40 0 70", 5, 2, "--no-overlap"),
    placement("0 10 0 30 0 50", 4, 3, "--kv-policy", "h2o", "--kv-budget", "100%"),
    placement("20 80 0 100 0 100", 3, 3, *EMULATED),
    placement("30 30 30 30 30 30", 6, 2, "--cpu-attention", *EMULATED),
    placement("0 0 0 0 0 0", 3, 4, *EMULATED),
    ["--cpu-memory", "64MiB"],
]
# Models that fill several tiles a tensor.
LARGE = [
    ["--gpu-batch-size", 4],
    placement("0 0 0 100 0 100", 4, 2),
    placement("0 37 0 50 0 50", 4, 2),
    placement("25 50 25 50 25 50", 4, 2, *EMULATED),
    placement("0 0 0 0 0 0", 2, 3, *EMULATED),
    ["--cpu-memory", "220MiB"],
]
# The arithmetic of --cpu-compute bf16.
BF16 = [
    ["--gpu-batch-size", 3],
    ["--gpu-batch-size", 17, "--threads", 1],
    placement("0 30 0 40 0 70", 5, 2, "--no-overlap"),
    placement("0 0 0 0 0 0", 4, 3),
    placement("30 30 30 30 30 30", 6, 2, "--cpu-attention", *EMULATED),
    placement("0 100 0 0 0 100", 3, 3, "--prefill-chunk", 7, *EMULATED),
]


def on_gpu(gpu_memory):
    return ["--device", "cuda:0", "--gpu-memory", gpu_memory]


# Placements for the flags of on_gpu. A GPU in software takes minutes for what a GPU does in seconds, so it gets FEW_ON_GPU.
ON_GPU = [
    placement("100 0 100 0 100 0", 8, 1),
    placement("0 100 0 100 0 100", 8, 1),
    placement("0 0 0 0 0 0", 8, 1),
    placement("0 100 0 100 0 100", 3, 4),
    placement("20 80 50 50 100 0", 3, 4),
    placement("30 30 30 30 30 30", 5, 2),
    placement("30 30 30 30 30 30", 5, 2, "--no-overlap"),
    placement("100 0 100 0 100 0", 1, 1),
    placement("100 0 100 0 100 0", 4, 3, "--prefill-chunk", 7),
]
FEW_ON_GPU = [
    placement("100 0 100 0 100 0", 3, 2),
    placement("0 0 0 0 0 0", 4, 3),
    placement("30 30 30 30 30 30", 5, 2, "--prefill-chunk", 7, "--no-overlap"),
]
# The CPU attends to what is not on the GPU, with the CPU's rounding: the bytes are the same where it attends to the same
# rows, however blocks are shaped and whether KV comes from disk.
BESIDE_GPU = [
    placement("100 0 0 100 100 0", 3, 2, "--cpu-attention"),
    placement("0 0 0 0 0 0", 4, 3, "--cpu-attention"),
    placement("30 30 0 50 30 30", 5, 1, "--cpu-attention", "--prefill-chunk", 7, "--no-overlap"),
]


def ragged_requests(num_requests, max_prompt, max_tokens):
    """Different prompts in every row; rows end early, so that others take their places."""
    rng = random.Random(11)
    requests = [{"prompt": SENTENCE[:40], "max_tokens": max_tokens}]
    while len(requests) < num_requests:
        ids = [2] + [rng.randrange(4, 384) for _ in range(rng.randint(1, max_prompt))]
        sampling = rng.choice([{}, {"temperature": 0.9}, {"logprobs": 2}, {"ignore_eos": True}])
        requests.append({"token_ids": ids, "max_tokens": rng.randint(1, max_tokens)} | sampling)
    return requests


def words(flags):
    return " ".join(map(str, flags)) or "without flags"


def run(binary, model, source, folder, flags):
    """The output's bytes and the report. `model`: flags of the model and of how its weights and KV are stored."""
    report = folder / "report.json"
    result = harness.run(
        binary,
        ["generate", *model, "--input", source, "--output", "-", "--seed", 3, "--quiet", "--report", report,
         "--offload-dir", folder, *flags],
    )
    if result.status != 0:
        sys.exit(f"{words(model)} {words(flags)}: exit {result.status}: {result.stderr.decode(errors='replace')}")
    return result.stdout, json.loads(report.read_text())


def share_errors(report):
    """Shares of weights that are off by more than one tile."""
    weights = report["placement"]["weights"]
    slack = weights["tile_bytes"] / report["model"]["weight_bytes"] + 1e-9
    return [
        f"weights on {tier}: {weights['realised'][tier]:.4f} for {share:.4f}"
        for tier, share in weights["requested"].items()
        if abs(weights["realised"][tier] - share) > slack
    ]


def check(binary, model, source, folder, placements):
    """The number of placements with other bytes than the first has, and of shares of weights that are not as asked for."""
    expected, _ = run(binary, model, source, folder, placements[0])
    failures = 0
    for flags in placements[1:]:
        found, report = run(binary, model, source, folder, flags)
        problems = share_errors(report)
        if found != expected:
            problems.append("other bytes than in place")
        for problem in problems:
            print(f"FAILED {words(model)} {words(flags)}: {problem}")
        failures += len(problems)
    print(f"{words(model)}: {len(placements)} placements, {failures} failures", flush=True)
    return failures


def tokens(output):
    return [json.loads(line)["response"]["body"]["choices"][0].get("token_ids") for line in output.decode().splitlines()]


def differs_from_cpu(binary, model, source, folder, flags, most):
    """True where more than the share `most` of the rows have other greedy tokens on the GPU, placed so, than on the CPU."""
    on_gpu_tokens = tokens(run(binary, model, source, folder, flags)[0])
    on_cpu_tokens = tokens(run(binary, model, source, folder, ["--device", "cpu"])[0])
    differing = sum(a != b for a, b in zip(on_gpu_tokens, on_cpu_tokens, strict=True)) / len(on_cpu_tokens)
    attended = "attended to there, " if "--cpu-attention" in flags else ""
    print(f"{words(model)}: {attended}{1 - differing:.0%} of the rows as on the CPU", flush=True)
    if differing > most:
        print(f"FAILED {words(model)} {words(flags)}: {1 - most:.0%} are wanted")
    return differing > most or None in on_gpu_tokens
