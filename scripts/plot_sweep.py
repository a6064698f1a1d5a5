#!/usr/bin/env python3
"""Draws the charts of a sweep (spillway sweep GRID --output FOLDER): throughput, speed-up over full KV, quality of the KV
policies, predicted against measured, roofline. Writes PNG files and index.html, a page that needs nothing beside it.

Needs Python 3.11 and matplotlib (Debian: python3-matplotlib)."""

import argparse
import pathlib
import sys

sys.dont_write_bytecode = True  # the script may be installed where others write


def fail(message):
    sys.exit(f"plot_sweep: {message}")


if sys.version_info < (3, 11):
    fail(f"needs Python 3.11 or later; {sys.executable} is {sys.version.split()[0]}")

from sweep_plots import backend, charts, page, points, quality, theme  # noqa: E402


def load_drawing():
    """Imports the module that needs matplotlib."""
    backend.load("plot_sweep")
    from sweep_plots import draw

    return draw


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path, metavar="FOLDER", help="the sweep's --output")
    parser.add_argument("--output", type=pathlib.Path, metavar="DIR", help="folder for the pictures and the page (FOLDER)")
    parser.add_argument("--quality", type=pathlib.Path, metavar="FILE", action="append", default=[],
                        help="what KV policies cost: a report of spillway score --perplexity or spillway calibrate, or "
                        "kv_quality.json of benchmarks/kv_quality.py; may be given several times")
    parser.add_argument("--dark", action="store_true", help="PNG files for dark backgrounds; the page has both")
    return parser.parse_args()


def warnings_of(sweep):
    """Lines for the top of the page."""
    return [f"The profile of {machine} was disturbed ({disturbed}): predictions and the roofline may be off. Run spillway "
            "profile again when the machine is quiet, then the sweep"
            for machine, disturbed in points.disturbances(sweep.points)] + sweep.complaints


def draw_chart(chart, sweep, drawing, options):
    """Writes the chart's PNG files. Returns its HTML."""
    series = charts.series_of(sweep.points)
    content = ""
    for name, part in charts.pictures(chart):
        light, dark = (drawing.draw(part, colors, series) for colors in (theme.LIGHT, theme.DARK))
        light_png, dark_png = light.png(), dark.png()
        path = options.output / f"{name}.png"
        path.write_bytes(dark_png if options.dark else light_png)
        print(path)
        content += page.picture(chart.title, light, light_png, dark_png)
    return content


def plot(options):
    drawing = load_drawing()
    sweep = points.read_sweep(options.folder)
    table = quality.QualityTable(options.quality)
    warnings = warnings_of(sweep)
    for line in [*warnings, *table.unused(sweep.points)]:
        print(f"plot_sweep: warning: {line}", file=sys.stderr)
    options.output.mkdir(parents=True, exist_ok=True)
    sections = []
    for chart in charts.all_charts(sweep.points, table):
        drawn = "" if isinstance(chart, charts.NoChart) else draw_chart(chart, sweep, drawing, options)
        sections.append((chart.title, chart.caption, drawn + page.notes(chart.notes)))
    path = options.output / "index.html"
    text = page.page(sweep, table, warnings, sections, page.link_from(path.resolve(), options.folder.resolve()))
    path.write_text(text, encoding="utf-8")
    print(path)


def main():
    options = parse_arguments()
    options.output = options.output or options.folder
    try:
        plot(options)
    except points.Unusable as unusable:
        fail(unusable)
    except OSError as error:
        fail(f"{error.filename}: {error.strerror}")


if __name__ == "__main__":
    main()
