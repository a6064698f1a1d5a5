#!/usr/bin/env python3
"""Draws the charts of a sweep (spillway sweep GRID --output DIR) as PNG files beside its results.csv: throughput, speed-up
over full KV, predicted against measured, roofline. Needs the PyPI package matplotlib; DIR/index.html needs nothing."""

import argparse
import csv
import pathlib
import sys

LIGHT = {"page": "#fcfcfb", "ink": "#14140f", "soft": "#5c5b56", "grid": "#e4e3dd",
         "series": ["#2a6fc9", "#e2662d", "#16926a", "#b98500", "#6a4fc0", "#c23a56"]}
DARK = {"page": "#191917", "ink": "#f4f3ee", "soft": "#b4b2a8", "grid": "#31312d",
        "series": ["#5a9bef", "#f0834e", "#35b68a", "#d9a62a", "#a190f0", "#ee6f88"]}
MARKERS = ["o", "s", "^", "D", "v"]


def fail(message):
    sys.exit(f"plot_sweep: {message}")


def load_pyplot(theme):
    try:
        import matplotlib
    except ImportError:
        fail("needs matplotlib; install it with: python3 -m pip install matplotlib")
    matplotlib.use("Agg")  # no display is needed
    import matplotlib.pyplot

    matplotlib.rcParams |= {
        "figure.facecolor": theme["page"], "axes.facecolor": theme["page"], "savefig.facecolor": theme["page"],
        "text.color": theme["ink"], "axes.labelcolor": theme["ink"], "axes.edgecolor": theme["soft"],
        "xtick.color": theme["soft"], "ytick.color": theme["soft"], "grid.color": theme["grid"],
        "ytick.labelcolor": theme["ink"], "axes.spines.top": False, "axes.spines.right": False,
        "axes.axisbelow": True, "font.size": 10, "legend.frameon": False,
    }
    return matplotlib.pyplot


def number(row, column):
    return float(row[column]) if row[column] else None


