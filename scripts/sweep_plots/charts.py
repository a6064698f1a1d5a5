"""The charts of a sweep as data, from its points: what draw.py draws and page.py shows."""

import dataclasses

from .quality import calibrated_policies

MARGIN_FRAC = 0.15  # how far the dashed lines are from the prediction
MAX_BARS = 100  # of one picture


@dataclasses.dataclass(frozen=True)
class Bar:
    """Horizontal bar. Neighbours of one group stand together under its name. Without a value `text` says why."""

    group: str
    series: str
    value: float | None
    text: str  # at its end
    hover: str
    point: int


@dataclasses.dataclass(frozen=True)
class BarChart:
    name: str  # of its file
    title: str
    caption: str
    x_label: str
    bars: list[Bar]
    base: float = 0.0  # where bars begin; the axis is logarithmic where it is not zero
    mark: float | None = None  # a vertical line to compare with
    most: float | None = None  # the largest value of the axis; that of the bars where it is not given
    notes: list[str] = dataclasses.field(default_factory=list)  # lines below the chart

    @property
    def used_series(self):
        return {bar.series for bar in self.bars if bar.value is not None}


@dataclasses.dataclass(frozen=True)
class Dot:
    x: float
    y: float
    series: str
    shape: str
    hover: str
    point: int


@dataclasses.dataclass(frozen=True)
class Line:
    """Line y = slope * x on logarithmic axes, up to `x_end`; with slope zero a level one at height `y`, from `x_begin` on."""

    label: str
    slope: float = 0.0
    y: float = 0.0
    x_begin: float = 0.0
    x_end: float = float("inf")
    dashed: bool = False


@dataclasses.dataclass(frozen=True)
class XyChart:
    """Dots and lines over two logarithmic axes."""

    name: str
    title: str
    caption: str
    x_label: str
    y_label: str
    dots: list[Dot]
    lines: list[Line]
    shapes: list[str] = dataclasses.field(default_factory=list)  # names; empty: shapes mean nothing
    same_range: bool = False  # of both axes: what is equal lies on the diagonal
    notes: list[str] = dataclasses.field(default_factory=list)

    @property
    def used_series(self):
        return {dot.series for dot in self.dots}


@dataclasses.dataclass(frozen=True)
class NoChart:
    """Place of a chart that cannot be drawn; the caption says why."""

    title: str
    caption: str
    notes: list[str] = dataclasses.field(default_factory=list)


def short_number(value):
    """Text with 3 digits, or all before the point: "0.0123", "8.5", "1234"."""
    return f"{value:.0f}" if abs(value) >= 99.5 else f"{value:.3g}"


def flops_text(flops_per_s):
    """Text such as "840 GFLOP/s", "22 TFLOP/s"."""
    giga = flops_per_s / 1e9
    return f"{short_number(giga)} GFLOP/s" if giga < 9950 else f"{short_number(giga / 1e3)} TFLOP/s"


def signed_percent(ratio):
    """Text such as "+0.93 %", "-2 %", "+270 %"."""
    percent = 100 * (ratio - 1)
    return f"{percent:+.0f} %" if abs(percent) >= 99.5 else f"{percent:+.2g} %"


def series_of(points):
    """KV policies, so that each has one colour in all charts: "full" first, then as they come."""
    names = list(dict.fromkeys(point.kv for point in points))
    return sorted(names, key=lambda name: name != "full")


def grouped(bars):
    """Sorts bars so that those of a group stand together, where the first of them comes."""
    order = list(dict.fromkeys(bar.group for bar in bars))
    return sorted(bars, key=lambda bar: order.index(bar.group))


def hover_of(point):
    lines = [f"{point.name}, {point.kv}"]
    if point.fault:
        return f"{lines[0]}: {point.fault}"
    if point.tokens_per_s is not None:
        lines[0] += f": {short_number(point.tokens_per_s)} tokens/s"
    if point.speedup is not None:
        lines.append(f"{point.speedup:.2f} x full KV")
    if point.roof is not None:
        lines.append(f"decodes at {flops_text(point.roof.flops_per_s)}, "
                     f"{short_number(point.roof.flops_per_byte)} FLOP a byte of {point.roof.level}")
    return "\n".join(lines)


def throughput(points):
    bars = []
    for point in points:
        if point.fault:
            text = f"{point.kv}: {point.status}, {point.fault}"
        elif point.tokens_per_s is None:
            text = f"{point.kv}: its report has no rate"
        else:
            text = short_number(point.tokens_per_s)
        value = None if point.fault else point.tokens_per_s
        bars.append(Bar(point.name, point.kv, value, text, hover_of(point), point.number))
    simulated = ", simulated" if all(point.simulated for point in points) else ""
    return BarChart("throughput", "Throughput", "Generated tokens over prefill and decode time.",
                    f"generated tokens per second{simulated}", grouped(bars))


def speedup(points):
    """Chart of the fastest run of each model, lengths and KV policy; None where no run can be compared."""
    several = len({point.machine for point in points if point.machine}) > 1
    best = {}
    for point in points:
        if point.speedup is None or point.kv == "full":
            continue
        group = f"{point.work}, {point.machine}" if several else point.work
        fastest = best.setdefault((group, point.kv), point)
        if point.speedup > fastest.speedup:
            best[group, point.kv] = point
    if not best:
        return None
    order = series_of(points)
    bars = [Bar(group, kv, point.speedup, f"{point.speedup:.2f} x", hover_of(point), point.number)
            for (group, kv), point in sorted(best.items(), key=lambda item: order.index(item[0][1]))]
    works = list(dict.fromkeys(group for group, _ in best))
    return BarChart("speedup", "Speed-up over full KV",
                    "For each model and lengths, the fastest run of each KV policy and bits over the fastest one that keeps "
                    "all KV, in the most bits that the sweep has.",
                    "times the fastest run with full KV", sorted(bars, key=lambda bar: works.index(bar.group)), mark=1.0)


