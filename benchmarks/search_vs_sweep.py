#!/usr/bin/env python3
"""What the policy search finds on this machine beside an exhaustive sweep, for three workloads. Standard library only.

  search_vs_sweep.py build/release/spillway [--machine machine.json] [--work DIR] [--rounds 5] [--json FILE]

Profiles the machine before each workload where no machine file is given. The sweep runs every block shape with every placement of
weights and KV that fits in the cap, and gives a run up when it has taken twice the fastest one's time. The found policy
and the fastest of the sweep then run in turns; what counts is the median of the ratios of rounds, since a machine that
others share is not the same from minute to minute. Prints a Markdown table; exit status 1 when a found policy is more
than 5 % behind.
"""

import argparse
import itertools
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile

import machine_profile
import origin

LIMIT = 0.05
FINALISTS = 3
GIVEN_UP_AT = 2  # times the fastest run
NOT_ENOUGH_MEMORY = (30, 31, 32)
WORKLOADS = {
    "all in memory": "--model opt-125m --cpu-memory 700MiB --prompt-len 64 --gen-len 16 --num-requests 64",
    "weights beyond the cap": "--model opt-350m --cpu-memory 400MiB --prompt-len 32 --gen-len 16 --num-requests 64",
    "KV beyond the cap": "--model opt-125m --cpu-memory 450MiB --prompt-len 128 --gen-len 32 --num-requests 64",
}
BATCH_SIZES = (8, 16, 32, 64)
NUM_BATCHES = (1, 2, 4)
WEIGHTS_ON_CPU = (100, 50, 0)  # percent; the rest is on disk
KV_ON_CPU = (100, 50, 0)


class Bench:
    """Runs of one workload."""

    def __init__(self, options, workload, folder):
        machine = options.machine or machine_profile.make(options.binary, folder)
        self.flags = ["--dummy-weights", "--quiet", "--machine", machine, "--offload-dir", folder, *workload.split()]
        self.binary = options.binary
        self.folder = folder

    def command(self, verb, *words):
        return [str(word) for word in (self.binary, verb, *self.flags, *words)]

    def search(self):
        policy = self.folder / "found.json"
        subprocess.run(self.command("search", "--output", policy), check=True, stdout=subprocess.DEVNULL)
        return policy

    def make_store(self):
        """Makes the store, which the first run with weights on disk would make at the cost of its time."""
        self.run(["--gpu-batch-size", 64, "--num-gpu-batches", 1, "--percent", 0, 0, 0, 0, 0, 100])

    def run(self, words, limit_s=None):
        """(generated tokens/s, seconds of the whole process); None where it does not fit or takes too long."""
        report = self.folder / "report.json"
        try:
            done = subprocess.run(self.command("bench", "--report", report, *words), capture_output=True, text=True,
                                  check=False, timeout=limit_s)
        except subprocess.TimeoutExpired:
            return None
        if done.returncode in NOT_ENOUGH_MEMORY:
            return None
        if done.returncode != 0:
            sys.exit(done.stderr)
        time_s = json.loads(report.read_text())["time_s"]
        generated = json.loads(report.read_text())["workload"]["generated_tokens"]
        return generated / (time_s["prefill"] + time_s["decode"]), time_s["total"]


def grid(num_requests):
    for batch, batches in itertools.product(BATCH_SIZES, NUM_BATCHES):
        if batch * batches > num_requests:
            continue
        for weights, kv in itertools.product(WEIGHTS_ON_CPU, KV_ON_CPU):
            yield ["--gpu-batch-size", batch, "--num-gpu-batches", batches, "--percent", 0, weights, 0, kv, 0, 100]


def sweep(bench, num_requests):
    """[(tokens/s, flags)] of all that fit and end in time, the fastest first."""
    rates, limit_s = [], None
    for words in grid(num_requests):
        found = bench.run(words, limit_s)
        if found is None:
            continue
        rate, total_s = found
        if not rates or rate > max(rates)[0]:
            limit_s = max(5.0, GIVEN_UP_AT * total_s)
        rates.append((rate, words))
    return sorted(rates, key=lambda pair: pair[0], reverse=True)


def compare(options, name, folder):
    bench = Bench(options, WORKLOADS[name], folder)
    words = WORKLOADS[name].split()
    bench.make_store()
    swept = sweep(bench, int(words[words.index("--num-requests") + 1]))
    sides = {"found": ["--policy", bench.search()]}
    sides |= {" ".join(map(str, words)): words for _, words in swept[:FINALISTS]}
    rates = {side: [] for side in sides}
    for _ in range(options.rounds):
        for side, words in sides.items():
            found = bench.run(words)
            if found is None:
                sys.exit(f"search_vs_sweep: {name}, {side}: ran or was promised to, and now does not fit in memory")
            rates[side].append(found[0])
    medians = {side: statistics.median(of_side) for side, of_side in rates.items()}
    best = max((side for side in sides if side != "found"), key=medians.get)
    # Runs of one round met the same moments of a machine that others share.
    ratio = statistics.median(found / other for found, other in zip(rates["found"], rates[best]))
    policy = json.loads((folder / "found.json").read_text())
    return {"workload": name, "flags": WORKLOADS[name], "points": len(swept), "found_tokens_per_s": medians["found"],
            "best_tokens_per_s": medians[best], "best": best, "ratio": ratio,
            "found": {key: policy[key] for key in ("gpu_batch_size", "num_gpu_batches", "weight_frac", "kv_frac")}}


def text_of(policy):
    return (f"{policy['gpu_batch_size']} x {policy['num_gpu_batches']}, {100 * policy['weight_frac']['cpu']:.0f} % of the "
            f"weights and {100 * policy['kv_frac']['cpu']:.0f} % of the KV in memory")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("binary", type=lambda text: pathlib.Path(text).resolve())
    parser.add_argument("--machine", type=pathlib.Path)
    parser.add_argument("--rounds", type=int, default=5, help="of the found policy and the sweep's fastest, in turns")
    parser.add_argument("--work", type=pathlib.Path, help="a folder for the disk tier, on the disk to measure")
    parser.add_argument("--only", default="", help="workloads whose name has this in it")
    parser.add_argument("--json", type=pathlib.Path)
    options = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory(dir=options.work) as name:
        folder = pathlib.Path(name)
        print(f"{origin.processor_name()}, commit {origin.commit()}\n")
        print("| workload | points that ran | best of the sweep | tokens/s | found by search | tokens/s | found / best |")
        print("|---|---|---|---|---|---|---|")
        for workload in WORKLOADS:
            if options.only not in workload:
                continue
            row = compare(options, workload, folder)
            rows.append(row)
            print(f"| {workload} | {row['points']} | {row['best']} | {row['best_tokens_per_s']:.0f} | "
                  f"{text_of(row['found'])} | {row['found_tokens_per_s']:.0f} | {row['ratio']:.2f} |", flush=True)
    if options.json:
        options.json.write_text(json.dumps({"commit": origin.commit(), "rows": rows}, indent=1) + "\n")
    sys.exit(1 if any(row["ratio"] < 1 - LIMIT for row in rows) else 0)


if __name__ == "__main__":
    main()
