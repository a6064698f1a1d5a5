#!/usr/bin/env python3
"""Draws one pass of a trace (spillway generate --trace FILE), or some of its layers, as a PNG: a lane each for compute,
waiting and the links. Needs matplotlib (Debian: python3-matplotlib)."""

import argparse
import collections
import json
import pathlib
import sys

from sweep_plots import backend

COLORS = {
    "compute": "tab:green",
    "weights": "tab:blue",
    "kv": "tab:orange",
    "activations": "tab:purple",
    "stores": "tab:red",
}


def fail(message):
    sys.exit(f"plot_timeline: {message}")


def read_trace(path):
    """(thread names from top to bottom, spans by thread name, number of dropped events)"""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        events = document["traceEvents"]
        names = {event["tid"]: event["args"]["name"] for event in events if event["name"] == "thread_name"}
        spans = collections.defaultdict(list)
        for event in events:
            if event["ph"] == "X":
                spans[names[event["tid"]]].append(event)
        return [names[thread] for thread in sorted(names)], spans, document["otherData"]["dropped_events"]
    except OSError as error:
        fail(f"{path}: {error.strerror}")
    except (ValueError, KeyError, TypeError):
        fail(f"{path}: is no trace of spillway generate --trace")


def window_of(spans, number, layers):
    """Begin and end of the layers of the pass: their first and last compute, and the wait before."""
    def inside(event):
        return event["args"].get("pass") == number and event["args"]["layer"] in layers

    computes = [event for event in spans["compute"] if inside(event)]
    if not computes:
        last = max((event["args"]["pass"] for event in spans["compute"]), default=-1)
        fail(f"the trace has no pass {number} with such layers; its last pass is {last}")
    begin = min(event["ts"] for event in computes)
    end = max(event["ts"] + event["dur"] for event in computes)
    waits = [event["ts"] for event in spans["waiting"] if inside(event)]
    return min([begin, *waits]), end


def within(event, begin, end):
    return event["ts"] < end and event["ts"] + event["dur"] > begin


def draw(pyplot, lanes, spans, window):
    begin, end = window
    shown = [lane for lane in lanes if any(within(event, begin, end) for event in spans[lane])]
    figure, axes = pyplot.subplots(figsize=(16, 1 + 0.5 * len(shown)), layout="constrained")
    for row, lane in enumerate(shown):
        by_color = collections.defaultdict(list)
        for event in spans[lane]:
            if within(event, begin, end):
                by_color[COLORS[event["cat"]]].append(((event["ts"] - begin) / 1000, event["dur"] / 1000))
        for color, bars in by_color.items():
            axes.broken_barh(bars, (row - 0.4, 0.8), facecolors=color, edgecolors="white", linewidth=0.2)
    axes.set_yticks(range(len(shown)), shown)
    axes.invert_yaxis()
    axes.set_xlim(0, (end - begin) / 1000)
    axes.set_xlabel("ms since the pass began")
    patches = [pyplot.Rectangle((0, 0), 1, 1, color=color) for color in COLORS.values()]
    axes.legend(patches, COLORS, loc="lower right", bbox_to_anchor=(1, 1), ncols=len(COLORS), frameon=False)
    return figure


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trace", type=pathlib.Path)
    parser.add_argument("--pass", dest="number", type=int, default=1, metavar="N", help="counted from 0 (default: 1)")
    parser.add_argument("--layers", type=int, nargs=2, default=[0, sys.maxsize - 1], metavar=("FIRST", "LAST"),
                        help="only these, counted from 0, the embedding first (default: all)")
    parser.add_argument("--output", type=pathlib.Path, metavar="FILE", help="default: the trace's name with .png")
    arguments = parser.parse_args()
    pyplot = backend.load_pyplot("plot_timeline")
    lanes, spans, dropped = read_trace(arguments.trace)
    first, last = arguments.layers
    figure = draw(pyplot, lanes, spans, window_of(spans, arguments.number, range(first, last + 1)))
    part = f", layers {first} to {last}" if last < sys.maxsize - 1 else ""
    figure.suptitle(f"{arguments.trace.name}, pass {arguments.number}{part}", x=0.01, ha="left")
    output = arguments.output or arguments.trace.with_suffix(".png")
    figure.savefig(output, dpi=150)
    if dropped:
        print(f"plot_timeline: {dropped} events were dropped while the run was traced", file=sys.stderr)
    print(output)


if __name__ == "__main__":
    main()
