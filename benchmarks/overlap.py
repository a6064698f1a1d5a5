#!/usr/bin/env python3
"""How much of the transfers hides behind compute: the same decode run overlapped and with --no-overlap.

  python benchmarks/overlap.py path/to/spillway --work /var/tmp/overlap

Three shapes of one block, all weights on disk: one that the disk bounds, one that has about as much of both, one that
compute bounds. Serial, a decode takes the sum of its parts; overlapped, it should take the longer of the two. Each run's
share of the disk's rate is that of plain O_DIRECT reads of the same store before and after it. Standard library only.
"""

import argparse
import json
import pathlib
import subprocess
import tempfile

import origin
import other_programs
import raw_disk

PROMPT_TOKENS = 8
CASES = [  # model, rows in a batch, batches, new tokens
    ("opt-1.3b", 64, 1, 12),
    ("opt-125m", 64, 4, 40),
    ("opt-125m", 64, 16, 20),
]


def run(binary, work, case, flags=()):
    model, batch_size, batches, new_tokens = case
    with tempfile.TemporaryDirectory() as folder:
        report = pathlib.Path(folder) / "report.json"
        words = [binary, "bench", "--model", model, "--dummy-weights", "--quiet", "--report", report]
        words += ["--prompt-len", PROMPT_TOKENS, "--gen-len", new_tokens, "--num-requests", batch_size * batches]
        words += ["--gpu-batch-size", batch_size, "--num-gpu-batches", batches]
        words += ["--percent", 0, 0, 0, 100, 0, 100, "--offload-dir", work, *flags]
        subprocess.run([*map(str, words)], check=True)
        return json.loads(report.read_text())


def figures(report):
    """Figures of the decode, in seconds and bytes per second."""
    phase = report["phases"]["decode"]
    link = phase["links"]["disk_read"]
    return {
        "decode_s": report["time_s"]["decode"],
        "compute_s": phase["compute_s"],
        "disk_s": link["busy_s"],
        "disk_rate": link["bytes"] / report["time_s"]["decode"],
    }


def store_of(work, model):
    """The weights' file that the runs of this model read."""
    sizes = {path / "weights.bin": (path / "weights.bin").stat().st_size for path in work.glob("spillway-*.store")}
    by_size = sorted(sizes, key=sizes.get)
    return by_size[0] if model == "opt-125m" else by_size[-1]


def measure(binary, work, case):
    run(binary, work, case[:3] + (2,))  # makes the store
    file = store_of(work, case[0])
    before = raw_disk.read_rate(file)
    overlapped = figures(run(binary, work, case))
    serial = figures(run(binary, work, case, ["--no-overlap"]))
    raw = max(before, raw_disk.read_rate(file))
    return {"case": case, "raw_disk_rate": raw, "overlapped": overlapped, "serial": serial}


def print_row(result):
    model, batch_size, batches, _ = result["case"]
    overlapped, serial = result["overlapped"], result["serial"]
    longer = max(serial["compute_s"], serial["disk_s"])
    print(f"| {model}, {batch_size} x {batches} | {serial['disk_s']:.1f} | {serial['compute_s']:.1f}"
          f" | {serial['decode_s']:.1f} | {overlapped['decode_s']:.1f} | {overlapped['decode_s'] / longer:.2f}"
          f" | {100 * overlapped['compute_s'] / overlapped['decode_s']:.0f} %"
          f" | {100 * overlapped['disk_s'] / overlapped['decode_s']:.0f} %"
          f" | {overlapped['disk_rate'] / 1e9:.2f} of {result['raw_disk_rate'] / 1e9:.2f} |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("binary", type=pathlib.Path)
    parser.add_argument("--work", type=pathlib.Path, required=True, help="where the stores are made (empty, 3 GB)")
    parser.add_argument("--output", type=pathlib.Path, help="the figures as JSON")
    args = parser.parse_args()
    args.work.mkdir(parents=True, exist_ok=True)
    others = other_programs.OtherPrograms()
    print(f"{origin.processor_name()}, commit {origin.commit()}\n")
    print("| block | disk alone, s | compute alone, s | serial, s | overlapped, s | over the longer one | compute busy"
          " | disk busy | disk GB/s |")
    print("|---|---|---|---|---|---|---|---|---|")
    results = []
    for case in CASES:
        results.append(measure(args.binary.resolve(), args.work.resolve(), case))
        print_row(results[-1])
    print(f"\nother programs took {100 * others.frac():.0f} % of the processor")
    if args.output:
        args.output.write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
