#!/usr/bin/env python3
"""Throughput over block size, as the cost model has it: for each number of rows the best placement, and what would bound
it alone. OPT-30B, 512 prompt and 32 new tokens, on the T4 of the papers. Nothing here is measured.

  block_size.py build/release/spillway [--output benchmarks/results/block_size.png]

Needs the PyPI package matplotlib. A bound is generated tokens over the seconds in which the links move weights, or KV
and activations, or in which the processors compute; the schedule overlaps the three, so the prediction lies below the
lowest. Where no block of so many rows fits, memory is the bound.
"""

import argparse
import collections
import json
import pathlib
import subprocess
import sys
import tempfile

import origin

SETTING = ["--model", "opt-30b", "--machine", origin.REPOSITORY / "examples" / "machines" / "t4.json",
           "--prompt-len", 512, "--gen-len", 32, "--gpu-memory", "16GiB", "--cpu-memory", "208GiB",
           "--disk-space", "1500GiB"]
PANELS = {"full KV": [], "H2O, 20 % of the KV": ["--kv-policy", "h2o", "--kv-budget", "20%"]}
BATCH_SIZES = (4, 8, 16, 32, 48, 64, 96)
NUM_BATCHES = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)
NOT_ENOUGH_MEMORY = (30, 31, 32)
COLORS = {"weights": "tab:blue", "KV and activations": "tab:orange", "compute": "tab:green"}
BOUND_OF = {"weights": "weights", "kv": "KV and activations", "activations": "KV and activations",
            "compute": "compute"}


class Spillway:
    def __init__(self, binary, folder):
        self.binary = binary
        self.folder = folder

    def run(self, verb, *words):
        command = [self.binary, verb, *SETTING, "--quiet", *words]
        return subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False)

    def search(self, *words):
        """(policy file, report); None where nothing fits."""
        policy, report = self.folder / "policy.json", self.folder / "report.json"
        done = self.run("search", "--output", policy, "--report", report, *words)
        if done.returncode in NOT_ENOUGH_MEMORY:
            return None
        if done.returncode != 0:
            sys.exit(done.stderr)
        return policy, json.loads(report.read_text())

    def bounds(self, policy, rows):
        """Tokens/s by what alone would bound them, of one block."""
        trace, report = self.folder / "trace.json", self.folder / "simulated.json"
        done = self.run("simulate", "--policy", policy, "--num-requests", rows, "--trace", trace, "--report", report)
        if done.returncode != 0:
            sys.exit(done.stderr)
        generated = json.loads(report.read_text())["workload"]["generated_tokens"]
        busy_s = busy_seconds(json.loads(trace.read_text())["traceEvents"])
        return {name: generated / seconds for name, seconds in busy_s.items() if seconds > 0}


def busy_seconds(events):
    """Seconds by bound, of the link or processor that has most to do for it."""
    tracks = {event["tid"]: event["args"]["name"] for event in events if event["name"] == "thread_name"}
    busy_s = collections.Counter()
    for event in events:
        if event["ph"] == "X" and tracks[event["tid"]] != "waiting" and event["cat"] in BOUND_OF:
            busy_s[BOUND_OF[event["cat"]], event["tid"]] += event["dur"] / 1e6
    longest = {}
    for (name, _), seconds in busy_s.items():
        longest[name] = max(seconds, longest.get(name, 0))
    return longest


def rows_of(report):
    return report["block"]["gpu_batch_size"] * report["block"]["num_gpu_batches"]


def curve_of(spillway, flags):
    """The best split of each block size into batches, and the smallest that does not fit."""
    best, unfit = {}, []
    for batch_size in BATCH_SIZES:
        for num_batches in NUM_BATCHES:
            rows = batch_size * num_batches
            found = spillway.search(*flags, "--gpu-batch-size", batch_size, "--num-gpu-batches", num_batches)
            if found is None:
                unfit.append(rows)
                break
            policy, report = found
            rate = report["predicted"]["generated_tokens_per_s"]
            if rate > best.get(rows, {"tokens_per_s": 0})["tokens_per_s"]:
                best[rows] = {"rows": rows, "tokens_per_s": rate, "batch_size": batch_size,
                              "bounds": spillway.bounds(policy, rows)}
    largest = max(best)
    return [best[rows] for rows in sorted(best)], min((rows for rows in unfit if rows > largest), default=None)


def draw(pyplot, result):
    figure, panels = pyplot.subplots(1, len(result), figsize=(13, 5.5), sharex=True, sharey=True, layout="constrained")
    for axes, (title, found) in zip(panels, result.items()):
        axes.set_xscale("log", base=2)
        axes.set_yscale("log", base=2)
        rows = [point["rows"] for point in found["curve"]]
        for name, color in COLORS.items():
            line = [(point["rows"], point["bounds"][name]) for point in found["curve"] if name in point["bounds"]]
            axes.plot(*zip(*line), "--", color=color, label=f"bound by {name} alone")
        axes.plot(rows, [point["tokens_per_s"] for point in found["curve"]], "o-", color="black", markersize=4,
                  label="predicted")
        if found["too_large"]:
            axes.axvspan(found["too_large"], 2 * found["too_large"], color="gray", alpha=0.25, label="does not fit")
        chosen = found["chosen"]
        axes.plot(chosen["rows"], chosen["tokens_per_s"], "*", color="tab:red", markersize=16,
                  label=f"chosen: {chosen['rows']} rows, {chosen['tokens_per_s']:.1f} tokens/s")
        axes.set_ylim(0.25, 128)
        axes.xaxis.set_major_formatter("{x:g}")
        axes.yaxis.set_major_formatter("{x:g}")
        axes.set_xlabel("rows in a block")
        axes.set_title(title)
        axes.grid(alpha=0.3)
        axes.legend(fontsize=9, loc="lower right")
    panels[0].set_ylabel("generated tokens/s, predicted")
    figure.suptitle("OPT-30B, 512 + 32 tokens, on a T4 (16 GiB, 208 GiB, 1.5 TB): the cost model")
    return figure


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("binary", type=lambda text: pathlib.Path(text).resolve())
    parser.add_argument("--output", type=pathlib.Path,
                        default=origin.REPOSITORY / "benchmarks" / "results" / "block_size.png")
    options = parser.parse_args()
    try:
        import matplotlib
    except ImportError:
        sys.exit("block_size: needs matplotlib; install it with: python3 -m pip install matplotlib")
    matplotlib.use("Agg")  # no display is needed
    import matplotlib.pyplot

    result = {}
    with tempfile.TemporaryDirectory() as name:
        spillway = Spillway(options.binary, pathlib.Path(name))
        for title, flags in PANELS.items():
            _, report = spillway.search(*flags)
            curve, too_large = curve_of(spillway, flags)
            chosen = {"rows": rows_of(report), "tokens_per_s": report["predicted"]["generated_tokens_per_s"]}
            result[title] = {"curve": curve, "too_large": too_large, "chosen": chosen}
            print(title, chosen)
    draw(matplotlib.pyplot, result).savefig(options.output, dpi=110)
    options.output.with_suffix(".json").write_text(
        json.dumps({"commit": origin.commit(), "found": result}, indent=1) + "\n")


if __name__ == "__main__":
    main()
