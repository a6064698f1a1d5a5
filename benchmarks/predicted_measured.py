#!/usr/bin/env python3
"""How far the cost model is off on this machine: runs of dummy models beside their predictions. Standard library only.

  predicted_measured.py build/release/spillway [--machine machine.json] [--repeats 3] [--only WORD] [--json FILE]

The machine is profiled before each model's runs, for shared machines change within minutes, or is that of --machine.
What is compared is what each run's report states: `predicted`, from that profile and, where weights are on disk, from
the rate of the run's own store before its first pass. Each run is repeated, and the one of the median ratio of total
times counts. Prints a Markdown table, a line a run, with predicted over measured seconds for prefill and decode and
measured over predicted total seconds, and how many runs are within 10 % in both phases and in total; exit status 1 when
one is more than 10 % off in total.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile

import machine_profile
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

    def spillway(self, *words):
        command = [str(word) for word in (self.options.binary, *words, "--offload-dir", self.folder)]
        done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                              env=os.environ | {"XDG_CACHE_HOME": str(self.folder)})
        if done.returncode != 0:
            sys.exit(f"{' '.join(command)}: exit {done.returncode}: {done.stderr.strip()[-300:]}")

    def report(self, machine, flags):
        output = self.folder / "report.json"
        self.spillway("bench", "--dummy-weights", *flags, "--quiet", "--machine", machine, "--report", output)
        return json.loads(output.read_text())


def sum_of(time_s):
    return time_s["prefill"] + time_s["decode"]


def row_of(model, name, report):
    measured, predicted = report["time_s"], report["predicted"]
    predicted_s = predicted["prefill_s"] + predicted["decode_s"]
    generated = report["workload"]["generated_tokens"]
    return {
        "model": model, "run": name, "measured_tokens_per_s": generated / sum_of(measured),
        "predicted_tokens_per_s": generated / predicted_s,
        "prefill_ratio": predicted["prefill_s"] / measured["prefill"],
        "decode_ratio": predicted["decode_s"] / measured["decode"],
        "ratio": sum_of(measured) / predicted_s,
        "bound_by": predicted["bound_by"],
    }


def compare(measurer, machine, model, name):
    """The row of the table: of the repeats, the one in the middle."""
    flags = ["--model", model, *RUNS[name].split()]
    rows = [row_of(model, name, measurer.report(machine, flags)) for _ in range(measurer.options.repeats)]
    rows.sort(key=lambda row: row["ratio"])
    middle = rows[len(rows) // 2]
    return middle | {"lowest_ratio": rows[0]["ratio"], "highest_ratio": rows[-1]["ratio"]}


def is_within(ratio):
    return abs(ratio - 1) <= LIMIT


def line_of(row):
    return (f"| {row['model']} | {row['run']} | {row['measured_tokens_per_s']:.1f} | "
            f"{row['predicted_tokens_per_s']:.1f} | {row['ratio']:.2f} | {row['lowest_ratio']:.2f} to "
            f"{row['highest_ratio']:.2f} | {row['prefill_ratio']:.2f} | {row['decode_ratio']:.2f} | {row['bound_by']} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("binary", type=lambda text: pathlib.Path(text).resolve())
    parser.add_argument("--machine", type=pathlib.Path)
    parser.add_argument("--repeats", type=int, default=3, help="of each run")
    parser.add_argument("--only", default="", help="runs whose model or name has this in it")
    parser.add_argument("--json", type=pathlib.Path)
    parser.add_argument("--work", type=pathlib.Path, help="a folder for the disk tier, on the disk to measure")
    options = parser.parse_args()
    wanted = {model: [run for run in RUNS if options.only in f"{model} {run}"] for model in MODELS}
    if not any(wanted.values()):
        parser.error(f"--only {options.only}: no model or run has this in its name")
    rows = []
    with tempfile.TemporaryDirectory(dir=options.work) as name:
        measurer = Measurer(options, pathlib.Path(name))
        print(f"{origin.processor_name()}, commit {origin.commit()}\n")
        print("| model | run | measured tokens/s | predicted | ratio | of all repeats | prefill_s ratio | decode_s ratio | "
              "bound by |")
        print("|---|---|---|---|---|---|---|---|---|")
        for model, runs in wanted.items():
            if not runs:
                continue
            machine = options.machine or machine_profile.make(options.binary, measurer.folder)
            for run in runs:
                row = compare(measurer, machine, model, run)
                rows.append(row)
                print(line_of(row), flush=True)
    if options.json:
        options.json.write_text(json.dumps(rows, indent=2) + "\n")
    in_total = [row for row in rows if is_within(row["ratio"])]
    in_both = [row for row in rows if is_within(row["prefill_ratio"]) and is_within(row["decode_ratio"])]
    print(f"\nof {len(rows)} runs within {LIMIT:.0%}: {len(in_total)} in total time, {len(in_both)} in both phases")
    sys.exit(0 if len(in_total) == len(rows) else 1)


if __name__ == "__main__":
    main()
