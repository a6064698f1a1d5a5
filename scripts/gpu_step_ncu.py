"""The slowest kernels of a run, by Nsight Compute (ncu), and what it says of them. Standard library only."""

import csv
import io

from gpu_step_run import CUT_OFF, FAILED, OK, Verdict

METRIC = "gpu__time_duration.sum"
NUM_SLOWEST = 3
SECTIONS = ["SpeedOfLight", "MemoryWorkloadAnalysis", "Occupancy", "LaunchStats", "WarpStateStats"]
# The GPU's clocks are left as they are.
FLAGS = ["--clock-control", "none", "--target-processes", "all", "--kernel-name-base", "function", "--print-kernel-base",
         "function"]


def times(text):
    """{kernel: (launches, ns)}, the longest first, from the raw page as CSV; its second row has the units."""
    begin = text.find('"ID"')
    kernels = {}
    for row in csv.DictReader(io.StringIO(text[begin:])) if begin >= 0 else []:
        if not row["ID"] or not row.get(METRIC):
            continue
        launches, total = kernels.get(row["Kernel Name"], (0, 0.0))
        kernels[row["Kernel Name"]] = launches + 1, total + float(row[METRIC].replace(",", ""))
    return dict(sorted(kernels.items(), key=lambda kernel: -kernel[1][1]))


def text_of(kernels):
    """The slowest, and their shares of all kernels' time."""
    whole = sum(total for _, total in kernels.values())
    shares = [f"{name} {total / whole:.0%}" for name, (_, total) in kernels.items()]
    return f"{', '.join(shares[:NUM_SLOWEST])} of {whole / 1e6:.3g} ms"


def run(step, left, tool, words):
    """All kernels timed, then the slowest looked into; `left` says how many seconds there are. tool: ncu, and what this use of
    it is called."""
    program, title = tool
    csv_file = step.new_folder(f"{title}-times") / "times.csv"
    timed = [program, *FLAGS, "--csv", "--page", "raw", "--print-units", "base", "--metrics", METRIC, "--launch-count", 1500,
             "--log-file", csv_file, *words]
    done = step.command(title, timed, max(10.0, left() * 0.6))
    kernels = times(csv_file.read_text()) if csv_file.exists() else {}
    if not kernels:
        return Verdict(CUT_OFF if done.stopped else FAILED, f"no kernel was timed: {done.text.strip()[-200:]}")
    step.keep_json(f"{title}.json", kernels)
    sections = [word for section in SECTIONS for word in ("--section", section)]
    for number, name in enumerate(list(kernels)[:NUM_SLOWEST]):
        if left() < 10:
            return Verdict(CUT_OFF, f"{text_of(kernels)}; looked into {number} of them")
        look = [program, *FLAGS, *sections, "--kernel-name", name, "--launch-skip", 2, "--launch-count", 2, *words]
        step.command(f"{title}-{name}", look, left())
    return Verdict(OK, text_of(kernels))