def quality_text(quality):
    text = f"perplexity {short_number(quality.perplexity)}"
    if quality.ratio is not None:
        text += f", {signed_percent(quality.ratio)}" if quality.ratio != 1 else ", the full cache"
    if quality.agreement_frac is not None and quality.ratio != 1:
        text += f"; {100 * quality.agreement_frac:.0f} % of next tokens the same"
    return text


def quality(points, table):
    """Bar for each model and KV policy; NoChart where nothing is known, None where no point evicts or codes anything. Its notes:
    the files that perplexities come from, and what policy files say of theirs."""
    if all(point.kv == "full" for point in points):
        return None
    notes = table.sources + [f"{kv}: {sentence}" for kv, sentence in calibrated_policies(points)]
    first = {}
    for point in points:
        if point.model:
            first.setdefault((point.model, point.kv), point)
    if all(table.of(point) is None for point in first.values()):
        return NoChart("Quality",
                       "Not drawn: what these KV policies cost in quality is not known. plot_sweep.py --quality FILE takes "
                       "reports of spillway score --perplexity and of spillway calibrate, and kv_quality.json of "
                       "benchmarks/kv_quality.py.", notes)
    bars = []
    for (model, kv), point in first.items():
        known = table.of(point)
        text = quality_text(known) if known else f"{kv}: not known"
        value = known.ratio if known else None
        if known and value is None:
            text = f"{kv}: {text}; that with all KV is not known"
        bars.append(Bar(model, kv, value, text, f"{model}, {kv}: {text}", point.number))
    return BarChart("quality", "Quality", "Perplexity of each KV policy on a text, over that with all KV. Less is better.",
                    "perplexity, times that with all KV", grouped(bars), base=1.0, mark=1.0, notes=notes)


def predicted(points):
    """Chart of measured runs over what the cost model expected; None where there are none."""
    dots = []
    for point in points:
        if point.simulated or point.tokens_per_s is None or point.predicted_tokens_per_s is None:
            continue
        hover = f"{hover_of(point)}\n{short_number(point.predicted_tokens_per_s)} predicted"
        dots.append(Dot(point.predicted_tokens_per_s, point.tokens_per_s, point.kv, "", hover, point.number))
    if not dots:
        return None
    percent = f"{100 * MARGIN_FRAC:.0f} %"
    lines = [Line(f"{percent} faster than predicted", 1 + MARGIN_FRAC, dashed=True), Line("", 1.0),
             Line("", 1 - MARGIN_FRAC, dashed=True)]
    return XyChart("predicted", "Predicted against measured",
                   f"What the cost model expects of this machine's rates. The dashed lines are {percent} off.",
                   "predicted, generated tokens per second", "measured, generated tokens per second", dots, lines,
                   same_range=True)


def roofs(points):
    """Lines that points are under: the diagonal of each level, the ceiling of each machine."""
    slopes, ceilings = {}, {}  # the highest ceiling by level and rate; the first ridge by ceiling
    for roof in (point.roof for point in points):
        key = (roof.level, roof.level_bytes_per_s)
        slopes[key] = max(roof.matmul_flops_per_s, slopes.get(key, 0.0))
        ridge = roof.matmul_flops_per_s / roof.level_bytes_per_s
        ceilings[roof.matmul_flops_per_s] = min(ridge, ceilings.get(roof.matmul_flops_per_s, ridge))
    lines = [Line(f"{level} {short_number(rate / 1e9)} GB/s", rate / 1e9, x_end=peak / rate, dashed=level != "memory")
             for (level, rate), peak in sorted(slopes.items(), key=lambda item: -item[0][1])]
    return lines + [Line(f"products {flops_text(peak)}", y=peak / 1e9, x_begin=ridge)
                    for peak, ridge in sorted(ceilings.items())]


def roofline(points):
    """Chart of decoding under the machine's limits; NoChart where they are not known."""
    known = [point for point in points if point.roof]
    if not known:
        return NoChart("Roofline",
                       "Not drawn: the machine's rates are not known. spillway profile measures them for later runs.")
    dots = [Dot(point.roof.flops_per_byte, point.roof.flops_per_s / 1e9, point.kv, point.roof.level, hover_of(point),
                point.number) for point in known]
    return XyChart("roofline", "Roofline",
                   "Decode passes under the machine's limits. Each run is counted in bytes of the level that would take it "
                   "longest at full rate, which its shape names: the device's memory, or a link.",
                   "FLOP per byte of the level that limits the run", "GFLOP/s while decoding", dots, roofs(known),
                   shapes=list(dict.fromkeys(dot.shape for dot in dots)))


def all_charts(points, table):
    """Charts in the order of the page."""
    charts = [throughput(points), speedup(points), quality(points, table), predicted(points), roofline(points)]
    return [chart for chart in charts if chart is not None]


def pictures(chart):
    """Splits a chart into (file name without its end, chart) of at most MAX_BARS bars each."""
    if not isinstance(chart, BarChart) or len(chart.bars) <= MAX_BARS:
        return [(chart.name, chart)]
    most = max((bar.value for bar in chart.bars if bar.value is not None), default=None)
    parts = [chart.bars[begin : begin + MAX_BARS] for begin in range(0, len(chart.bars), MAX_BARS)]
    return [(chart.name if place == 0 else f"{chart.name}-{place + 1}", dataclasses.replace(chart, bars=part, most=most))
            for place, part in enumerate(parts)]
