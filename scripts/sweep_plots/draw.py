"""Draws charts; needs matplotlib."""

import dataclasses
import io
import itertools
import math

import matplotlib
from matplotlib import ticker
from matplotlib.patheffects import withStroke
from PIL import Image

from .charts import BarChart, short_number
from .style import (ENTRY_HEIGHT, MARKERS, SMALL, TEXT, WIDTH, LegendEntry, Sheet, cut, draw_legend, filling, legend_rows,
                    settings, text_width, visible, wrap)

BAR, BAR_GAP, GROUP_GAP = 0.16, 0.05, 0.15  # inches
LINE_HEIGHT = 0.15
MAX_LABEL = 2.9
BELOW_AXIS = 0.52  # ticks and the axis's name


@dataclasses.dataclass(frozen=True)
class Mark:
    """Place of a point on a picture, as shares of it from the upper left corner."""

    left: float
    top: float
    width: float
    height: float
    hover: str
    point: int


@dataclasses.dataclass(frozen=True)
class Picture:
    figure: object
    marks: list[Mark]

    def png(self):
        canvas = self.figure.canvas
        with matplotlib.rc_context(settings()):
            canvas.draw()
        # Without the alpha channel, which savefig writes, half the time and less to carry.
        image = Image.frombuffer("RGBA", canvas.get_width_height(), canvas.buffer_rgba()).convert("RGB")
        data = io.BytesIO()
        image.save(data, format="png", dpi=(self.figure.dpi, self.figure.dpi))
        return data.getvalue()


def draw(chart, theme, series):
    """`series` has the names of all series of the sweep: a colour is known by its place there."""
    with matplotlib.rc_context(settings()):
        return (draw_bars if isinstance(chart, BarChart) else draw_xy)(chart, theme, series)


def halo(theme):
    """Keeps lines off a text that stands on them."""
    return [withStroke(linewidth=2.5, foreground=theme.page)]


def series_entries(chart, series):
    return [LegendEntry(visible(name), place) for place, name in enumerate(series) if name in chart.used_series]


# --- bars


@dataclasses.dataclass(frozen=True)
class BarRow:
    bar: object
    top: float  # inches, within the axes
    label: list[str]  # of the group that begins here


def bar_rows(chart):
    """Lays bars out: (rows, height of all)."""
    rows, top = [], 0.0
    for group, bars in itertools.groupby(chart.bars, key=lambda bar: bar.group):
        top += GROUP_GAP
        label = wrap(visible(group), SMALL, MAX_LABEL, 2)
        below_label = top + LINE_HEIGHT * len(label)
        for place, bar in enumerate(bars):
            rows.append(BarRow(bar, top, label if place == 0 else []))
            top += BAR + BAR_GAP
        top = max(top - BAR_GAP, below_label)
    return rows, top + GROUP_GAP


def bar_limits(chart, width):
    """Limits of the axis, so that each bar's text fits behind it."""

    def scaled(value):
        return math.log(value) if chart.base else value

    values = [(bar.value, 0.12 + text_width(visible(bar.text), SMALL)) for bar in chart.bars if bar.value is not None]
    values += [(value, 0.1) for value in (chart.mark, chart.most) if value is not None]
    low = min([value for value, _ in values if chart.base] + [chart.base])
    span = max(((scaled(value) - scaled(low)) * width / max(width - text, 0.3 * width) for value, text in values), default=0.0)
    if chart.base:
        return low, low * math.exp(max(span, math.log(1.1)))
    return low, span or 1.0


def ratio_ticks(low, high, width):
    """Ticks of a logarithmic axis of `width` inches, far enough apart to be read."""
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    for steps in ((1, 1.02, 1.05, 1.1, 1.2, 1.5, 2, 3, 5), (1, 1.1, 1.2, 1.5, 2, 3, 5), (1, 1.5, 2, 3, 5), (1, 2, 5), (1,)):
        ticks = [step * 10.0**power for power in decades for step in steps]
        ticks = [tick for tick in ticks if low * 0.9999 <= tick <= high]
        apart = [math.log(right / left) / math.log(high / low) * width for left, right in zip(ticks, ticks[1:])]
        if not apart or min(apart) >= 0.4:
            return ticks
    stride = math.ceil(0.4 * len(ticks) / width)
    return ticks[::stride]


