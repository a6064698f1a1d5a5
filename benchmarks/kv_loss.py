#!/usr/bin/env python3
"""What a smaller KV cache costs a model of yours, measured in windows of a text, with standard errors.

  python3 benchmarks/kv_loss.py path/to/spillway --model FOLDER --output FILE.json [--text FILE] [--window 512] [--prompt 128]
    [--count 16] [--stride N] [--budgets 60,40,20,10,5] [--rows GROUP,...] [--kv-bytes 20] [--kv-bits 8,4]
    [--policy FILE]

Each window's first tokens are read in one pass, the others are told one a pass, as if they had been generated, and scored. A
row's loss is how much its perplexity is above the full cache's on the same tokens; its standard error is that over windows of
the paired differences. Groups of rows:
  h2o, window  uniform budgets; window keeps 4 first tokens as well
  bits         the full cache and h2o at 20 %, in 8 bits, in 8 of keys and 4 of values, and in 4
  layers       h2o with budgets per layer from `spillway calibrate --per layer` on the text between the windows; takes hours
  heads        h2o with budgets per KV head from `spillway calibrate`, likewise, in the bits of --kv-bits: --kv-bytes of the
               bytes of a full cache of 16 bits
layers and heads are measured only where they are named; none: what --policy names alone.
--policy FILE, as often as you like, adds a row with a policy file of yours.
Prints a table. A rerun measures only what FILE.json does not hold yet. Needs the PyPI package tokenizers and the model's
tokenizer.json; --windows FILE.jsonl takes windows of your own instead, one {"token_ids": [...]} a line.
"""

import argparse
import datetime
import json
import math
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

import origin

REPOSITORY = pathlib.Path(__file__).resolve().parents[1]
POLICIES = {"h2o": ["--kv-policy", "h2o"], "window": ["--kv-policy", "window", "--kv-sinks", "4"]}
FULL = ["--kv-policy", "full"]
CODED = {"full": FULL, "h2o 20 %": [*POLICIES["h2o"], "--kv-budget", "20%"]}
BITS = ["8", "8,4", "4"]
GROUPS = [*POLICIES, "bits", "layers", "heads"]


def fail(message):
    sys.exit(f"kv_loss: {message}")


# --- text


def windows_of(options):
    """(token ids of each window, the text between windows)."""
    if options.windows:
        lines = options.windows.read_text(encoding="utf-8").splitlines()
        return [json.loads(line)["token_ids"] for line in lines], ""
    try:
        import tokenizers
    except ImportError:
        fail("needs the PyPI package tokenizers, or --windows")
    if not (options.model / "tokenizer.json").exists():
        fail(f"{options.model} has no tokenizer.json; give --windows")
    tokenizer = tokenizers.Tokenizer.from_file(str(options.model / "tokenizer.json"))
    ids = tokenizer.encode(options.text.read_text(encoding="utf-8"), add_special_tokens=False).ids
    stride = options.stride or (len(ids) - options.window) // max(1, options.count - 1)
    begins = [index * stride for index in range(options.count)]
    if stride < options.window or begins[-1] + options.window > len(ids):
        fail(f"{options.text} has {len(ids)} tokens: too few for {options.count} windows of {options.window} in steps of {stride}")
    between = [tokenizer.decode(ids[begin + options.window : begin + stride]) for begin in begins]
    return [ids[begin : begin + options.window] for begin in begins], "\n".join(between)


# --- spillway


class Study:
    """Scores windows under flags; keeps what it found in a file."""

    def __init__(self, options, place):
        self.options, self.place = options, place
        windows, between = windows_of(options)
        self.prompt = options.prompt or len(windows[0]) // 4
        self.input, self.between = place / "windows.jsonl", place / "between.txt"
        self.input.write_text("".join(json.dumps({"token_ids": ids}) + "\n" for ids in windows), encoding="utf-8")
        self.between.write_text(between, encoding="utf-8")
        self.result = {"version": 1, "about": about(options, windows, self.prompt), "rows": {}}
        if options.output.exists():
            self.continue_from(json.loads(options.output.read_text()))

    def continue_from(self, earlier):
        ours = self.result["about"]
        other = [key for key in ("model", "text", "windows", "window", "prompt", "stride") if earlier["about"][key] != ours[key]]
        if other:
            fail(f"{self.options.output} holds rows of another study ({', '.join(other)}); name another file")
        self.result = earlier

    def run(self, verb, *words):
        line = [self.options.binary, verb, "--model", self.options.model, "--quiet", *words]
        if self.options.threads:
            line += ["--threads", self.options.threads]
        done = subprocess.run(list(map(str, line)), stdout=subprocess.DEVNULL)
        if done.returncode != 0:
            fail(f"spillway {verb} ended with status {done.returncode}")

    def score(self, flags):
        """(mean negative log-probability of each window, the report's "kv", seconds)."""
        output, report = self.place / "scores.jsonl", self.place / "report.json"
        begin = time.monotonic()
        words = ["--input", self.input, "--output", output, "--overwrite", "--report", report]
        self.run("score", *words, "--prefill", self.prompt, *flags)
        lines = [json.loads(line)["token_logprobs"][self.prompt + 1 :] for line in output.read_text().splitlines()]
        report = json.loads(report.read_text())
        return [-statistics.fmean(line) for line in lines], report["kv"], time.monotonic() - begin

    def measure(self, name, flags):
        if name not in self.result["rows"]:
            losses, kv, seconds = self.score(flags)
            self.result["rows"][name] = {
                "flags": [str(flag) for flag in flags], "losses": losses, "kv_bytes": kv["bytes"], "duration_s": round(seconds)}
            self.options.output.write_text(json.dumps(self.result, indent=1) + "\n")
        print(table_row(name, self.result["rows"]), flush=True)

    def calibrate(self, name, flags):
        """A policy file: budgets found on the text between the windows. Those per head share what heads cost alone."""
        policy = self.options.output.with_suffix("." + name.replace(" ", "_").replace("%", "") + ".json")
        if not policy.exists():
            options = self.options
            window = options.calibrate_window or options.window
            found = self.options.output.with_suffix(".calibrated.json")
            sample = ["--sample", options.sample] if options.sample else []
            self.run("calibrate", "--text", self.between, *sample, "--window", window, "--output", found, *flags)
            found.rename(policy)
        return policy


