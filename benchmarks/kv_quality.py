#!/usr/bin/env python3
"""What a smaller KV cache costs: the quality study of the KV policies, measured and drawn by one command.

  python3 benchmarks/kv_quality.py path/to/spillway [--quick] [--output DIR]

Budgets per layer are found by `spillway calibrate` on the first half of the text; everything else is measured on the
second half, which calibrate has not seen:
- perplexity at uniform budgets and with the calibrated ones. Windows of 640 tokens, the first 320 in one pass, the other
  320 a token a pass and scored, so that a budget acts on them as on generated tokens.
- perplexity when one layer alone keeps 20 %, layer by layer.
- next-token agreement with the full cache: greedy generation after long prompts. Up to the first token that differs both
  have seen the same text, so agreement is the share of equal choices among those made after the same text. The first
  token of a completion comes from the prompt's pass, which attends to everything, and does not count.
- the share of the attention on the top x % of the tokens, where the PyPI packages torch and transformers are installed.
Writes kv_quality.json, kv_quality.md, kv_quality.png, kv_layers.png and attention_mass.png. Needs the PyPI package
matplotlib (Debian: python3-matplotlib). --redraw makes the pictures and the table anew from kv_quality.json.
"""

import argparse
import datetime
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

import attention_mass
import kv_quality_plots
import origin

REPOSITORY = pathlib.Path(__file__).resolve().parents[1]
POLICIES = {
    "h2o": ["--kv-policy", "h2o"],
    "window": ["--kv-policy", "window"],
    "window + 4 sinks": ["--kv-policy", "window", "--kv-sinks", "4"],
}
BUDGETS = [100, 60, 40, 20, 10, 5]  # percent of prompt + new tokens
WINDOW = ["--window", "640", "--stride", "320", "--prefill", "320", "--start-each-window"]
MAX_LOSS = "1%"
ALONE_FRAC = 0.2
PROMPT_CHARACTERS = 1500
NEW_TOKENS = 32
SIZES = {  # of the study: the share of the second half whose perplexity is measured, windows of calibrate, prompts
    "full": {"text_frac": 1.0, "sample": 16, "prompts": 64},
    "quick": {"text_frac": 0.2, "sample": 8, "prompts": 16},
}


def fail(message):
    sys.exit(f"kv_quality: {message}")


# --- text