def scale_bars(axes, chart, width):
    low, high = bar_limits(chart, width)
    if chart.base:
        axes.set_xscale("log")
        ticks = ratio_ticks(low, high, width)
    else:
        ticks = [tick for tick in ticker.MaxNLocator(8, steps=[1, 2, 5, 10]).tick_values(low, high) if tick <= high]
    axes.xaxis.set_major_locator(ticker.FixedLocator(ticks))
    axes.xaxis.set_minor_locator(ticker.NullLocator())
    axes.xaxis.set_major_formatter(ticker.FuncFormatter(lambda value, _: short_number(value)))
    axes.set_xlim(low, high)


def middle_of(row):
    return row.top + BAR / 2


def draw_series_of_bars(axes, rows, chart, theme, place, width):
    """Draws the bars of one series; crosses where there is no value."""
    look = filling(theme, place)
    known = [row for row in rows if row.bar.value is not None]
    axes.barh([middle_of(row) for row in known], [row.bar.value - chart.base for row in known], BAR, left=chart.base, **look)
    missing = [middle_of(row) for row in rows if row.bar.value is None]
    axes.scatter([0.1 / width] * len(missing), missing, 22, marker="x", color=look["edgecolor"], linewidth=1.5,
                 transform=axes.get_yaxis_transform())


def draw_texts(axes, row, chart, theme, width):
    """Writes a bar's text behind it, or in its place where it has no value; and the group's name before its first bar."""
    bar, middle = row.bar, middle_of(row)
    if bar.value is None:
        axes.annotate(cut(visible(bar.text), SMALL, width - 0.3), (0.22 / width, middle), xycoords=axes.get_yaxis_transform(),
                      va="center_baseline", fontsize=SMALL, color=theme.soft)
    else:
        axes.annotate(visible(bar.text), (max(bar.value, chart.base), middle), (4, 0), textcoords="offset points",
                      va="center_baseline", fontsize=SMALL, color=theme.ink, path_effects=halo(theme))
    for line, text in enumerate(row.label):
        axes.annotate(text, (-0.1 / width, middle + line * LINE_HEIGHT), xycoords=axes.get_yaxis_transform(), ha="right",
                      va="center_baseline", fontsize=SMALL, color=theme.ink)


def draw_bars(chart, theme, series):
    rows, height = bar_rows(chart)
    legend = legend_rows(series_entries(chart, series))
    left = 0.25 + max(text_width(line, SMALL) for row in rows for line in row.label or [""])
    top = 0.12 + ENTRY_HEIGHT * len(legend)
    width = WIDTH - left - 0.3
    sheet = Sheet(theme, top + height + BELOW_AXIS)
    draw_legend(sheet, legend)
    axes = sheet.axes(left, top, width, height)
    scale_bars(axes, chart, width)
    axes.set_ylim(height, 0)
    axes.set_yticks([])
    axes.grid(axis="x", color=theme.grid)
    axes.set_xlabel(chart.x_label, color=theme.ink, fontsize=TEXT)
    if chart.mark is not None:
        axes.axvline(chart.mark, color=theme.soft, linestyle="--", linewidth=1.2)
    for place, name in enumerate(series):
        draw_series_of_bars(axes, [row for row in rows if row.bar.series == name], chart, theme, place, width)
    marks = []
    for row in rows:
        draw_texts(axes, row, chart, theme, width)
        marks.append(Mark(left / WIDTH, (top + row.top) / sheet.height, width / WIDTH, BAR / sheet.height, row.bar.hover,
                          row.bar.point))
    return Picture(sheet.figure, marks)


# --- dots over two logarithmic axes