def read_rows(folder):
    try:
        with open(folder / "results.csv", newline="", encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
    except (OSError, UnicodeDecodeError) as error:
        fail(f"{folder}: {error}")
    if not rows or "generated_tokens_per_s" not in rows[0]:
        fail(f"{folder}/results.csv is not the table of a sweep")
    return rows


def series_of(rows):
    """KV policies by the place of their colour: all KV first, then as they come."""
    names = list(dict.fromkeys(row["kv"] for row in rows))
    return sorted(names, key=lambda name: name != "full")


def lengths(row):
    requests = int(row["num_requests"])
    schedule = ", FlexGen's schedule" if row.get("as-flexgen") == "true" else ""
    return (f'{row["model_name"]}, {int(row["prompt_tokens"]) // requests} + '
            f'{int(row["generated_tokens"]) // requests}{schedule}')


def filling(theme, place):
    """How a series is drawn: all colours filled first, then pale, then nearly empty."""
    from matplotlib import colors

    color = theme["series"][place % len(theme["series"])]
    opacity, line = [(1.0, "-"), (0.45, "-"), (0.1, "--")][place // len(theme["series"]) % 3]
    return {"facecolor": colors.to_rgba(color, opacity), "edgecolor": color, "linestyle": line, "linewidth": 1.0}


def legend_columns(names):
    longest = max(map(len, names), default=1)
    return max(1, min(len(names), int(115 / (longest + 6))))  # of the letters that fit in 9.2 inches


def bars(pyplot, theme, groups, names, label):
    """Horizontal bars: groups is [(label, [(series, value or None, text)])]."""
    height = sum(len(found) + 0.7 for _, found in groups)
    figure, axes = pyplot.subplots(figsize=(9.2, 1.1 + 0.21 * height), layout="constrained")
    at, ticks = 0.0, []
    for group, found in groups:
        ticks.append((at, group))
        for name, value, text in found:
            axes.barh(at, value or 0.0, 0.84, **filling(theme, names.index(name)))
            axes.annotate(text, (value or 0.0, at), (4, 0), textcoords="offset points", va="center", fontsize=8.5,
                          color=theme["ink"] if value else theme["soft"])
            at += 1.0
        at += 0.7
    axes.set_yticks([place for place, _ in ticks], [group for _, group in ticks])
    axes.tick_params(axis="y", length=0)
    axes.invert_yaxis()
    axes.margins(x=0.1, y=0.01)
    axes.grid(axis="x")
    axes.set_xlabel(label)
    handles = [pyplot.Rectangle((0, 0), 1, 1, **filling(theme, place)) for place in range(len(names))]
    figure.legend(handles, names, loc="outside upper left", ncols=legend_columns(names))
    return figure, axes


def grouped(entries):
    """What has the same label stands together, where its first one comes."""
    groups = {}
    for label, entry in entries:
        groups.setdefault(label, []).append(entry)
    return list(groups.items())


def throughput(pyplot, theme, rows, names):
    entries = []
    for row in rows:
        value = number(row, "generated_tokens_per_s")
        text = f"{value:.3g}" if value and value < 100 else f"{value:.0f}" if value else f'{row["error_code"]} {row["error"]}'
        entries.append((row["name"], (row["kv"], value, text if len(text) < 90 else text[:90] + "…")))
    how = ", simulated" if all(row["status"] != "measured" for row in rows) else ""
    return bars(pyplot, theme, grouped(entries), names, f"generated tokens per second{how}")[0]


def speedup(pyplot, theme, rows, names):
    best = {}
    for row in rows:
        value = number(row, "speedup_over_full_kv")
        if value is None or row["kv"] == "full":
            continue
        key = (lengths(row), row["kv"])
        best[key] = max(value, best.get(key, 0.0))
    if not best:
        return None
    works = list(dict.fromkeys(work for work, _ in best))
    entries = [(work, (kv, value, f"{value:.2f} x")) for work in works for (of, kv), value in best.items() if of == work]
    figure, axes = bars(pyplot, theme, grouped(entries), names, "times the fastest run with full KV")
    axes.axvline(1.0, color=theme["soft"], linestyle="--", linewidth=1.2)
    return figure


def log_axes(pyplot, x_label, y_label):
    from matplotlib import ticker

    figure, axes = pyplot.subplots(figsize=(9.2, 5.2), layout="constrained")
    axes.set_xscale("log")
    axes.set_yscale("log")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(ticker.LogLocator(subs=(1, 2, 5)))
        axis.set_major_formatter(ticker.FuncFormatter(lambda value, _: f"{value:.10g}"))
        axis.set_minor_locator(ticker.NullLocator())
    axes.set_xlabel(x_label)
    axes.set_ylabel(y_label)
    axes.grid()
    return figure, axes


def scatter(axes, theme, points, names, shapes=("",)):
    """points is [(x, y, series, shape)]."""
    for place, name in enumerate(names):
        for marker, shape in zip(MARKERS, shapes):
            found = [point for point in points if point[2] == name and point[3] == shape]
            axes.scatter([point[0] for point in found], [point[1] for point in found], 52, marker=marker, zorder=3,
                         **filling(theme, place))


def legend(pyplot, figure, theme, names, shapes=()):
    handles = [pyplot.Rectangle((0, 0), 1, 1, **filling(theme, place)) for place in range(len(names))]
    handles += [pyplot.Line2D([], [], linestyle="", marker=marker, markersize=8, markerfacecolor="none",
                              markeredgecolor=theme["ink"]) for marker, _ in zip(MARKERS, shapes)]
    figure.legend(handles, [*names, *shapes], loc="outside upper left", ncols=legend_columns([*names, *shapes]))


def predicted(pyplot, theme, rows, names):
    points = [(number(row, "predicted_tokens_per_s"), number(row, "generated_tokens_per_s"), row["kv"], "")
              for row in rows if row["status"] == "measured" and row["predicted_tokens_per_s"]]
    if not points:
        return None
    figure, axes = log_axes(pyplot, "predicted, generated tokens per second", "measured, generated tokens per second")
    scatter(axes, theme, points, names)
    low, high = min(axes.get_xlim()[0], axes.get_ylim()[0]), max(axes.get_xlim()[1], axes.get_ylim()[1])
    for factor, style in ((1.0, "-"), (1.15, "--"), (0.85, "--")):
        axes.plot([low, high], [factor * low, factor * high], style, color=theme["soft"], linewidth=1.2)
    axes.set_xlim(low, high)
    axes.set_ylim(low, high)
    legend(pyplot, figure, theme, names)
    return figure


def roofline(pyplot, theme, rows, names):
    with_roof = [row for row in rows if row["roof"]]
    if not with_roof:
        return None
    shapes = list(dict.fromkeys(row["roof"] for row in with_roof))
    figure, axes = log_axes(pyplot, "FLOP per byte of the level that limits the run", "GFLOP/s while decoding")
    scatter(axes, theme, [(number(row, "decode_flops_per_byte"), number(row, "decode_flops_per_s") / 1e9, row["kv"],
                           row["roof"]) for row in with_roof], names, shapes)
    roofs = {(row["roof"], number(row, "roof_bytes_per_s"), number(row, "matmul_flops_per_s")) for row in with_roof}
    low = axes.get_xlim()[0]
    high = max(axes.get_xlim()[1], 2 * max(peak / rate for _, rate, peak in roofs))
    bottom = axes.get_ylim()[0]
    for level, rate, peak in sorted(roofs):
        style = "-" if level == "memory" else "--"
        axes.plot([low, peak / rate], [low * rate / 1e9, peak / 1e9], style, color=theme["soft"], linewidth=1.2)
        start = max(low, 1e9 * bottom / rate) * 1.15
        axes.annotate(f"{level} {rate / 1e9:.3g} GB/s", (start, start * rate / 1e9), (0, 5), textcoords="offset points",
                      rotation=45, rotation_mode="anchor", transform_rotates_text=True, fontsize=9,
                      color=theme["soft"])
    for peak in {peak for _, _, peak in roofs}:
        ridge = min(peak / rate for _, rate, under in roofs if under == peak)
        axes.plot([ridge, high], [peak / 1e9, peak / 1e9], color=theme["soft"], linewidth=1.2)
        axes.annotate(f"products {peak / 1e9:.0f} GFLOP/s", (high, peak / 1e9), (-4, 4), textcoords="offset points",
                      ha="right", fontsize=9, color=theme["soft"])
    axes.set_xlim(low, high)
    axes.set_ylim(bottom, 2 * max(peak for _, _, peak in roofs) / 1e9)
    legend(pyplot, figure, theme, names, shapes)
    return figure


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=pathlib.Path, help="the sweep's --output")
    parser.add_argument("--output", type=pathlib.Path, help="folder for the pictures (the same)")
    parser.add_argument("--dark", action="store_true", help="for dark backgrounds")
    parser.add_argument("--prefix", default="", help="of the files' names")
    arguments = parser.parse_args()
    theme = DARK if arguments.dark else LIGHT
    rows = read_rows(arguments.folder)
    pyplot = load_pyplot(theme)
    names = series_of(rows)
    output = arguments.output or arguments.folder
    output.mkdir(exist_ok=True)
    for draw in (throughput, speedup, predicted, roofline):
        figure = draw(pyplot, theme, rows, names)
        if figure is None:
            continue
        path = output / f"{arguments.prefix}{draw.__name__}.png"
        figure.savefig(path, dpi=110)
        print(path)


if __name__ == "__main__":
    main()