def halves(text):
    middle = text.find("\n", len(text) // 2) + 1
    return text[:middle], text[middle:]


def leading(text, frac):
    """First lines of a text, about `frac` of it."""
    return text[: text.find("\n", int(len(text) * frac) - 1) + 1] or text


def long_prompts(text, number):
    """`number` pieces spread evenly over the text, each whole words."""
    prompts = []
    for index in range(number):
        begin = (len(text) - PROMPT_CHARACTERS) * index // max(1, number - 1)
        piece = text[begin : begin + PROMPT_CHARACTERS]
        prompts.append(piece[piece.find(" ") + 1 : piece.rfind(" ")])
    return prompts


# --- spillway


class Study:
    """Runs spillway on one model and the two halves of a text, in a folder of its own."""

    def __init__(self, options, place):
        self.options, self.place = options, place
        size = SIZES[options.size]
        known, unseen = halves(options.text.read_text(encoding="utf-8"))
        self.known, self.unseen, self.prompts = place / "known.txt", place / "unseen.txt", place / "prompts.jsonl"
        self.known.write_text(known, encoding="utf-8")
        self.unseen.write_text(leading(unseen, size["text_frac"]), encoding="utf-8")
        lines = [json.dumps({"prompt": prompt}) + "\n" for prompt in long_prompts(unseen, size["prompts"])]
        self.prompts.write_text("".join(lines), encoding="utf-8")
        self.sample = options.sample or size["sample"]

    def run(self, verb, *words):
        """The report of one run."""
        report = self.place / "report.json"
        report.unlink(missing_ok=True)
        line = [self.options.binary, verb, "--model", self.options.model, "--report", report, "--quiet", *words]
        if self.options.threads:
            line += ["--threads", self.options.threads]
        done = subprocess.run(list(map(str, line)), stdout=subprocess.DEVNULL)
        if done.returncode != 0:
            fail(f"spillway {verb} ended with status {done.returncode}")
        return json.loads(report.read_text())

    def perplexity(self, flags):
        return self.run("score", "--perplexity", self.unseen, *WINDOW, *flags)["score"]

    def completions(self, flags):
        output = self.place / "completions.jsonl"
        words = ["--input", self.prompts, "--output", output, "--overwrite", "--max-new-tokens", NEW_TOKENS, "--ignore-eos"]
        self.run("generate", *words, *flags)
        lines = [json.loads(line) for line in output.read_text().splitlines()]
        return [line["response"]["body"]["choices"][0]["token_ids"] for line in lines]

    def calibrate(self, flags):
        """(policy file, what calibrate reports) at MAX_LOSS on the half that is known."""
        output = self.place / "calibrated.json"
        words = ["--per", "layer", "--text", self.known, "--max-loss", MAX_LOSS, "--sample", self.sample, "--output", output]
        return output, self.run("calibrate", *words, *flags)["calibration"]


def agreement(full, other):
    """Agreement of greedy completions without their first tokens: see the description of this script."""
    equal = unequal = 0
    for ours, theirs in zip(other, full, strict=True):
        differs = (index for index in range(1, NEW_TOKENS) if ours[index] != theirs[index])
        first = next(differs, NEW_TOKENS)
        equal += first - 1
        unequal += first < NEW_TOKENS
    return {
        "next_token_agreement": equal / (equal + unequal),
        "equal_before_first_difference_frac": equal / (len(full) * (NEW_TOKENS - 1)),
    }


def alone_ratios(study, kv, full):
    """Perplexity on the unseen half when one layer alone keeps ALONE_FRAC, over the full cache's; by layer. `kv` is that
    of a policy file with layer_budgets."""
    file = study.place / "alone.json"
    ratios = []
    for layer in range(len(kv["layer_budgets"])):
        shares = [ALONE_FRAC if index == layer else 1.0 for index in range(len(kv["layer_budgets"]))]
        budgets = [{"kept": {"frac": share}} for share in shares]
        file.write_text(json.dumps({"version": 1, "kv": {**kv, "layer_budgets": budgets}}))
        ratios.append(study.perplexity(["--policy", file])["perplexity"] / full["perplexity"])
    return ratios


def measure_point(study, flags, full_tokens):
    score = study.perplexity(flags)
    tokens = study.completions(flags)
    return {
        "perplexity": score["perplexity"],
        "num_scored_tokens": score["num_tokens"],
        **agreement(full_tokens or tokens, tokens),
    }, tokens


def say(begin, name, point):
    text = f"perplexity {point['perplexity']:.2f}, agreement {100 * point['next_token_agreement']:.1f} %"
    print(f"{time.monotonic() - begin:5.0f} s  {name}: {text}", flush=True)


def measure(study):
    """The rows of the table, {"full", "uniform": by policy a list by budget, "calibrated": by policy}."""
    begin = time.monotonic()
    full, tokens = measure_point(study, ["--kv-policy", "full"], None)
    say(begin, "full", full)
    found = {"full": full, "uniform": {}, "calibrated": {}}
    for name, flags in POLICIES.items():
        for budget in BUDGETS:
            point, _ = measure_point(study, [*flags, "--kv-budget", f"{budget}%"], tokens)
            found["uniform"].setdefault(name, []).append({"kv_frac": budget / 100, **point})
            say(begin, f"{name} {budget} %", point)
    for name, flags in POLICIES.items():
        policy, layers = study.calibrate(flags)
        point, _ = measure_point(study, ["--policy", policy], tokens)
        alone = alone_ratios(study, json.loads(policy.read_text())["kv"], full)
        found["calibrated"][name] = {
            "kv_frac": layers["kv_frac"], **point, "perplexity_ratio_alone_at_20": alone, "on_known_text": layers,
        }
        say(begin, f"{name} calibrated, {100 * layers['kv_frac']:.1f} %", point)
    found["duration_s"] = round(time.monotonic() - begin)
    return found


# --- what is written


def about(options):
    flags = ["--quick"] if options.size == "quick" else []
    flags += ["--sample", str(options.sample)] if options.sample else []
    size = SIZES[options.size]
    return {
        "command": " ".join(["python3 benchmarks/kv_quality.py spillway", *flags]),
        "date": datetime.date.today().isoformat(),
        "machine": f"{os.cpu_count()} cores of {origin.processor_name()}",
        "commit": origin.commit(),
        "model": options.model.name,
        "text": options.text.name,
        "max_loss": MAX_LOSS,
        "new_tokens": NEW_TOKENS,
        "note": options.note,
        **size,
        "sample": options.sample or size["sample"],
    }


def cell(point):
    return f"{point['perplexity']:.2f} ({100 * point['next_token_agreement']:.1f} %)"


def uniform_table(found):
    lines = ["| KV budget | " + " | ".join(POLICIES) + " |", "|---:" * (len(POLICIES) + 1) + "|"]
    for index, budget in enumerate(BUDGETS):
        points = [found["uniform"][name][index] for name in POLICIES]
        lines.append(f"| {budget} % | " + " | ".join(map(cell, points)) + " |")
    calibrated = [found["calibrated"][name] for name in POLICIES]
    cells = [f"{cell(point)} at {100 * point['kv_frac']:.1f} %" for point in calibrated]
    return [*lines, "| calibrated per layer | " + " | ".join(cells) + " |"]


def layer_table(found):
    lines = ["| layer | " + " | ".join(POLICIES) + " |", "|---:" * (len(POLICIES) + 1) + "|"]
    calibrated = [found["calibrated"][name] for name in POLICIES]
    for layer in range(len(calibrated[0]["perplexity_ratio_alone_at_20"])):
        cells = []
        for point in calibrated:
            kept = point["on_known_text"]["layers"][layer]["kept_frac"]
            cells.append(f"x {point['perplexity_ratio_alone_at_20'][layer]:.4f}; {100 * kept:.0f} %")
        lines.append(f"| {layer} | " + " | ".join(cells) + " |")
    return lines


def markdown(result):
    about_it, found = result["about"], result["found"]
    full = found["full"]
    return "\n".join([
        f"# KV quality: {about_it['model']} on {about_it['text']}",
        "",
        f"`{about_it['command']}`, {about_it['date']}, {about_it['machine']}, commit {about_it['commit']}; took "
        f"{found['duration_s']} s.",
        *filter(None, [about_it["note"]]),
        "",
        f"Perplexity of {full['num_scored_tokens']} tokens of the text's second half ({100 * about_it['text_frac']:.0f} % of "
        "it), in brackets the next-token",
        f"agreement with the full cache ({about_it['prompts']} prompts, {NEW_TOKENS} greedy tokens; equal choices among those "
        "made after the same text).",
        f"With all KV: {full['perplexity']:.2f}. Calibrated: budgets per layer found on the first half, "
        f"{about_it['sample']} windows, {about_it['max_loss']} loss.",
        "",
        *uniform_table(found),
        "",
        "Each layer: perplexity when this layer alone keeps 20 %, over the full cache's (second half); then the budget that "
        "calibrate gave it.",
        "",
        *layer_table(found),
        "",
    ])


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("binary", type=pathlib.Path)
    parser.add_argument("--model", type=pathlib.Path, default=REPOSITORY / "examples" / "tales-opt-8m")
    parser.add_argument("--text", type=pathlib.Path, default=REPOSITORY / "examples" / "heldout_tales.txt")
    parser.add_argument("--output", type=pathlib.Path, metavar="DIR", help="(default: benchmarks/results, for a full study)")
    parser.add_argument("--threads", type=int, help="compute threads of spillway (default: its own)")
    parser.add_argument("--sample", type=int, help="windows for calibrate (default: 16, with --quick 8)")
    parser.add_argument("--quick", dest="size", action="store_const", const="quick", default="full",
                        help="perplexity of a fifth of the second half, 8 windows for calibrate, 16 prompts in place of 64")
    parser.add_argument("--note", default="", metavar="TEXT", help="a sentence that goes with the results")
    parser.add_argument("--redraw", action="store_true", help="only draw OUTPUT/kv_quality.json again")
    options = parser.parse_args()
    options.binary, options.model = options.binary.resolve(), options.model.resolve()
    if options.output is None and options.size == "quick":
        parser.error("--quick: give --output too; benchmarks/results holds the full study")
    options.output = options.output or REPOSITORY / "benchmarks" / "results"
    return options


def measure_all(options):
    with tempfile.TemporaryDirectory() as place:
        study = Study(options, pathlib.Path(place))
        mass = attention_mass.measure(options.model, study.unseen)
        if isinstance(mass, str):
            print(f"attention mass skipped: {mass}", flush=True)
            mass = None
        return {"version": 1, "about": about(options), "found": measure(study), "attention_mass": mass}


def main():
    options = parse_arguments()
    pyplot = kv_quality_plots.load_pyplot()
    if pyplot is None:
        fail("needs matplotlib; install it with: python3 -m pip install matplotlib")
    options.output.mkdir(parents=True, exist_ok=True)
    file = options.output / "kv_quality.json"
    if options.redraw:
        result = json.loads(file.read_text())
    else:
        result = measure_all(options)
        file.write_text(json.dumps(result, indent=1) + "\n")
    (options.output / "kv_quality.md").write_text(markdown(result))
    for name, figure in kv_quality_plots.draw_all(pyplot, result).items():
        figure.savefig(options.output / name, dpi=90)
        print(options.output / name)


if __name__ == "__main__":
    main()