def about(options, windows, prompt):
    return {
        "date": datetime.date.today().isoformat(),
        "machine": f"{os.cpu_count()} cores of {origin.processor_name()}",
        "commit": origin.commit(),
        "model": options.model.name,
        "text": (options.windows or options.text).name,
        "windows": len(windows),
        "window": len(windows[0]),
        "prompt": prompt,
        "stride": options.stride,
        "scored": sum(len(window) - prompt - 1 for window in windows),
    }


# --- what is written


def loss_of(row, full):
    """(how much the perplexity is above the full cache's, its standard error), as fractions."""
    differences = [ours - theirs for ours, theirs in zip(row["losses"], full["losses"], strict=True)]
    mean = statistics.fmean(differences)
    error = statistics.stdev(differences) / math.sqrt(len(differences)) if len(differences) > 1 else math.nan
    return math.expm1(mean), error * math.exp(mean)


def table_row(name, rows):
    row, full = rows[name], rows["full"]
    loss, error = loss_of(row, full)
    perplexity = math.exp(statistics.fmean(row["losses"]))
    return f"| {name} | {row['kv_bytes'] / full['kv_bytes']:.1%} | {perplexity:.3f} | {100 * loss:+.2f} % | {100 * error:.2f} |"


def measure_all(study, options):
    print(f"{study.result['about']['scored']} scored tokens in {study.result['about']['windows']} windows, prompt {study.prompt}")
    print("| kept | bytes of KV | perplexity | loss | its standard error |\n|---|---|---|---|---|")
    study.measure("full", FULL)
    for group in options.rows:
        if group == "bits":
            for bits in BITS:
                for name, flags in CODED.items():
                    study.measure(f"{name}, {bits} bits", [*flags, "--kv-bits", bits])
        elif group == "layers":
            name = f"h2o per layer, {options.max_loss}"
            flags = ["--per", "layer", "--max-loss", options.max_loss, "--prefill", study.prompt]
            study.measure(name, ["--policy", study.calibrate(name, flags)])
        elif group == "heads":
            for share in options.kv_bytes:
                bits = options.kv_bits
                name = f"h2o per head, {bits} bits, {share} % of the bytes"
                flags = ["--kv-bits", bits, "--kv-bytes", f"{share}%"]
                study.measure(name, ["--policy", study.calibrate(f"per_head_{bits}_{share}", flags)])
        else:
            for budget in options.budgets:
                study.measure(f"{group} {budget} %", [*POLICIES[group], "--kv-budget", f"{budget}%"])
    for policy in options.policy:
        study.measure(policy.stem, ["--policy", policy])


def comma_list(text):
    return text.split(",")


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("binary", type=pathlib.Path)
    parser.add_argument("--model", type=pathlib.Path, required=True, metavar="FOLDER")
    parser.add_argument("--text", type=pathlib.Path, default=REPOSITORY / "examples" / "heldout_tales.txt")
    parser.add_argument("--windows", type=pathlib.Path, metavar="FILE.jsonl", help="token windows, in place of --text")
    parser.add_argument("--output", type=pathlib.Path, required=True, metavar="FILE.json")
    parser.add_argument("--window", type=int, default=512, help="tokens of a window (default: 512)")
    parser.add_argument("--prompt", type=int, help="of these, read in one pass (default: a quarter)")
    parser.add_argument("--count", type=int, default=16, help="windows (default: 16)")
    parser.add_argument("--stride", type=int, help="tokens from one window to the next (default: spread over the text)")
    parser.add_argument("--budgets", type=comma_list, default=["60", "40", "20", "10", "5"], help="percent of a window's tokens")
    parser.add_argument("--rows", type=comma_list, default=["h2o", "window", "bits"], help="groups of rows")
    parser.add_argument("--policy", type=pathlib.Path, action="append", default=[], metavar="FILE", help="a policy file to measure")
    parser.add_argument("--max-loss", default="1%", help="of budgets per layer (default: 1%%)")
    parser.add_argument("--kv-bytes", type=comma_list, default=["20"], help="percent, of budgets per head (default: 20)")
    parser.add_argument("--kv-bits", default="8,4", help="of budgets per head (default: 8,4)")
    parser.add_argument("--sample", type=int, help="windows for calibrate (default: its own)")
    parser.add_argument("--calibrate-window", type=int, help="tokens of these (default: those of --window)")
    parser.add_argument("--threads", type=int, help="compute threads of spillway (default: its own)")
    options = parser.parse_args()
    options.binary, options.model = options.binary.resolve(), options.model.resolve()
    options.rows = [group for group in options.rows if group != "none"]
    unknown = [group for group in options.rows if group not in GROUPS]
    if unknown:
        parser.error(f"--rows {unknown[0]}: {', '.join(GROUPS)} are the groups")
    if options.windows and {"layers", "heads"} & set(options.rows):
        parser.error("--rows layers, heads: needs a text; calibrate reads what lies between its windows")
    return options


def main():
    options = parse_arguments()
    with tempfile.TemporaryDirectory() as place:
        measure_all(Study(options, pathlib.Path(place)), options)


if __name__ == "__main__":
    main()
