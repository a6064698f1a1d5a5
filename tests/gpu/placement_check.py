"""On a machine with a GPU: the bundled model gives the same bytes wherever its weights, KV and states lie and however
its block is shaped; and greedy tokens agree with the CPU's but for near-ties. Standard library only.

  python3 placement_check.py path/to/spillway OUT_FOLDER [--quick]
"""

import json
import pathlib
import subprocess
import sys
import typing

SENTENCE = "So the youngest brother set out, and when he had gone a little way he met an old woman. "
# Rows that may differ from the CPU's: where two logits nearly tie, every later token does too. An activation that is
# rounded otherwise may have another code of 4 bits, which moves logits thirty times as far.
MOST_ROWS_THAT_DIFFER = 0.1
MOST_ROWS_THAT_DIFFER_IN_CODES = 0.7
SET_ASIDE_BYTES = 64 << 20  # cuda_device.cc
GPU = ["--device", "cuda:0", "--gpu-memory", "8GiB"]


class Extent(typing.NamedTuple):
    """How much is compared; --quick is for a GPU in software."""

    policies: int
    storages: int
    rows: int
    new_tokens: int


WHOLE, QUICK = Extent(9, 6, 24, 24), Extent(3, 1, 3, 3)


def policy(percent, rows, batches, *more):
    return ["--percent", *percent.split(), "--gpu-batch-size", str(rows), "--num-gpu-batches", str(batches), *more]


# The first one is what the others are compared with.
POLICIES = [
    policy("100 0 100 0 100 0", 8, 1),
    policy("0 100 0 100 0 100", 8, 1),
    policy("0 0 0 0 0 0", 8, 1),
    policy("0 100 0 100 0 100", 3, 4),
    policy("20 80 50 50 100 0", 3, 4),
    policy("30 30 30 30 30 30", 5, 2),
    policy("30 30 30 30 30 30", 5, 2, "--no-overlap"),
    policy("100 0 100 0 100 0", 1, 1),
    policy("100 0 100 0 100 0", 4, 3, "--prefill-chunk", "7"),
]
STORAGES = [
    [],
    ["--weight-bits", "8"],
    ["--weight-bits", "4"],
    ["--kv-bits", "8"],
    ["--kv-bits", "4"],
    ["--kv-policy", "h2o", "--kv-budget", "30%", "--kv-bits", "4", "--weight-bits", "4"],
]


def run(spillway, prompts, output, flags):
    command = [spillway, "generate", "--input", str(prompts), "--output", str(output), "--overwrite", "--quiet", *flags]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(command)} ended with {done.returncode}: {done.stderr}")
    return output.read_bytes()


def texts(output):
    answers = [json.loads(line) for line in output.decode().splitlines()]
    return [answer["response"]["body"]["choices"][0]["text"] for answer in answers]


def check_placements(spillway, prompts, folder, storage, policies):
    """Of one way of storing weights and KV: the same bytes over placements, and about the CPU's answers."""
    name = " ".join(storage) or "16 bits"
    first = None
    num_failed = 0
    for number, flags in enumerate(policies):
        output = run(spillway, prompts, folder / f"placed{number}.jsonl", GPU + storage + flags)
        first = first or output
        if output != first:
            num_failed += 1
            print(f"{name}: other bytes than the first with {' '.join(flags)}")
    on_cpu = texts(run(spillway, prompts, folder / "cpu.jsonl", ["--device", "cpu", *storage]))
    differing = sum(a != b for a, b in zip(texts(first), on_cpu))
    print(f"{name}: {len(policies)} placements; {differing} of {len(on_cpu)} rows differ from the CPU's", flush=True)
    in_codes = "--kv-bits" in storage and storage[storage.index("--kv-bits") + 1] == "4"
    if differing > (MOST_ROWS_THAT_DIFFER_IN_CODES if in_codes else MOST_ROWS_THAT_DIFFER) * len(on_cpu):
        num_failed += 1
        print("more rows than near-ties explain")
    return num_failed


def check_memory(spillway, prompts, folder, storage):
    """What a run takes on the GPU beside its plan fits what is set aside for loaded kernels."""
    report = folder / "report.json"
    run(spillway, prompts, folder / "report.jsonl", [*GPU, *storage, "--report", str(report)])
    tier = json.loads(report.read_text())["tiers"]["gpu"]
    beside = tier["peak_bytes"] - tier["planned_peak_bytes"]
    print(f"GPU memory beside the plan: {beside / 2**20:.1f} MiB of {SET_ASIDE_BYTES / 2**20:.0f} MiB set aside", flush=True)
    return beside <= SET_ASIDE_BYTES


def main():
    spillway, folder = sys.argv[1], pathlib.Path(sys.argv[2])
    extent = QUICK if "--quick" in sys.argv[3:] else WHOLE
    prompts = folder / "prompts.jsonl"
    lines = [{"custom_id": str(n), "prompt": SENTENCE * (n % 5) + "Once upon a time, " + "the " * (n * 7 % 40),
              "max_tokens": extent.new_tokens} for n in range(extent.rows)]
    prompts.write_text("".join(json.dumps(line) + "\n" for line in lines))
    storages = STORAGES[: extent.storages]
    num_failed = sum(check_placements(spillway, prompts, folder, storage, POLICIES[: extent.policies]) for storage in storages)
    num_failed += sum(not check_memory(spillway, prompts, folder, storage) for storage in storages)
    print(f"{num_failed} comparisons failed of {len(storages)} ways of storing, {extent.policies} placements each")
    sys.exit(1 if num_failed else 0)


if __name__ == "__main__":
    main()
