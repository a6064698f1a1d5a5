#!/usr/bin/env python3
"""How far the rates of `spillway profile` lie apart from run to run. Standard library only.

  profile_repeat.py build/release/spillway [--runs 3] [--quick] [--offload-dir DIR]

Prints a line a rate: lowest, highest, and their distance as a share of the highest. Exit status 1 when one is further
apart than 10 %. Says nothing of a machine on which something else runs: `profile` itself tells when that was so.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile

LIMIT = 0.10


def rates_of(machine):
    """name -> rate; a time as its inverse, so that more is faster everywhere."""
    cpu = machine["cpu"]
    rates = dict(machine["link_bytes_per_s"])
    rates |= {key: cpu[key] for key in ("memory_bytes_per_s", "prefill_attention_flops_per_s",
                                        "decode_attention_bytes_per_s")}
    rates |= {key: cpu[key] for key in cpu if key not in rates | {"matmul": 0, "launch_s": 0}}
    rates |= {f"matmul, rows {entry['rows']}": entry["flops_per_s"] for entry in cpu["matmul"]}
    rates |= {f"narrow matmul, rows {entry['rows']}": entry["narrow_flops_per_s"] for entry in cpu["matmul"]}
    return rates | {"launches_per_s": 1 / cpu["launch_s"]}


def measure(options, folder):
    output = folder / "machine.json"
    command = [options.binary, "profile", "--no-progress", "--output", output]
    command += ["--quick"] if options.quick else []
    command += ["--offload-dir", options.offload_dir] if options.offload_dir else []
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=True,
                          env=os.environ | {"XDG_CACHE_HOME": str(folder)})
    for line in done.stdout.splitlines():
        if line.split()[0] in ("disturbed", "measured"):
            print(line)
    return rates_of(json.loads(output.read_text()))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("binary", type=pathlib.Path)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--offload-dir", type=pathlib.Path)
    options = parser.parse_args()
    options.binary = options.binary.resolve()
    with tempfile.TemporaryDirectory() as folder:
        runs = [measure(options, pathlib.Path(folder)) for _ in range(options.runs)]
    worst = 0.0
    for name in runs[0]:
        values = [run[name] for run in runs]
        apart = 1 - min(values) / max(values)
        worst = max(worst, apart)
        print(f"{name:<32}{min(values):>12.4g}{max(values):>12.4g}{apart:>8.1%}")
    sys.exit(1 if worst > LIMIT else 0)


if __name__ == "__main__":
    main()
