"""The bytes of the output do not depend on where things are stored: the same for every placement over gpu (emulated), cpu
and disk, block shape, overlap and KV place. Standard library only.

  python3 placement_test.py path/to/spillway PART
"""

import json
import pathlib
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "parity"))

import harness
import placements
from family_variants import FAMILY_VARIANTS
from placements import (
    EMULATED, EVICTING, H2O, LARGE, ON_HOST, PARITY_MODELS, QUANTISED, WINDOW, check, run, in_turn)

FEW_TOKENS = ["--kv-policy", "h2o", "--kv-heavy", 5, "--kv-recent", 1]
KV_POLICIES = [
    H2O,
    FEW_TOKENS,
    ["--kv-policy", "h2o-flexgen", "--kv-budget", 9],
    WINDOW,
]
# Caches of codes, whose slots have other sizes and whose blocks on disk other alignments.
CODED_CACHES = [
    ["--kv-bits", 8, *H2O],
    ["--kv-bits", 4, *H2O],
    ["--kv-bits", 4, *WINDOW],
    ["--kv-bits", "8,4", *H2O],
    ["--kv-bits", "4,16", *WINDOW],
]
SMALL_MODELS = [harness.BUNDLED_MODEL, PARITY_MODELS / "postnorm-projected", PARITY_MODELS / "gelu-head80-untied"]


def check_kv_bytes(binary, source, folder):
    """The report says what the cache was: of 64 elements 128, 68 or 36 bytes, of K and V apart, in blocks of 8, 16 or 16 slots."""
    failures = 0
    model = ["--model", harness.BUNDLED_MODEL]
    found = {}
    for bits in (16, 8, 4, "8,4"):
        out, report = run(binary, model, source, folder, ["--gpu-batch-size", 8, "--kv-bits", bits])
        found[bits] = (report["kv"]["bytes"], out)
        if report["policy"]["kv_bits"] != ([8, 4] if bits == "8,4" else bits):
            print(f"FAILED --kv-bits {bits}: the report says {report['policy']['kv_bits']}")
            failures += 1
    for bits, token_bytes in ((8, 68), (4, 36), ("8,4", 52)):
        least = found[16][0] * token_bytes / 128
        if not least <= found[bits][0] <= 1.1 * least or found[bits][1] == found[16][1]:
            print(f"FAILED --kv-bits {bits}: {found[bits][0]} bytes for {found[16][0]} of 16 bits, or the same text")
            failures += 1
    if found[8][0] * 36 != found[4][0] * 68 or found[8][0] + found[4][0] != 2 * found["8,4"][0]:
        print(f"FAILED --kv-bits: {found[8][0]} bytes of 8 bits, {found[4][0]} of 4, {found['8,4'][0]} of 8,4")
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
    """Where tokens have scores, rows on disk that the CPU attends to are not written whole in each pass, but for those of a
    few tokens, which are no more than a log of them."""
    on_disk = ["--percent", 0, 0, 0, 0, 0, 0]
    cases = [(on_disk, True), ([*on_disk, "--cpu-attention", *EMULATED], True), ([*on_disk, *EMULATED], False), ([], False)]
    failures = 0
    for kv_policy in KV_POLICIES:
        for flags, wanted in cases:
            _, report = run(binary, ["--model", harness.BUNDLED_MODEL, *kv_policy], source, folder, flags)
            every = report["kv"]["written_whole_every"]
            if (wanted and kv_policy not in (WINDOW, FEW_TOKENS)) != (every is not None and every > 1):
                print(f"FAILED {kv_policy} {flags}: KV on disk is written whole every {every} passes")
                failures += 1
    return failures


def full_caches(binary, source, folder):
    first, *others = SMALL_MODELS
    return check(binary, ["--model", first], source, folder, ON_HOST) + sum(
        check(binary, ["--model", model], source, folder, in_turn(ON_HOST, number, 16)) for number, model in enumerate(others))


def evicting_caches(binary, source, folder):
    failures = 0
    for number, kv_policy in enumerate(KV_POLICIES):
        failures += check(binary, ["--model", harness.BUNDLED_MODEL, *kv_policy], source, folder,
                          EVICTING if number == 0 else in_turn(EVICTING, number, 5))
        failures += check(binary, ["--model", PARITY_MODELS / "sharded-head16", *kv_policy], source, folder,
                          in_turn(EVICTING, number, 3))
    return failures + check_log(binary, source, folder)


def coded_caches(binary, source, folder):
    failures = check(binary, ["--model", harness.BUNDLED_MODEL, "--kv-bits", 4], source, folder, ON_HOST)
    failures += check_kv_bytes(binary, source, folder)
    for bits in (16, 8, 4, "8,4", "16,8"):
        failures += check_whole_budget(binary, source, folder, ["--kv-bits", bits])
    return failures


def coded_evicting_caches(binary, source, folder):
    failures = 0
    for number, cache in enumerate((["--kv-bits", 8], ["--kv-bits", 4], ["--kv-bits", "8,4"], *CODED_CACHES)):
        failures += check(binary, ["--model", harness.BUNDLED_MODEL, *cache], source, folder,
                          EVICTING if number == 0 else in_turn(EVICTING, number, 4))
        failures += check(binary, ["--model", PARITY_MODELS / "gelu-head80-untied", *cache], source, folder,
                          in_turn(EVICTING, number, 2))
    return failures