@dataclasses.dataclass(frozen=True)
class LogAxis:
    """Logarithmic axis from `low` to `high`, `inches` long."""

    low: float
    high: float
    inches: float

    def at(self, value):
        """Returns the inches from the low end."""
        return math.log(value / self.low) / math.log(self.high / self.low) * self.inches

    def ticks(self):
        decades = math.log10(self.high / self.low)
        steps = (1, 1.5, 2, 3, 5, 7) if decades <= 1.2 else (1, 2, 5) if decades <= 3 else (1,)
        powers = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
        stride = max(1, math.ceil(decades / 10))
        ticks = [step * 10.0**power for power in powers if power % stride == 0 for step in steps]
        return [tick for tick in ticks if self.low * 0.9999 <= tick <= self.high * 1.0001]


def log_axis(values, inches):
    """Makes an axis with room around the values, over at least a factor of six."""
    low, high = min(values) / 1.4, max(values) * 1.4
    wider = max(1.0, math.sqrt(6 * low / high))
    return LogAxis(low / wider, high * wider, inches)


def xy_axes(chart, width, height):
    xs, ys = [dot.x for dot in chart.dots], [dot.y for dot in chart.dots]
    for line in chart.lines:
        if line.y:  # ceilings are always shown
            xs.append(line.x_begin)
            ys.append(line.y)
    if chart.same_range:
        xs = ys = xs + ys
    return log_axis(xs, width), log_axis(ys, height)


@dataclasses.dataclass(frozen=True)
class Segment:
    """Part of a line or of a text within the axes, in inches from their lower left corner."""

    left: float
    bottom: float
    angle: float  # radians
    length: float

    def point(self, along, beside=0.0):
        """Returns a place on it, or beside it on its upper left side."""
        return (self.left + along * math.cos(self.angle) - beside * math.sin(self.angle),
                self.bottom + along * math.sin(self.angle) + beside * math.cos(self.angle))

    def points(self, beside=0.0):
        steps = max(1, math.ceil(self.length / 0.1))
        return [self.point(self.length * step / steps, beside) for step in range(steps + 1)]

    def distance(self, place):
        """Returns the inches from a place to the nearest point of the segment."""
        across, up = place[0] - self.left, place[1] - self.bottom
        along = across * math.cos(self.angle) + up * math.sin(self.angle)
        return math.dist(place, self.point(min(self.length, max(0.0, along))))


def segment_of(line, x, y):
    """Returns what is seen of a line."""
    if not line.slope:
        left = max(0.0, x.at(line.x_begin))
        return Segment(left, y.at(line.y), 0.0, x.inches - left)
    angle = math.atan2(y.inches / math.log(y.high / y.low), x.inches / math.log(x.high / x.low))
    foot, rise = y.at(line.slope * x.low), math.tan(angle)
    left = max(0.0, -foot / rise)
    right = min(x.inches, x.at(min(line.x_end, x.high)), (y.inches - foot) / rise)
    return Segment(left, foot + rise * left, angle, max(0.0, right - left) / math.cos(angle))


NEAR_DOT, NEAR_LINE = 0.17, 0.09  # inches that a name keeps from them where it can
CELL = 0.05


class Places:
    """Finds places for the lines' names, away from dots, other lines and each other."""

    def __init__(self, x, y, chart):
        self.x, self.y = x, y
        self.segments = [segment_of(line, x, y) for line in chart.lines]
        self.taken = {self.cell((x.at(dot.x), y.at(dot.y))) for dot in chart.dots}

    @staticmethod
    def cell(place):
        """Rounds a place, so that thousands of dots cost no more than hundreds."""
        return round(place[0] / CELL), round(place[1] / CELL)

    def crowding(self, place):
        """Sums how near taken cells are."""
        across, up = self.cell(place)
        reach = math.ceil(NEAR_DOT / CELL)
        cells = ((across + right, up + over) for right in range(-reach, reach + 1) for over in range(-reach, reach + 1))
        return sum(max(0.0, NEAR_DOT - CELL * math.dist((across, up), cell)) for cell in cells if cell in self.taken)

    def cost(self, text, others):
        """Sums how near a text is to what is there; infinite outside the axes."""
        points = text.points(beside=SMALL / 72 / 3)
        if not all(0.08 <= across <= self.x.inches - 0.05 and 0.08 <= up <= self.y.inches - 0.08 for across, up in points):
            return math.inf
        return sum(self.crowding(point) + sum(max(0.0, NEAR_LINE - other.distance(point)) for other in others)
                   for point in points)

    def best(self, place, length):
        """Returns the first of the cheapest places for the name of line number `place`, and takes it."""
        others = self.segments[:place] + self.segments[place + 1 :]
        text = min(name_places(self.segments[place], length), key=lambda text: self.cost(text, others))
        self.taken |= {self.cell(point) for point in text.points(beside=SMALL / 72 / 3)}
        return text


