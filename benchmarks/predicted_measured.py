"""How far the cost model is off on this machine: runs of dummy models beside their predictions. Standard library only.

  predicted_measured.py build/release/spillway [--machine machine.json] [--rounds 3] [--only WORD] [--json FILE]

Profiles the machine first where no machine file is given. A run counts with its fastest round, each phase by itself:
what else the machine does can only slow one down. Prints a Markdown table, a line a run, with predicted over measured
seconds for prefill and decode and predicted over measured generated tokens/s; exit status 1 when one is more than 10 %
off.
"""

import argparse
import json
import os
import pathlib
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


def run_once(options, words, folder):
    report = folder / "report.json"
    command = [options.binary, "bench", "--dummy-weights", "--quiet", "--machine", options.machine, "--report", report,
               "--offload-dir", folder, *words]
    subprocess.run([str(word) for word in command], check=True)
    return json.loads(report.read_text())


def compare(options, model, name, folder):
    rounds = [run_once(options, ["--model", model, *RUNS[name].split()], folder) for _ in range(options.rounds)]
    predicted = rounds[0]["predicted"]
    measured = {phase: min(report["time_s"][phase] for report in rounds) for phase in ("prefill", "decode")}
    generated = rounds[0]["workload"]["generated_tokens"]
    rate = generated / sum(measured.values())
    return {
        "model": model, "run": name, "measured_tokens_per_s": rate,
        "predicted_tokens_per_s": predicted["generated_tokens_per_s"],
        "prefill_ratio": predicted["prefill_s"] / measured["prefill"],
        "decode_ratio": predicted["decode_s"] / measured["decode"],
        "ratio": predicted["generated_tokens_per_s"] / rate,
        "bound_by": predicted["bound_by"],
    }


def line_of(row):
    return (f"| {row['model']} | {row['run']} | {row['measured_tokens_per_s']:.1f} | "
            f"{row['predicted_tokens_per_s']:.1f} | {row['ratio']:.2f} | {row['prefill_ratio']:.2f} | "
            f"{row['decode_ratio']:.2f} | {row['bound_by']} |")


def profile(options, folder):
    options.machine = folder / "machine.json"
    command = [options.binary, "profile", "--no-progress", "--output", options.machine, "--offload-dir", folder]
    done = subprocess.run([str(word) for word in command], check=True, capture_output=True, text=True,
                          env=os.environ | {"XDG_CACHE_HOME": str(folder)})
    print(*(line for line in done.stdout.splitlines() if line.split()[:1] == ["disturbed"]), sep="\n", end="")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("binary", type=lambda text: pathlib.Path(text).resolve())
    parser.add_argument("--machine", type=pathlib.Path)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default="", help="runs whose model or name has this in it")
    parser.add_argument("--json", type=pathlib.Path)
    parser.add_argument("--work", type=pathlib.Path, help="a folder for the disk tier, on the disk to measure")
    options = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory(dir=options.work) as name:
        folder = pathlib.Path(name)
        if options.machine is None:
            profile(options, folder)
        print(f"{origin.processor_name()}, commit {origin.commit()}\n")
        print("| model | run | measured tokens/s | predicted | ratio | prefill_s ratio | decode_s ratio | bound by |")
        print("|---|---|---|---|---|---|---|---|")
        for model in MODELS:
            for run in RUNS:
                if options.only not in f"{model} {run}":
                    continue
                rows.append(compare(options, model, run, folder))
                print(line_of(rows[-1]), flush=True)
    if options.json:
        options.json.write_text(json.dumps(rows, indent=2) + "\n")
    off = [row for row in rows if abs(row["ratio"] - 1) > LIMIT]
    print(f"\n{len(rows) - len(off)} of {len(rows)} within {LIMIT:.0%}")
    sys.exit(1 if off else 0)


if __name__ == "__main__":
    main()