def budgets_per_head(binary, source, folder):
    """KV heads with budgets of their own: the same bytes everywhere; and equal budgets are those of all heads together."""
    even = folder / "even.json"
    even.write_text(json.dumps({"version": 1, "kv": {"policy": "h2o", "head_budgets": [[0.3] * 4] * 8}}))
    failures = 0
    for bits in (16, "8,4"):
        model = ["--model", harness.BUNDLED_MODEL, "--kv-bits", bits]
        if run(binary, [*model, "--policy", even], source, folder, [])[0] != run(binary, [*model, *H2O], source, folder, [])[0]:
            print(f"FAILED: budgets of 30 % of each head give other bytes than 30 %, {bits} bits")
            failures += 1
    heads = lambda shape: ["--policy", harness.REPOSITORY / "tests" / "parity" / "policies" / f"heads-{shape}.json"]
    cases = [[harness.BUNDLED_MODEL, *heads("8x4")], [harness.BUNDLED_MODEL, "--kv-bits", "8,4", *heads("8x4")],
             [PARITY_MODELS / "llama-groups-of-four", "--kv-bits", 4, *heads("2x2")],
             [PARITY_MODELS / "gemma3-groups-windowed", *heads("3x1")]]
    return failures + sum(check(binary, ["--model", *case], source, folder, EVICTING) for case in cases)


def quantised_weights(binary, source, folder):
    failures = sum(check(binary, ["--model", model, "--weight-bits", bits], source, folder, QUANTISED)
                   for model in SMALL_MODELS for bits in (8, 4))
    kv_policy = ["--weight-bits", 4, *KV_POLICIES[0]]
    return failures + check(binary, ["--model", harness.BUNDLED_MODEL, *kv_policy], source, folder, EVICTING)


def large_weights(binary, source, folder):
    short = harness.write_jsonl(folder / "short.jsonl", placements.ragged_requests(9, 12, 6))
    model = ["--model", "opt-125m", "--dummy-weights"]
    failures = check(binary, [*model, "--weight-bits", 4], short, folder, LARGE[:-1])
    return failures + check(binary, model, short, folder, LARGE)


def families(binary, source, folder):
    """Norms before and behind, norms of heads, scaled embeddings, capped logits, two sorts of rotary positions."""
    names = ["llama-grouped-tied", "llama-wide-biased", *FAMILY_VARIANTS]
    cases = [[name] for name in names]
    for name in ("qwen3-biased", "gemma2-full", "gemma3-wide-window", "gemma3-groups-windowed"):
        cases += [[name, *flags] for flags in (H2O, ["--kv-bits", "8,4", *H2O], ["--weight-bits", 4, "--kv-bits", 8])]
    return sum(check(binary, ["--model", PARITY_MODELS / name, *flags], source, folder, in_turn(EVICTING, number, 3))
               for number, (name, *flags) in enumerate(cases))


def experts(binary, source, folder):
    """A router's choices, which other batches' rows must not change, with and without a shared expert."""
    names = ["mixtral-windowed", "qwen2moe-stacked-dense", "qwen3moe-plain", "gptoss-wide", "gptoss-mxfp4"]
    cases = [[name] for name in names]
    for name in ("qwen2moe-plain", "gptoss-plain"):
        cases += [[name, *flags] for flags in (H2O, ["--weight-bits", 4, "--kv-bits", 8])]
    return sum(check(binary, ["--model", PARITY_MODELS / name, *flags], source, folder, in_turn(EVICTING, number, 5))
               for number, (name, *flags) in enumerate(cases))


def turned_heads(binary, source, folder):
    """Keys of 4 bits that positions rotate: heads are turned and centred before, values and what is attended turned too."""
    failures = sum(check(binary, ["--model", PARITY_MODELS / name, *flags], source, folder, EVICTING)
                   for name in ("llama-grouped-tied", "gemma3-groups-windowed")
                   for flags in (["--kv-bits", 4], ["--kv-bits", "4,8", *H2O]))
    # The reference prompt goes through experts, or, as rotations depend on a row's length, nowhere.
    for number, name in enumerate(("qwen3moe-plain", "gptoss-plain", "neox-parallel", "dynamic", "phi3-partial")):
        failures += check(binary, ["--model", PARITY_MODELS / name, "--kv-bits", 4], source, folder, in_turn(EVICTING, number, 3))
    return failures


def rotary_positions(binary, source, folder):
    """Rows shorter and longer than the original contexts of 64 and 96 tokens, side by side."""
    long = harness.write_jsonl(folder / "long.jsonl", placements.ragged_requests(17, 120, 12))
    models = [["llama-grouped-tied"], ["neox-parallel"], ["dynamic-neox"], ["longrope"], ["dynamic", *H2O],
              ["neox-tied-linear", *WINDOW], ["phi3-partial"]]
    return sum(check(binary, ["--model", PARITY_MODELS / model, *flags], long, folder, EVICTING)
               for model, *flags in models)


PARTS = [families, experts, full_caches, evicting_caches, coded_caches, coded_evicting_caches, quantised_weights, large_weights,
         rotary_positions, turned_heads, budgets_per_head]


def main():
    binary = pathlib.Path(sys.argv[1]).resolve()
    part = next(part for part in PARTS if part.__name__ == sys.argv[2])
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        source = harness.write_jsonl(folder / "in.jsonl", placements.ragged_requests(23, 60, 24))
        sys.exit(1 if part(binary, source, folder) else 0)


if __name__ == "__main__":
    main()
