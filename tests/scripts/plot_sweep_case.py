"""Common parts of the tests of scripts/plot_sweep.py: a Python that has matplotlib, folders of sweeps, the script as a process.
Whoever imports this goes on in Debian's Python, or ends with 77 (skipped), where this one has no matplotlib."""

import csv
import importlib.util
import json
import os
import pathlib
import subprocess
import sys

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
SCRIPT = REPOSITORY / "scripts" / "plot_sweep.py"
STUDY = REPOSITORY / "benchmarks" / "results" / "kv_quality.json"
DEBIAN_PYTHON = "/usr/bin/python3"  # which Debian's python3-matplotlib is for


def use_python_with_matplotlib():
    """Goes on in Debian's Python where this one has no matplotlib; skips where neither has."""
    if importlib.util.find_spec("matplotlib") is not None:
        return
    found = subprocess.run([DEBIAN_PYTHON, "-c", "import matplotlib"], capture_output=True, check=False)
    if found.returncode != 0 or sys.executable == DEBIAN_PYTHON:
        print("skipped: matplotlib is not installed (Debian: python3-matplotlib)")
        sys.exit(77)
    os.execv(DEBIAN_PYTHON, [DEBIAN_PYTHON, "-B", *sys.argv])


use_python_with_matplotlib()
sys.path[:0] = [str(REPOSITORY / "scripts"), str(REPOSITORY / "tests" / "cli")]
import harness  # noqa: E402
from sweep_plots import points  # noqa: E402

RATES = {"roof": "memory", "decode_flops_per_byte": "4", "decode_flops_per_s": "2e9", "roof_bytes_per_s": "1e9",
         "matmul_flops_per_s": "1e12"}
DEFAULTS = {"status": "measured", "name": "opt-125m, 8 + 4", "kv": "full", "generated_tokens_per_s": "10",
            "predicted_tokens_per_s": "11", "speedup_over_full_kv": "", "num_requests": "2", "prompt_tokens": "16",
            "generated_tokens": "8", "used_gpu_batch_size": "32", "used_num_gpu_batches": "3", "model_name": "opt-125m",
            "machine_name": "a machine", "error_code": "", "error": "", **dict.fromkeys(RATES, "")}
REFUSED = {"status": "refused", "error_code": "E-CPU-MEMORY", "error": "no room", "generated_tokens_per_s": "",
           "predicted_tokens_per_s": "", "num_requests": "", "model_name": "", "machine_name": ""}
FULL = {"policy": "full"}
H2O = {"policy": "h2o", "budget": {"kept": {"frac": 0.2}}}


def policy(kv, kv_bits=16, weight_bits=16):
    return {"kv": kv, "kv_bits": kv_bits, "weight_bits": weight_bits}


class Case(harness.FolderTest):
    def write(self, *rows, title="A title", reports=()):
        """A sweep's folder with these lines, and reports for the first of them."""
        names = list(dict.fromkeys(["point", "file", "as-flexgen", *DEFAULTS, *(key for row in rows for key in row)]))
        (self.folder / "points").mkdir(exist_ok=True)
        with open(self.folder / "results.csv", "w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, names, restval="")
            writer.writeheader()
            for number, row in enumerate(rows, 1):
                writer.writerow(DEFAULTS | {"point": number, "file": f"points/{number}.json"} | row)
        for number, report in enumerate(reports, 1):
            (self.folder / "points" / f"{number}.json").write_text(json.dumps(report))
        (self.folder / "grid.toml").write_text(f"title = {json.dumps(title)}\n")

    def sweep(self, *rows, **more):
        self.write(*rows, **more)
        return points.read_sweep(self.folder)

    def points(self, *rows, **more):
        return self.sweep(*rows, **more).points

    def json_file(self, name, document):
        path = self.folder / name
        path.write_text(json.dumps(document))
        return path

    def script(self, *words, status=0, env=None):
        """(stdout, stderr)"""
        done = subprocess.run([sys.executable, SCRIPT, *map(str, words)], capture_output=True, text=True, check=False,
                              env=os.environ | (env or {}))
        self.assertEqual(done.returncode, status, done.stderr)
        return done.stdout, done.stderr