def name_places(segment, length):
    """Lists places for a line's name: along it on its upper left side, then on the other, then level beside it."""
    free = segment.length - length
    if segment.angle == 0.0:  # ceilings are named at their right end, which may be shorter than the name
        starts = [free - 0.06 - 0.3 * step for step in range(25)]
    else:
        starts = [max(0.0, free) * step / 24 for step in range(25)]
    sides = [Segment(*segment.point(start, beside), segment.angle, length) for beside in (0.06, -0.15) for start in starts]
    level = [Segment(left + 0.12, bottom - 0.1, 0.0, length) for left, bottom in segment.points()]
    return sides + level


def draw_lines(axes, chart, x, y, theme):
    places = Places(x, y, chart)
    for place, line in enumerate(chart.lines):
        style = {"color": theme.soft, "linewidth": 1.3, "linestyle": "--" if line.dashed else "-"}
        if line.slope:
            right = min(line.x_end, x.high)
            axes.plot([x.low, right], [line.slope * x.low, line.slope * right], **style)
        else:
            axes.plot([line.x_begin, x.high], [line.y, line.y], **style)
        if line.label:
            label = visible(line.label)
            text = places.best(place, text_width(label, SMALL))
            axes.annotate(label, (text.left / x.inches, text.bottom / y.inches), xycoords="axes fraction",
                          rotation=math.degrees(text.angle), rotation_mode="anchor", fontsize=SMALL, color=theme.soft,
                          path_effects=halo(theme))


def scale_xy(axes, chart, x, y, theme):
    axes.set_xscale("log")
    axes.set_yscale("log")
    for axis, scale in ((axes.xaxis, x), (axes.yaxis, y)):
        axis.set_major_locator(ticker.FixedLocator(scale.ticks()))
        axis.set_major_formatter(ticker.FuncFormatter(lambda value, _: short_number(value)))
        axis.set_minor_locator(ticker.NullLocator())
    axes.set_xlim(x.low, x.high)
    axes.set_ylim(y.low, y.high)
    axes.grid(color=theme.grid)
    axes.set_xlabel(chart.x_label, color=theme.ink, fontsize=TEXT)
    axes.set_ylabel(chart.y_label, color=theme.ink, fontsize=TEXT)


def draw_dots(axes, chart, theme, series):
    for place, name in enumerate(series):
        for at, shape in enumerate(chart.shapes or [""]):
            dots = [dot for dot in chart.dots if (dot.series, dot.shape) == (name, shape)]
            axes.scatter([dot.x for dot in dots], [dot.y for dot in dots], 52, marker=MARKERS[at % len(MARKERS)], zorder=3,
                         **filling(theme, place))


def draw_xy(chart, theme, series):
    shapes = [LegendEntry(visible(name), None, MARKERS[at % len(MARKERS)]) for at, name in enumerate(chart.shapes)]
    legend = legend_rows(series_entries(chart, series) + shapes)
    left, width, height = 0.9, WIDTH - 1.2, 4.2
    top = 0.2 + ENTRY_HEIGHT * len(legend)
    sheet = Sheet(theme, top + height + BELOW_AXIS)
    draw_legend(sheet, legend)
    axes = sheet.axes(left, top, width, height)
    x, y = xy_axes(chart, width, height)
    scale_xy(axes, chart, x, y, theme)
    draw_lines(axes, chart, x, y, theme)
    draw_dots(axes, chart, theme, series)
    marks = []
    for dot in chart.dots:
        across, down = left + x.at(dot.x), top + height - y.at(dot.y)
        marks.append(Mark((across - 0.07) / WIDTH, (down - 0.07) / sheet.height, 0.14 / WIDTH, 0.14 / sheet.height, dot.hover,
                          dot.point))
    return Picture(sheet.figure, marks)
