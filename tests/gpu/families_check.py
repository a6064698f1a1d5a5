"""On a machine with a GPU: small models of every family that a GPU computes, with a full cache and with caches that evict.
Tokens and log-probabilities are the float32 reference's (parity/golden, golden_kv), and the same bytes come out where weights,
KV and states lie elsewhere. Standard library only.

  python3 families_check.py path/to/spillway OUT_FOLDER [--quick]
"""

import concurrent.futures
import functools
import json
import pathlib
import sys

TESTS = pathlib.Path(__file__).resolve().parent.parent
sys.path[:0] = [str(TESTS), str(TESTS / "cli"), str(TESTS / "parity")]

import comparison  # noqa: E402
import engine  # noqa: E402
from placements import on_gpu, placement  # noqa: E402

# Twice the largest difference of a GPU in software: activations of a GPU's products have 16 bits. The CPU's bounds are 0.002
# for a log-probability and 0.02 for the gap of two tokens that count as tied.
TOLERANCE = 0.05
GAP_TOLERANCE = 0.05
# With bf16 activations a router may choose another expert than in float32, as the CPU does with --cpu-compute bf16. Of these
# only the bytes are compared, and of one with fp16 activations that has a choice as close.
CHOOSE_BY_BF16 = ("mixtral-plain", "qwen2moe-plain", "qwen3moe-plain", "gptoss-plain", "gptoss-mxfp4",
                  "gptoss-wide.h2o-30-tokens")
NUM_PROGRAMS = 4  # at a time; each counts what the others take of the GPU
GPU = on_gpu("8GiB")
ALL_ON_GPU = placement("100 0 100 0 100 0", 8, 1, *GPU)
ELSEWHERE = placement("20 80 0 60 0 100", 3, 3, *GPU)
QUICK = ["qwen3-biased"]


def goldens(quick):
    for folder in ("golden", "golden_kv"):
        for path in sorted((TESTS / "parity" / folder).glob("*.json")):
            golden = json.loads(path.read_text(encoding="utf-8"))
            if not quick or path.stem in QUICK:
                yield path.stem, golden


def generate(spillway, golden, rows, flags):
    requests = engine.token_requests(rows, golden["max_tokens"])
    return engine.generate(spillway, TESTS.parent / golden["model"], requests, [*golden.get("flags", []), *flags])


def check(spillway, named):
    """(line to print, number of failures) of one golden file."""
    name, golden = named
    rows = golden["rows"][:8]
    try:
        lines = generate(spillway, golden, rows, ALL_ON_GPU)
        elsewhere = generate(spillway, golden, rows, ELSEWHERE)
    except (AssertionError, OSError) as error:
        return f"{name}: FAILED: {error}", 1
    found = engine.comparable(golden, [engine.row(line) for line in lines])
    summary = comparison.compare(rows, found, max(TOLERANCE, golden["logprob_tolerance"]), GAP_TOLERANCE)
    text = "\n".join([comparison.table_line(name, summary), *summary.failures[:5]])
    wrong = 0 if name.startswith(CHOOSE_BY_BF16) else len(summary.failures)
    if answers(lines) == answers(elsewhere):
        return text, wrong
    return f"{text}\n{name}: FAILED: other bytes with {ELSEWHERE}", wrong + 1


def answers(lines):
    return [line["response"]["body"]["choices"] for line in lines]


def main():
    spillway, quick = pathlib.Path(sys.argv[1]), "--quick" in sys.argv[3:]
    files = list(goldens(quick))
    print(comparison.TABLE_HEAD)
    with concurrent.futures.ThreadPoolExecutor(NUM_PROGRAMS) as pool:
        failures = 0
        for text, wrong in pool.map(functools.partial(check, spillway), files):
            print(text, flush=True)
            failures += wrong
    print(f"{failures} failures in {len(files)} files of golden rows, each in 2 placements")
    sys.exit(1 if failures or not files else 0)


if __name__ == "__main__":
    main()
