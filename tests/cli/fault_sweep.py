"""Fails every allocation, every call of the system and every transfer of the disk of one small run in turn: the run ends in
the same bytes, or in a documented exit with one line, and goes on to the same bytes. Standard library only; needs a C
compiler.

  python3 fault_sweep.py path/to/spillway [MOST [KIND...]]

MOST: how many of those with the same call stack are failed (1; 0: all). KINDs: memory, calls (fault_shim.c), disk
(SPILLWAY_TEST_DISK_FAULTS). Ends in one line of counts for each kind, and in exit 1 where something was wrong.
"""

import collections
import pathlib
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

import harness
import placements
from resumable_job import FileJob, Undisturbed, environment, job_folder

HERE = pathlib.Path(__file__).resolve().parent
# All on disk: conversion, weights, KV and its log, states; the bytes are those of any other placement.
PLACE = placements.placement("0 0 0 0 0 0", 2, 2, "--threads", 1)
JOB = FileJob("all on disk", "generate", placements.ragged_requests(6, 12, 6),
              ["--model", placements.PARITY_MODELS / "dynamic", *placements.H2O], [PLACE])
LOG_ENTRIES = 1 << 22
TIMEOUT_S = 60 * harness.SLOWDOWN
DOCUMENTED = {2, 3, 10, 11, 12, 13, 14, 20, 30, 31, 32, 33, 40, 41, 42, 43, 44, 50, 51, 52, 60, 75}
DISK_FAULTS = ["read:error=5@{}", "read:error=5@{}/1", "read:flip=99@{}", "read:flip=99@{}/1", "read:zero@{}",
               "write:error=5@{}", "write:error=28@{}", "write:lost@{}"]


class Faults:
    """One run for each fault, and what came of it."""

    def __init__(self, binary, undisturbed):
        self.binary, self.undisturbed = binary, undisturbed
        self.counts = collections.Counter()

    def run(self, folder, env):
        words = JOB.words(folder, PLACE)
        try:
            return harness.run(self.binary, words, cwd=folder, env=environment(folder) | env, timeout_s=TIMEOUT_S)
        except subprocess.TimeoutExpired:
            return harness.Result(None, b"", b"")

    def try_one(self, name, env):
        """True where the fault made a difference that was seen."""
        with job_folder(JOB) as folder:
            result = self.run(folder, env)
            problem = self.problem_of(result, folder)
            self.counts["tried"] += 1
            self.counts["the same bytes" if result.status == self.undisturbed.status else "refused"] += 1
            if problem:
                self.counts["wrong"] += 1
                print(f"FAILED {name}: {problem}", flush=True)
            return (result.status != self.undisturbed.status
                    or result.stderr.count(b"warning") > self.undisturbed.num_warnings)

    def problem_of(self, result, folder):
        if result.status is None:
            return f"no end within {TIMEOUT_S} s"
        text = result.stderr.decode(errors="replace")
        if result.status != self.undisturbed.status:
            if result.status not in DOCUMENTED or len(result.error_lines()) != 1 or "E-INTERNAL" in text:
                return f"exit {result.status}: {text.strip()[:600]}"
            again = self.run(folder, {})
            if again.status != self.undisturbed.status:
                return f"after {text.strip()[:300]}: does not go on: {again.stderr.decode(errors='replace').strip()[:300]}"
        elif any(not line.startswith("spillway: warning: ") for line in text.splitlines()):
            return f"exit {result.status}, and other words than warnings: {text.strip()[:300]}"
        if JOB.result(folder) != self.undisturbed.result:
            return f"other bytes than those of an undisturbed run, after: {text.strip()[:300]}"
        if JOB.left(folder):  # a file that could not be removed goes with the next run
            self.run(folder, {})
        left = JOB.left(folder)
        return f"files left: {left}, after: {text.strip()[:300]}" if left else None

    def line(self, kind, total):
        counted = ", ".join(f"{self.counts[key]} {key}" for key in ("the same bytes", "refused", "wrong"))
        return f"{kind}: {self.counts['tried']} faults of {total} places: {counted}"


def shim(folder):
    library = folder / "fault_shim.so"
    subprocess.run(["cc", "-O1", "-shared", "-fPIC", "-o", library, HERE / "fault_shim.c", "-ldl"], check=True)
    return library


def stacks(binary, library, folder, kind):
    """The hash of each place's call stack, in the order of an undisturbed run."""
    log = folder / "log"
    with open(log, "wb") as file:
        file.truncate(8 * LOG_ENTRIES)
    with job_folder(JOB) as place:
        env = environment(place) | {"LD_PRELOAD": str(library), "FAULT_SHIM_KIND": kind, "FAULT_SHIM_LOG": str(log)}
        result = harness.run(binary, JOB.words(place, PLACE), cwd=place, env=env)
        if result.status != 0:
            sys.exit(f"{kind}: the run that counts ends with {result.status}: {result.stderr.decode(errors='replace')}")
    hashes = memoryview(log.read_bytes()).cast("Q")
    return [value for value in hashes[: next((i for i, value in enumerate(hashes) if value == 0), len(hashes))]]


def chosen(hashes, most):
    """Numbers of the places, at most so many of each call stack: its first, and others evenly spread."""
    by_stack = collections.defaultdict(list)
    for number, value in enumerate(hashes):
        by_stack[value].append(number)
    numbers = []
    for places in by_stack.values():
        step = max(1, len(places) // most) if most else 1
        numbers += places[::step][:most] if most else places
    return sorted(numbers)


def sweep_shim(faults, library, folder, kind, most):
    hashes = stacks(faults.binary, library, folder, kind)
    for number in chosen(hashes, most):
        faults.try_one(f"{kind} {number}", {"LD_PRELOAD": str(library), "FAULT_SHIM_KIND": kind, "FAULT_SHIM_AT": str(number)})
    return len(hashes)


def sweep_disk(faults):
    """Each fault at one transfer after the other, up to where it is not met any more."""
    total = 0
    for fault in DISK_FAULTS:
        missed = number = 0
        while missed < 3:  # a lost write is not seen where nothing reads it
            text = fault.format(number)
            missed = 0 if faults.try_one(text, {"SPILLWAY_TEST_DISK_FAULTS": text}) else missed + 1
            number += 1
        total += number - missed
    return total


def main():
    binary = pathlib.Path(sys.argv[1]).resolve()
    most = int(sys.argv[2]) if len(sys.argv) > 2 else 1
    kinds = sys.argv[3:] or ["disk", "calls", "memory"]
    undisturbed = Undisturbed(binary, JOB)
    lines, wrong = [], 0
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        library = shim(folder)
        for kind in kinds:
            faults = Faults(binary, undisturbed)
            total = sweep_disk(faults) if kind == "disk" else sweep_shim(faults, library, folder, kind, most)
            lines.append(faults.line(kind, total))
            wrong += faults.counts["wrong"]
    print("\n".join(lines))
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
