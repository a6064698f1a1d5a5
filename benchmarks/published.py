#!/usr/bin/env python3
"""The papers' throughput tables beside Spillway's: simulated on the papers' machines, and measured on this one, written as
benchmarks/published.md. Runs the grids of examples/sweeps.
--measure runs the grid h2o-cpu on this machine, which wants it alone. Standard library only.

  python3 benchmarks/published.py build/release/spillway --work DIR [--measure] [--measured DIR ...] [--output FILE]
"""

import argparse
import csv
import datetime
import json
import pathlib
import shutil
import subprocess
import sys

import origin
from other_programs import QUIET_FRAC, OtherPrograms

GRIDS = origin.REPOSITORY / "examples" / "sweeps"
SIMULATED = ["flexgen-t4", "h2o-t4-published", "h2o-t4"]
MEASURED = "h2o-cpu"
A_ROW_COULD_NOT_RUN = 21

# H2O (arXiv 2306.14048), one T4 of 16 GB, prompts of 512 tokens: (model, new tokens) -> tokens/s.
SYSTEMS = ["Accelerate", "DeepSpeed", "FlexGen", "H2O"]
H2O_TABLE = {
    ("opt-6.7b", 32): [20.4, 10.2, 20.2, 35.1],
    ("opt-6.7b", 512): [15.5, 9.6, 16.8, 51.7],
    ("opt-6.7b", 1024): [5.6, 10.1, 16.9, 52.1],
    ("opt-30b", 32): [0.6, 0.6, 8.1, 12.66],
    ("opt-30b", 512): [0.6, 0.6, 8.5, 18.83],
    ("opt-30b", 1024): [0.6, 0.6, 7.1, 13.82],
}
# FlexGen (arXiv 2303.06865), the same machine, 512 + 32 tokens: model -> tokens/s.
FLEXGEN_TABLE = {"opt-6.7b": 25.3, "opt-30b": 7.32, "opt-175b": 0.69}
# H2O, one A100 of 80 GB: (prompt, new tokens, model, batch) -> seconds of FlexGen and of H2O.
A100_TABLE = {
    (7000, 1024, "opt-30b", 1): [57.0, 50.4],
    (5000, 5000, "opt-13b", 4): [214.2, 155.4],
    (2048, 2048, "opt-6.7b", 24): [99.5, 53.5],
}


def sweep(binary, grid, folder):
    """Rows of results.csv. Points of an earlier call are run again: they may be another commit's."""
    shutil.rmtree(folder, ignore_errors=True)
    done = subprocess.run([binary, "sweep", GRIDS / f"{grid}.toml", "--output", folder], cwd=origin.REPOSITORY,
                          check=False)
    if done.returncode not in (0, A_ROW_COULD_NOT_RUN):
        sys.exit(f"published: the sweep {grid} ended with status {done.returncode}")
    return read_rows(folder)


