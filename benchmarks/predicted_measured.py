#!/usr/bin/env python3
"""How far the cost model is off on this machine: runs of dummy models beside their predictions. Standard library only.

  predicted_measured.py build/release/spillway [--machine machine.json] [--attempts 3] [--only WORD] [--json FILE]

A machine that others share is not the same from minute to minute: each run has a profile (--quick) made right before
it and one right after it, and its prediction is the mean of the two. It is repeated where they predict more than 10 %
apart, and the attempt with the nearest two counts. With --machine that file predicts all runs, once each. Prints a
Markdown table, a line a run, with predicted over measured seconds for prefill and decode and predicted over measured
generated tokens/s; exit status 1 when one is more than 10 % off.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

import origin

LIMIT = 0.10
MODELS = ("opt-125m", "opt-350m")
IN_MEMORY = "--percent 0 100 0 100 0 100"
H2O = "--kv-policy h2o --kv-budget 20%"

# name -> flags of bench
RUNS = {
    "batch 1": f"--prompt-len 128 --gen-len 32 --gpu-batch-size 1 --num-requests 1 {IN_MEMORY}",
    "batch 8": f"--prompt-len 128 --gen-len 32 --gpu-batch-size 8 --num-requests 8 {IN_MEMORY}",
    "batch 32": f"--prompt-len 128 --gen-len 32 --gpu-batch-size 32 --num-requests 32 {IN_MEMORY}",
    "16 x 3 batches": f"--prompt-len 64 --gen-len 24 --gpu-batch-size 16 --num-gpu-batches 3 {IN_MEMORY}",
    "weights half on disk, 32": "--prompt-len 64 --gen-len 32 --gpu-batch-size 32 --num-requests 32 "
                                "--percent 0 50 0 100 0 100",
    "weights on disk, 32": "--prompt-len 64 --gen-len 32 --gpu-batch-size 32 --num-requests 32 "
                           "--percent 0 0 0 100 0 100",
    "weights on disk, 1": "--prompt-len 64 --gen-len 32 --gpu-batch-size 1 --num-requests 1 --percent 0 0 0 100 0 100",
    "KV on disk, 8 x 2": "--prompt-len 128 --gen-len 24 --gpu-batch-size 8 --num-gpu-batches 2 "
                         "--percent 0 100 0 0 0 100",
    "emulated GPU, weights half there, 32": "--emulate-gpu 3GiB --prompt-len 64 --gen-len 32 --gpu-batch-size 32 "
                                            "--num-requests 32 --percent 50 50 100 0 100 0",
    "emulated GPU, KV on the CPU, 8 x 2": "--emulate-gpu 3GiB --prompt-len 128 --gen-len 24 --gpu-batch-size 8 "
                                          "--num-gpu-batches 2 --percent 50 50 0 100 0 100",
    "h2o 20 %, 8": f"--prompt-len 256 --gen-len 48 --gpu-batch-size 8 --num-requests 8 {IN_MEMORY} {H2O}",
    "h2o 20 %, 32": f"--prompt-len 256 --gen-len 48 --gpu-batch-size 32 --num-requests 32 {IN_MEMORY} {H2O}",
}


class Measurer:
    def __init__(self, options, folder):
        self.options = options
        self.folder = folder
        self.profiles = 0

    def spillway(self, *words):
        command = [str(word) for word in (self.options.binary, *words, "--offload-dir", self.folder)]
        done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                              env=os.environ | {"XDG_CACHE_HOME": str(self.folder)})
        if done.returncode != 0:
            sys.exit(f"{' '.join(command)}: exit {done.returncode}: {done.stderr.strip()[-300:]}")

    def machine(self):
        """The file given, or a new profile; two at a time are in use."""
        if self.options.machine:
            return self.options.machine
        self.profiles += 1
        output = self.folder / f"machine{self.profiles % 2}.json"
        self.spillway("profile", "--quick", "--no-progress", "--output", output)
        return output

    def report(self, verb, machine, flags):
        output = self.folder / f"{verb}.json"
        self.spillway(verb, *flags, "--quiet", "--machine", machine, "--report", output)
        return json.loads(output.read_text())

    def attempt(self, before, flags):
        """(predictions by the profile before and by that after, the run's report, the profile after)."""
        report = self.report("bench", before, ["--dummy-weights", *flags])
        after = self.machine()
        times = [self.report("simulate", machine, flags)["time_s"] for machine in (before, after)]
        return times, report, after


def sum_of(time_s):
    return time_s["prefill"] + time_s["decode"]


def apart(times):
    sums = [sum_of(time_s) for time_s in times]
    return max(sums) / min(sums) - 1


def compare(measurer, before, model, name):
    """(row of the table, the latest profile)."""
    tries = []
    while len(tries) < measurer.options.attempts and not (tries and apart(tries[-1][0]) <= LIMIT):
        tries.append(measurer.attempt(before, ["--model", model, *RUNS[name].split()]))
        before = tries[-1][2]
    times, report, _ = min(tries, key=lambda one: apart(one[0]))
    predicted = {phase: statistics.mean(time_s[phase] for time_s in times) for phase in ("prefill", "decode")}
    measured, generated = report["time_s"], report["workload"]["generated_tokens"]
    return {
        "model": model, "run": name, "measured_tokens_per_s": generated / sum_of(measured),
        "predicted_tokens_per_s": generated / sum_of(predicted),
        "prefill_ratio": predicted["prefill"] / measured["prefill"],
        "decode_ratio": predicted["decode"] / measured["decode"],
        "ratio": sum_of(measured) / sum_of(predicted),
        "bound_by": report["predicted"]["bound_by"], "profiles_apart": apart(times),
    }, before


def line_of(row):
    return (f"| {row['model']} | {row['run']} | {row['measured_tokens_per_s']:.1f} | "
            f"{row['predicted_tokens_per_s']:.1f} | {row['ratio']:.2f} | {row['prefill_ratio']:.2f} | "
            f"{row['decode_ratio']:.2f} | {row['profiles_apart']:.0%} | {row['bound_by']} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("binary", type=lambda text: pathlib.Path(text).resolve())
    parser.add_argument("--machine", type=pathlib.Path)
    parser.add_argument("--attempts", type=int, default=3, help="of a run whose two profiles lie apart")
    parser.add_argument("--only", default="", help="runs whose model or name has this in it")
    parser.add_argument("--json", type=pathlib.Path)
    parser.add_argument("--work", type=pathlib.Path, help="a folder for the disk tier, on the disk to measure")
    options = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory(dir=options.work) as name:
        measurer = Measurer(options, pathlib.Path(name))
        latest = measurer.machine()
        print(f"{origin.processor_name()}, commit {origin.commit()}\n")
        print("| model | run | measured tokens/s | predicted | ratio | prefill_s ratio | decode_s ratio | "
              "profiles apart | bound by |")
        print("|---|---|---|---|---|---|---|---|---|")
        for model in MODELS:
            for run in RUNS:
                if options.only not in f"{model} {run}":
                    continue
                row, latest = compare(measurer, latest, model, run)
                rows.append(row)
                print(line_of(row), flush=True)
    if options.json:
        options.json.write_text(json.dumps(rows, indent=2) + "\n")
    off = [row for row in rows if abs(row["ratio"] - 1) > LIMIT]
    print(f"\n{len(rows) - len(off)} of {len(rows)} within {LIMIT:.0%}")
    sys.exit(1 if off else 0)


if __name__ == "__main__":
    main()
