"""On a machine with a GPU: the bundled model gives the same bytes wherever its weights, KV and states lie and however
its block is shaped; and greedy tokens agree with the CPU's but for near-ties. Standard library only.

  python3 placement_check.py path/to/spillway OUT_FOLDER [--quick]
"""

import pathlib
import sys
import typing

TESTS = pathlib.Path(__file__).resolve().parent.parent
sys.path[:0] = [str(TESTS), str(TESTS / "cli")]

import harness  # noqa: E402
import placements  # noqa: E402

# Shares of rows that may differ from the CPU's: where two logits nearly tie, every later token does too. An activation
# that is rounded otherwise may have another code of 4 bits, which moves logits thirty times as far.
MOST_THAT_DIFFER = 0.1
MOST_THAT_DIFFER_IN_CODES = 0.7
SET_ASIDE_BYTES = 64 << 20  # cuda_device.cc
GPU = placements.on_gpu("8GiB")
STORAGES = [
    [],
    ["--weight-bits", "8"],
    ["--weight-bits", "4"],
    ["--kv-bits", "8"],
    ["--kv-bits", "4"],
    [*placements.H2O, "--kv-bits", "4", "--weight-bits", "4"],
    ["--policy", TESTS / "parity" / "policies" / "heads-8x4.json", "--kv-bits", "8,4"],
    ["--model", placements.PARITY_MODELS / "llama-groups-of-four", *placements.H2O, "--kv-bits", "8", "--rolling"],
]


class Extent(typing.NamedTuple):
    """Extent of the comparison; --quick is for a GPU in software."""

    placements: list
    storages: list
    rows: int
    new_tokens: int


WHOLE = Extent([[*GPU, *flags] for flags in placements.ON_GPU], STORAGES, 24, 24)
SMALL_MODEL = ["--model", placements.PARITY_MODELS / "gelu-head80-untied"]
QUICK = Extent([[*GPU, *flags] for flags in placements.FEW_ON_GPU], [SMALL_MODEL], 3, 3)


def check_storage(spillway, prompts, folder, storage, extent):
    """One way of storing weights and KV: the same bytes for all placements, and about the CPU's answers."""
    in_codes = "--kv-bits" in storage and storage[storage.index("--kv-bits") + 1].endswith("4")
    most = MOST_THAT_DIFFER_IN_CODES if in_codes else MOST_THAT_DIFFER
    failures = placements.check(spillway, storage, prompts, folder, extent.placements)
    return failures + placements.differs_from_cpu(spillway, storage, prompts, folder, extent.placements[0], most)


def exceeds_set_aside(spillway, prompts, folder, storage):
    """True where a run takes more on the GPU beside its plan than is set aside for loaded kernels."""
    tier = placements.run(spillway, storage, prompts, folder, GPU)[1]["tiers"]["gpu"]
    beside = tier["peak_bytes"] - tier["planned_peak_bytes"]
    print(f"GPU memory beside the plan: {beside / 2**20:.1f} MiB of {SET_ASIDE_BYTES / 2**20:.0f} MiB set aside", flush=True)
    return beside > SET_ASIDE_BYTES


def main():
    spillway, folder = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
    extent = QUICK if "--quick" in sys.argv[3:] else WHOLE
    prompts = harness.write_jsonl(folder / "prompts.jsonl", [
        {"custom_id": str(n), "prompt": placements.SENTENCE * (n % 5) + "Once upon a time, " + "the " * (n * 7 % 40),
         "max_tokens": extent.new_tokens} for n in range(extent.rows)])
    num_failed = sum(check_storage(spillway, prompts, folder, storage, extent) for storage in extent.storages)
    num_failed += sum(exceeds_set_aside(spillway, prompts, folder, storage) for storage in extent.storages)
    print(f"{num_failed} comparisons failed of {len(extent.storages)} ways of storing, {len(extent.placements)} placements each")
    sys.exit(1 if num_failed else 0)


if __name__ == "__main__":
    main()