def read_rows(folder):
    with open(folder / "results.csv", newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def rate_text(row):
    return f'{float(row["generated_tokens_per_s"]):.3g}' if row["generated_tokens_per_s"] else row["error_code"]


def find(rows, **wanted):
    """The rate of the one row with these settings; a dash where the grid has none."""
    found = [row for row in rows if all(row.get(key.replace("_", "-")) == value for key, value in wanted.items())]
    if len(found) > 1:
        sys.exit(f"published: {len(found)} rows have {wanted}")
    return rate_text(found[0]) if found else "-"


def beside(simulated, *published):
    """A simulated rate and what it is of the published ones, the lowest of these first."""
    try:
        rate = float(simulated)
    except ValueError:
        return simulated
    ratios = dict.fromkeys(f"{rate / other:.2f}" for other in sorted(published, reverse=True))
    return f"{simulated} ({' to '.join(ratios)} x)"


def policy_of(system, model, gen_len, prompt_len=512):
    return f"examples/policies/{system}-{model}-{prompt_len}-{gen_len}.json"


def table(header, lines):
    cells = [header, ["---"] * len(header), *lines]
    return "".join("| " + " | ".join(map(str, line)) + " |\n" for line in cells)


def h2o_table(under_published, found):
    lines = []
    for (model, gen_len), published in H2O_TABLE.items():
        line = [f"{model}, 512 + {gen_len}", *published]
        full, h2o = ([find(under_published, model=model, gen_len=str(gen_len), as_flexgen=as_flexgen,
                           policy=policy_of(system, model, gen_len)) for as_flexgen in ("true", "false")]
                     for system in ("flexgen", "h2o"))
        flexgen_rates = [published[SYSTEMS.index("FlexGen")]] + ([FLEXGEN_TABLE[model]] if gen_len == 32 else [])
        line += [beside(full[0], *flexgen_rates), beside(h2o[0], published[SYSTEMS.index("H2O")]), full[1], h2o[1]]
        line += [find(found, model=model, gen_len=str(gen_len), kv_policy=kv) for kv in ("full", "h2o")]
        lines.append(line)
    header = ["model, prompt + new", *(f"{system} (published)" for system in SYSTEMS),
              "FlexGen's schedule, full (simulated)", "and H2O", "Spillway, published policy, full (simulated)",
              "and H2O", "Spillway, policy found, full (simulated)", "and H2O"]
    return table(header, lines)


def flexgen_table(rows):
    lines = []
    for model, published in FLEXGEN_TABLE.items():
        policy = policy_of("flexgen", model, 32)
        lines.append([model, published, beside(find(rows, model=model, policy=policy, as_flexgen="true"), published),
                      find(rows, model=model, policy=policy, as_flexgen="false"),
                      find(rows, model=model, policy="auto")])
    return table(["model, 512 + 32", "FlexGen (published)", "FlexGen's schedule (simulated)",
                  "Spillway, published policy (simulated)", "Spillway, policy found (simulated)"], lines)


def a100_table(binary):
    lines = []
    for (prompt_len, gen_len, model, batch), published in A100_TABLE.items():
        words = ["simulate", "--model", model, "--machine", "examples/machines/a100-80.json", "--prompt-len", prompt_len,
                 "--gen-len", gen_len, "--gpu-batch-size", batch, "--num-requests", batch, "--quiet"]
        done = subprocess.run([binary, *map(str, words)], cwd=origin.REPOSITORY, capture_output=True, text=True,
                              check=False)
        if done.returncode == 0:
            sys.exit(f"published: {model} runs with {prompt_len} + {gen_len} tokens now; give its seconds a column")
        lines.append([f"{model}, {prompt_len} + {gen_len}, batch {batch}", *published,
                      f'refused: {done.stderr.strip().partition("]: ")[2]}'])
    return table(["model, prompt + new", "FlexGen, s (published)", "H2O, s (published)", "Spillway"], lines)


def measured_table(rows):
    lines = []
    for row in rows:
        if row["status"] != "measured":
            lines.append([row["name"], row["kv"], "-", row["error"], "-", "-"])
            continue
        requests = int(row["num_requests"])
        lengths = f'{int(row["prompt_tokens"]) // requests} + {int(row["generated_tokens"]) // requests}'
        speedup = f'{float(row["speedup_over_full_kv"]):.2f} x' if row["speedup_over_full_kv"] else "-"
        predicted = f'{float(row["predicted_tokens_per_s"]):.3g}' if row["predicted_tokens_per_s"] else "-"
        lines.append([f'{row["model_name"]}, {lengths}', row["kv"],
                      f'{requests} in {row["num_blocks"]} of {row["used_gpu_batch_size"]} x {row["used_num_gpu_batches"]}',
                      rate_text(row), speedup, predicted])
    header = ["model, prompt + new", "KV", "requests, in blocks of rows x batches", "tokens/s (measured)", "over full KV",
              "predicted"]
    if all(line[-1] == "-" for line in lines):  # the machine was not profiled
        header, lines = header[:-1], [line[:-1] for line in lines]
    return table(header, lines)


def machine_of(folder, rows):
    row = next((row for row in rows if row["machine_name"]), None)
    if row is None:
        return "no machine"
    machine = json.loads((folder / row["file"]).read_text())["machine"]
    return f'{machine["name"]}, {machine["num_threads"]} threads, {machine["isa"]}'


def page(binary, work, measured):
    flexgen, under_published, found = (sweep(binary, grid, work / grid) for grid in SIMULATED)
    text = f"""# Published tables, and Spillway's

`python3 benchmarks/published.py spillway --work DIR`, {datetime.date.today()}, commit {origin.commit()}.

Tokens/s are generated tokens over prefill and decode time. **Published** figures are the papers' own, from their machines.
**Simulated** ones are predictions: Spillway's schedule, or FlexGen's, on a virtual clock with the rates of
`examples/machines/t4.json`, most of them from data sheets; nothing of Spillway was run on a T4. **Measured** ones are runs of
this program on the machine that is named; --measure and --measured add them.

## H2O's table: one T4 of 16 GB, 208 GB of memory

Full keeps all KV, H2O 20 % of it. Published policies are those of `examples/policies`; a dash: there is none. FlexGen's
schedule runs at FlexGen's own effective rates: it checks the model against the published columns, and beside it stands what it
is of them (where the two papers differ on one setting, of both).
`spillway sweep examples/sweeps/h2o-t4.toml --output DIR` and `h2o-t4-published.toml` repeat them.

{h2o_table(under_published, found)}
## FlexGen's table: the same machine, 1.5 TB of SSD

`spillway sweep examples/sweeps/flexgen-t4.toml --output DIR` repeats it.

{flexgen_table(flexgen)}
## H2O's latencies: one A100 of 80 GB

OPT has 2,048 learned positions. h2o_flexgen drops the positions of longer rows; Spillway refuses such rows.

{a100_table(binary)}"""
    return text + "".join(measured_section(folder) for folder in measured)


def measured_section(folder):
    rows = read_rows(folder)
    title = next(line for line in (folder / "grid.toml").read_text().splitlines() if line.startswith("title"))
    day = datetime.date.fromtimestamp((folder / "results.csv").stat().st_mtime).isoformat()
    return f"""
## Measured on {machine_of(folder, rows)}

{title.partition("=")[2].strip().strip('"')}. One run for each point, of {day}; `grid.toml` in the sweep's folder repeats it.

{measured_table(rows)}"""


def measure(binary, folder):
    """Nothing of a sweep that was disturbed is kept: its figures are no measurements."""
    others = OtherPrograms()
    sweep(binary, MEASURED, folder)
    taken = others.frac()
    if taken > QUIET_FRAC:
        shutil.rmtree(folder)
        sys.exit(f"published: other programs took {taken:.0%} of the processor; measure again alone")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("binary", type=pathlib.Path)
    parser.add_argument("--work", type=pathlib.Path, required=True, help="folder for the sweeps")
    parser.add_argument("--measure", action="store_true", help="run h2o-cpu here too")
    parser.add_argument("--measured", type=pathlib.Path, nargs="*", default=[], metavar="DIR",
                        help="sweeps that were measured elsewhere, to be shown too")
    parser.add_argument("--output", type=pathlib.Path, default=origin.REPOSITORY / "benchmarks" / "published.md")
    arguments = parser.parse_args()
    arguments.work.mkdir(parents=True, exist_ok=True)
    binary, work, measured = arguments.binary.resolve(), arguments.work.resolve(), list(arguments.measured)
    if arguments.measure:
        measure(binary, work / MEASURED)
        measured.insert(0, work / MEASURED)
    arguments.output.write_text(page(binary, work, measured))
    print(arguments.output)


if __name__ == "__main__":
    main()
