"""Fillings, text widths and legends of the charts. Needs matplotlib."""

import dataclasses
import functools

import matplotlib
from matplotlib import colors, font_manager
from matplotlib.backends import backend_agg
from matplotlib.figure import Figure

DPI = 160
WIDTH = 9.2  # inches
TEXT, SMALL = 10.0, 8.5  # points
MARKERS = ["o", "s", "^", "D", "v"]


def settings():
    """Returns matplotlib's own defaults, whatever the user's file says; no text is a formula."""
    return matplotlib.rcParamsDefault | {"text.parse_math": False, "font.size": TEXT}


def filling(theme, place):
    """Returns the look of a series by its place: all colours filled first, then pale, then nearly empty."""
    color = theme.series[place % len(theme.series)]
    opacity, line = [(1.0, "-"), (0.45, "-"), (0.1, "--")][place // len(theme.series) % 3]
    return {"facecolor": colors.to_rgba(color, opacity), "edgecolor": color, "linestyle": line, "linewidth": 1.0}


def visible(text):
    """Replaces control characters and line ends, which no font can draw."""
    return "".join(letter if letter.isprintable() else " " for letter in text)


@functools.cache
def _renderer():
    return backend_agg.FigureCanvasAgg(Figure(dpi=DPI)).get_renderer()


@functools.lru_cache(maxsize=65536)
def text_width(text, size):
    """Measures a text in inches."""
    width, _, _ = _renderer().get_text_width_height_descent(text, font_manager.FontProperties(size=size), False)
    return width / DPI


def cut(text, size, inches):
    """Returns the text, or as much of its beginning as fits."""
    if text_width(text, size) <= inches:
        return text
    fits, too_long = 0, len(text)
    while fits + 1 < too_long:
        middle = (fits + too_long) // 2
        if text_width(text[:middle] + "…", size) <= inches:
            fits = middle
        else:
            too_long = middle
    return text[:fits] + "…"


def wrap(text, size, inches, max_lines):
    """Breaks a text at spaces into lines that fit; the last of them is cut."""
    lines, rest = [], text
    while rest and len(lines) + 1 < max_lines and text_width(rest, size) > inches:
        end = len(rest)
        while end > 0 and text_width(rest[:end], size) > inches:
            end = rest.rfind(" ", 0, end)
        if end <= 0:
            break
        lines.append(rest[:end])
        rest = rest[end + 1 :]
    return [*lines, cut(rest, size, inches)]


class Sheet:
    """Figure of the charts' width. Places are in inches from the upper left corner."""

    def __init__(self, theme, height):
        self.theme, self.height = theme, height
        self.figure = Figure(figsize=(WIDTH, height), dpi=DPI, facecolor=theme.page)
        backend_agg.FigureCanvasAgg(self.figure)

    def box(self, left, top, width, height):
        """Returns a place as shares of the figure from its lower left corner."""
        return left / WIDTH, 1 - (top + height) / self.height, width / WIDTH, height / self.height

    def axes(self, left, top, width, height):
        axes = self.figure.add_axes(self.box(left, top, width, height), facecolor=self.theme.page)
        axes.spines[["top", "right"]].set_visible(False)
        axes.spines[["left", "bottom"]].set_color(self.theme.soft)
        axes.tick_params(colors=self.theme.soft, labelsize=SMALL, length=0, pad=5)
        axes.set_axisbelow(True)
        return axes


@dataclasses.dataclass(frozen=True)
class LegendEntry:
    name: str
    place: int | None  # of a series; None: a shape
    marker: str = "s"


ENTRY_HEIGHT = 0.22


def legend_rows(entries):
    """Breaks entries into rows of (inches from the left, entry)."""
    rows, left = [[]], 0.1
    for entry in entries:
        width = 0.45 + text_width(entry.name, SMALL)
        if rows[-1] and left + width > WIDTH - 0.1:
            rows.append([])
            left = 0.1
        rows[-1].append((left, entry))
        left += width
    return rows


def draw_legend(sheet, rows):
    """Draws the legend at the sheet's upper edge."""
    theme = sheet.theme
    height = ENTRY_HEIGHT * len(rows)
    axes = sheet.figure.add_axes(sheet.box(0, 0.08, WIDTH, height), xlim=(0, WIDTH), ylim=(height, 0))
    axes.set_axis_off()
    for row, entries in enumerate(rows):
        middle = ENTRY_HEIGHT * (row + 0.5)
        for left, entry in entries:
            look = filling(theme, entry.place) if entry.place is not None else {"facecolor": "none", "edgecolor": theme.ink}
            axes.scatter([left + 0.08], [middle], 60, marker=entry.marker, **look)
            axes.text(left + 0.2, middle, entry.name, fontsize=SMALL, color=theme.ink, va="center_baseline")
