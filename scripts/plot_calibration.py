#!/usr/bin/env python3
"""Draws what spillway calibrate --report FILE found for KV heads, as a PNG: the share of a row's tokens that each KV head keeps,
and, where several settings of all heads were measured, what they lose over the bytes that they take, the chosen one marked.
Needs matplotlib (Debian: python3-matplotlib)."""

import argparse
import json
import math
import pathlib
import sys

from sweep_plots import backend

COLORS = ["tab:blue", "tab:orange"]


def fail(message):
    sys.exit(f"plot_calibration: {message}")


def text_of(bits):
    return ",".join(map(str, bits)) if isinstance(bits, list) else str(bits)


def read_report(path):
    """(title, shares [layer][head], calibration)"""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        policy, found = document["policy"], document["calibration"]
        kv = policy["kv"]
        if kv["policy"] == "full":
            shares = [[1.0] * len(heads) for heads in found["alone_divergence"]]
        else:
            shares = kv["head_budgets"]
        return f"{document['model']['name']}, KV of {text_of(policy['kv_bits'])} bits", shares, found
    except OSError as error:
        fail(f"{path}: {error.strerror}")
    except (KeyError, TypeError, ValueError):
        fail(f"{path}: is no report of spillway calibrate with budgets per KV head")


def draw_shares(axes, shares):
    """A row a head, a column a layer: models have more layers than heads."""
    columns = [[100 * share for share in layer] for layer in shares]
    rows = [list(row) for row in zip(*columns)]
    image = axes.imshow(rows, aspect="auto", cmap="viridis", vmin=0, vmax=100)
    axes.set_xlabel("layer")
    axes.set_ylabel("KV head")
    axes.set_yticks(range(len(rows)))
    axes.set_title("tokens that a head keeps, %")
    axes.figure.colorbar(image, ax=axes)


def percent_lost(prompts):
    return 100 * math.expm1(prompts["loss"])


def draw_losses(axes, found):
    """A line for each length of prompts and each number of bits."""
    several = {text_of(tried.get("kv_bits", "")) for tried in found["tried"]}
    for number, chosen in enumerate(found["prompts"]):
        for style, bits in zip("o s ^ v".split(), sorted(several)):
            line = sorted(((100 * tried["bytes_frac"], tried["prompts"][number]) for tried in found["tried"]
                           if text_of(tried.get("kv_bits", "")) == bits), key=lambda point: point[0])
            errors = [100 * (prompts["loss_error"] or 0) for _, prompts in line]
            name = f"after {chosen['prompt_tokens']} tokens" + (f", {bits} bits" if len(several) > 1 else "")
            axes.errorbar([size for size, _ in line], [percent_lost(prompts) for _, prompts in line], errors, fmt=style + "-",
                          capsize=3, color=COLORS[number], label=name)
        axes.plot(100 * found["bytes_frac"], percent_lost(chosen), "*", color=COLORS[number], markersize=15,
                  markeredgecolor="black")
    axes.axhline(0, color="gray", linestyle="--")
    axes.set_xscale("log")
    sizes = sorted({round(100 * tried["bytes_frac"]) for tried in found["tried"]})
    axes.set_xticks(sizes, [f"{size} %" for size in sizes])
    axes.minorticks_off()
    axes.set_xlabel("bytes of a full cache of 16 bits")
    axes.set_title("rise of perplexity, %, and its standard error")
    axes.grid(alpha=0.3)
    axes.legend()


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("report", type=pathlib.Path, metavar="FILE", help="what calibrate --report wrote")
    parser.add_argument("--output", type=pathlib.Path, metavar="PNG", help="the picture (FILE with .png)")
    return parser.parse_args()


def main():
    options = parse_arguments()
    title, shares, found = read_report(options.report)
    pyplot = backend.load_pyplot("plot_calibration")
    several = len(found["tried"]) > 1
    figure, panels = pyplot.subplots(2 if several else 1, 1, figsize=(9, 7 if several else 3.2), layout="constrained", squeeze=False)
    figure.suptitle(title)
    draw_shares(panels[0][0], shares)
    if several:
        draw_losses(panels[1][0], found)
    path = options.output or options.report.with_suffix(".png")
    figure.savefig(path, dpi=110)
    print(path)


if __name__ == "__main__":
    main()
