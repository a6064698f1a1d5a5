"""The bytes of the output do not depend on where things are stored: the same for every placement over gpu (emulated), cpu
and disk, block shape, overlap and KV place. Standard library only.

  python3 placement_test.py path/to/spillway PART
"""

import json
import pathlib
import random
import sys
import tempfile

import harness

PARITY_MODELS = harness.REPOSITORY / "tests" / "parity" / "models"
SENTENCE = "So the youngest brother set out, and when he had gone a little way he met an old woman. "
EMULATED = ["--emulate-gpu", "2GiB"]


def policy(percent, rows, batches, *more):
    return ["--percent", *percent.split(), "--gpu-batch-size", rows, "--num-gpu-batches", batches, *more]


# The first one is what the others are compared with.
POLICIES = [
    ["--gpu-batch-size", 3],
    # CPU and disk
    policy("0 0 0 100 0 100", 3, 1),
    policy("0 0 0 100 0 100", 3, 4),
    policy("0 50 0 100 0 100", 2, 5),
    policy("0 100 0 0 0 100", 3, 1),
    policy("0 100 0 0 0 100", 3, 4),
    policy("0 100 0 50 0 100", 4, 2),
    policy("0 100 0 100 0 0", 3, 2),
    policy("0 100 0 100 0 50", 4, 3),
    policy("0 0 0 0 0 0", 1, 1),
    policy("0 0 0 0 0 0", 1, 5),
    policy("0 0 0 0 0 0", 4, 3),
    policy("0 30 0 40 0 70", 5, 2),
    policy("0 30 0 40 0 70", 5, 2, "--no-overlap"),
    policy("0 0 0 0 0 0", 3, 3, "--no-overlap"),
    policy("0 0 0 0 0 0", 16, 2, "--threads", 1),
    policy("0 10 0 30 0 50", 4, 3, "--prefill-chunk", 7),
    # an emulated GPU
    policy("100 0 100 0 100 0", 3, 2, *EMULATED),
    policy("0 100 0 100 0 100", 3, 1, *EMULATED),
    policy("0 100 0 100 0 100", 3, 4, *EMULATED),
    policy("0 100 100 0 100 0", 4, 2, *EMULATED),
    policy("50 50 50 50 50 50", 4, 2, *EMULATED),
    policy("20 80 0 100 0 100", 3, 3, *EMULATED),
    policy("20 80 0 100 0 100", 3, 3, "--no-overlap", *EMULATED),
    policy("0 0 0 0 0 0", 3, 1, *EMULATED),
    policy("0 0 0 0 0 0", 3, 4, *EMULATED),
    policy("30 30 30 30 30 30", 6, 2, *EMULATED),
    policy("30 30 30 30 30 30", 6, 2, "--no-overlap", *EMULATED),
    policy("30 30 30 30 30 30", 6, 2, "--cpu-attention", *EMULATED),
    policy("0 100 0 100 100 0", 3, 3, "--cpu-attention", *EMULATED),
    policy("0 100 0 0 0 100", 3, 3, "--cpu-attention", *EMULATED),
    policy("10 0 20 0 0 10", 2, 5, "--threads", 1, *EMULATED),
    ["--cpu-memory", "64MiB"],
    [*EMULATED],
]
# Caches that evict, with whole rows on the way.
KV_POLICIES = [
    ["--kv-policy", "h2o", "--kv-budget", "30%"],
    ["--kv-policy", "h2o", "--kv-heavy", 5, "--kv-recent", 1],
    ["--kv-policy", "h2o-flexgen", "--kv-budget", 9],
    ["--kv-policy", "window", "--kv-budget", 12, "--kv-sinks", 2],
]
EVICTING_PLACEMENTS = [
    ["--gpu-batch-size", 3],
    ["--threads", 1, "--prefill-chunk", 5],
    policy("0 0 0 0 0 0", 4, 3),
    policy("0 100 0 50 0 100", 4, 2, "--prefill-chunk", 33),
    policy("0 30 0 40 0 70", 5, 2, "--no-overlap"),
    policy("20 80 0 100 0 100", 3, 3, *EMULATED),
    policy("30 30 30 30 30 30", 6, 2, *EMULATED),
    policy("30 30 30 30 30 30", 6, 2, "--cpu-attention", *EMULATED),
    policy("100 0 0 0 0 0", 3, 4, "--threads", 1, *EMULATED),
]
# Caches of codes, whose slots have other sizes and whose blocks on disk other alignments.
CODED_CACHES = [
    ["--kv-bits", 8, "--kv-policy", "h2o", "--kv-budget", "30%"],
    ["--kv-bits", 4, "--kv-policy", "h2o", "--kv-budget", "30%"],
    ["--kv-bits", 4, "--kv-policy", "window", "--kv-budget", 12, "--kv-sinks", 2],
]
# Weights in groups: rows of other lengths, so other tiles.
QUANTISED_PLACEMENTS = [
    ["--gpu-batch-size", 3],
    policy("0 0 0 100 0 100", 3, 4, "--threads", 1),
    policy("0 50 0 50 0 50", 20, 1),
    policy("0 30 0 40 0 70", 5, 2, "--no-overlap"),
    policy("0 10 0 30 0 50", 4, 3, "--kv-policy", "h2o", "--kv-budget", "100%"),
    policy("20 80 0 100 0 100", 3, 3, *EMULATED),
    policy("30 30 30 30 30 30", 6, 2, "--cpu-attention", *EMULATED),
    policy("0 0 0 0 0 0", 3, 4, *EMULATED),
    ["--cpu-memory", "64MiB"],
]
LARGE_POLICIES = [
    ["--gpu-batch-size", 4],
    policy("0 0 0 100 0 100", 4, 2),
    policy("0 37 0 50 0 50", 4, 2),
    policy("25 50 25 50 25 50", 4, 2, *EMULATED),
    policy("0 0 0 0 0 0", 2, 3, *EMULATED),
    ["--cpu-memory", "220MiB"],
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


def run(binary, model, source, folder, flags):
    report = folder / "report.json"
    result = harness.run(
        binary,
        ["generate", *model, "--input", source, "--output", "-", "--seed", 3, "--quiet", "--report", report,
         "--offload-dir", folder, *flags],
    )
    if result.status != 0:
        sys.exit(f"{model} {flags}: exit {result.status}: {result.stderr.decode(errors='replace')}")
    return result.stdout, json.loads(report.read_text())


def placement_errors(report):
    """Shares of weights that are off by more than one tile."""
    weights = report["placement"]["weights"]
    slack = weights["tile_bytes"] / report["model"]["weight_bytes"] + 1e-9
    return [
        f"weights on {tier}: {weights['realised'][tier]:.4f} for {share:.4f}"
        for tier, share in weights["requested"].items()
        if abs(weights["realised"][tier] - share) > slack
    ]


def check(binary, model, source, folder, policies):
    expected, _ = run(binary, model, source, folder, policies[0])
    failures = 0
    for flags in policies[1:]:
        found, report = run(binary, model, source, folder, flags)
        problems = placement_errors(report)
        if found != expected:
            problems.append("other bytes than in place")
        for problem in problems:
            print(f"FAILED {' '.join(map(str, model))} {' '.join(map(str, flags))}: {problem}")
        failures += len(problems)
    print(f"{' '.join(map(str, model))}: {len(policies)} placements, {failures} failures", flush=True)
    return failures


def check_kv_bytes(binary, source, folder):
    """The report says what the cache was: of 64 elements 128, 68 or 36 bytes, in blocks of 8, 16 or 16 slots."""
    failures = 0
    model = ["--model", harness.BUNDLED_MODEL]
    found = {}
    for bits in (16, 8, 4):
        out, report = run(binary, model, source, folder, ["--gpu-batch-size", 8, "--kv-bits", bits])
        found[bits] = (report["kv"]["bytes"], out)
        if report["policy"]["kv_bits"] != bits:
            print(f"FAILED --kv-bits {bits}: the report says {report['policy']['kv_bits']}")
            failures += 1
    for bits, token_bytes in ((8, 68), (4, 36)):
        least = found[16][0] * token_bytes / 128
        if not least <= found[bits][0] <= 1.1 * least or found[bits][1] == found[16][1]:
            print(f"FAILED --kv-bits {bits}: {found[bits][0]} bytes for {found[16][0]} of 16 bits, or the same text")
            failures += 1
    if found[8][0] * 36 != found[4][0] * 68:
        print(f"FAILED --kv-bits: {found[8][0]} bytes of 8 bits, {found[4][0]} of 4")
        failures += 1
    return failures


def check_whole_budget(binary, source, folder, flags):
    """A budget that nothing exceeds is the full cache, to the byte."""
    model = ["--model", harness.BUNDLED_MODEL, *flags]
    full, _ = run(binary, model, source, folder, [])
    failures = 0
    for flags in (["--kv-policy", "h2o", "--kv-budget", "100%"], ["--kv-policy", "window", "--kv-budget", 2048]):
        if run(binary, model, source, folder, flags)[0] != full:
            print(f"FAILED {' '.join(map(str, flags))}: other bytes than the full cache")
            failures += 1
    return failures


def check_log(binary, source, folder):
    """Where tokens are evicted, rows on disk that the CPU attends to are not written whole in each pass."""
    on_disk = ["--percent", 0, 0, 0, 0, 0, 0]
    cases = [(on_disk, True), ([*on_disk, "--cpu-attention", *EMULATED], True), ([*on_disk, *EMULATED], False), ([], False)]
    failures = 0
    for kv_policy in KV_POLICIES:
        for flags, wanted in cases:
            _, report = run(binary, ["--model", harness.BUNDLED_MODEL, *kv_policy], source, folder, flags)
            every = report["kv"]["written_whole_every"]
            if wanted != (every is not None and every > 1):
                print(f"FAILED {kv_policy} {flags}: KV on disk is written whole every {every} passes")
                failures += 1
    return failures


SMALL_MODELS = [harness.BUNDLED_MODEL, PARITY_MODELS / "postnorm-projected", PARITY_MODELS / "gelu-head80-untied"]


def full_caches(binary, source, folder):
    return sum(check(binary, ["--model", model], source, folder, POLICIES) for model in SMALL_MODELS)


def evicting_caches(binary, source, folder):
    models = (harness.BUNDLED_MODEL, PARITY_MODELS / "sharded-head16")
    failures = sum(check(binary, ["--model", model, *kv_policy], source, folder, EVICTING_PLACEMENTS)
                   for model in models for kv_policy in KV_POLICIES)
    return failures + check_log(binary, source, folder)


def coded_caches(binary, source, folder):
    failures = check(binary, ["--model", harness.BUNDLED_MODEL, "--kv-bits", 4], source, folder, POLICIES)
    failures += check_kv_bytes(binary, source, folder)
    for bits in (16, 8, 4):
        failures += check_whole_budget(binary, source, folder, ["--kv-bits", bits])
    return failures


def coded_evicting_caches(binary, source, folder):
    failures = 0
    for model in (harness.BUNDLED_MODEL, PARITY_MODELS / "gelu-head80-untied"):
        for cache in (["--kv-bits", 8], ["--kv-bits", 4], *CODED_CACHES):
            failures += check(binary, ["--model", model, *cache], source, folder, EVICTING_PLACEMENTS)
    return failures


def quantised_weights(binary, source, folder):
    failures = sum(check(binary, ["--model", model, "--weight-bits", bits], source, folder, QUANTISED_PLACEMENTS)
                   for model in SMALL_MODELS for bits in (8, 4))
    kv_policy = ["--weight-bits", 4, *KV_POLICIES[0]]
    return failures + check(binary, ["--model", harness.BUNDLED_MODEL, *kv_policy], source, folder, EVICTING_PLACEMENTS)


def large_weights(binary, source, folder):
    short = harness.write_jsonl(folder / "short.jsonl", ragged_requests(9, 12, 6))
    model = ["--model", "opt-125m", "--dummy-weights"]
    failures = check(binary, [*model, "--weight-bits", 4], short, folder, LARGE_POLICIES[:-1])
    return failures + check(binary, model, short, folder, LARGE_POLICIES)


PARTS = [full_caches, evicting_caches, coded_caches, coded_evicting_caches, quantised_weights, large_weights]


def main():
    binary = pathlib.Path(sys.argv[1]).resolve()
    part = next(part for part in PARTS if part.__name__ == sys.argv[2])
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        source = harness.write_jsonl(folder / "in.jsonl", ragged_requests(23, 60, 24))
        sys.exit(1 if part(binary, source, folder) else 0)


if __name__ == "__main__":
    main()
