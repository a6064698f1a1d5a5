"""Page of a sweep: one HTML file that needs nothing beside it, for light and dark backgrounds."""

import base64
import collections
import html
import os
import shlex
import urllib.parse

from .charts import short_number, signed_percent
from .theme import DARK, LIGHT


def variables(theme):
    """The theme's colours as CSS variables."""
    return " ".join(f"--{name}: {getattr(theme, name)};" for name in ("page", "ink", "soft", "grid", "warn"))


STYLE = f"""
:root {{ color-scheme: light dark; {variables(LIGHT)} }}
@media (prefers-color-scheme: dark) {{ :root {{ {variables(DARK)} }} }}
""" + """\
body { background: var(--page); color: var(--ink); font: 15px/1.5 system-ui, sans-serif; max-width: 960px; margin: 32px auto;
  padding: 0 20px; }
h1 { font-size: 24px; line-height: 1.25; margin: 0 0 4px; }
h2 { font-size: 18px; margin: 40px 0 4px; }
p { margin: 4px 0 12px; color: var(--soft); }
p.warning { background: var(--warn); color: var(--ink); padding: 8px 12px; border-left: 4px solid #b98500; }
.picture { position: relative; margin-bottom: 12px; }
.picture img { display: block; width: 100%; height: auto; }
.picture a { position: absolute; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-size: 13px; font-variant-numeric: tabular-nums; }
th, td { text-align: left; padding: 4px 14px 4px 0; border-bottom: 1px solid var(--grid); vertical-align: top;
  white-space: nowrap; }
ul { margin: 0; padding-left: 20px; color: var(--soft); font-size: 13px; }
td.number, th.number { text-align: right; }
td.reason { white-space: normal; color: var(--soft); }
tr:target { outline: 2px solid var(--soft); }
a { color: inherit; }
"""


def escape(text):
    """Escapes a text for elements and for attributes."""
    return html.escape(str(text), quote=True)


def data_uri(png):
    return "data:image/png;base64," + base64.b64encode(png).decode("ascii")


def percent(share):
    return f"{100 * share:.3f}%"


def picture(title, light, light_png, dark_png):
    """HTML of a picture. Each mark says what it is on hovering and leads to its line of the table."""
    width, height = light.figure.get_size_inches() * light.figure.dpi
    marks = [
        f'<a href="#p{mark.point}" title="{escape(mark.hover)}" style="left:{percent(mark.left)};top:{percent(mark.top)};'
        f'width:{percent(mark.width)};height:{percent(mark.height)}"></a>' for mark in light.marks
    ]
    return "\n".join([
        '<div class="picture"><picture>',
        f'<source media="(prefers-color-scheme: dark)" srcset="{data_uri(dark_png)}">',
        f'<img src="{data_uri(light_png)}" width="{width:.0f}" height="{height:.0f}" alt="{escape(title)}">',
        "</picture>", *marks, "</div>", "",
    ])


def notes(lines):
    items = "".join(f"<li>{escape(line)}</li>" for line in lines)
    return f"<ul>{items}</ul>\n" if items else ""


def section(title, text, content=""):
    return f"<h2>{escape(title)}</h2>\n<p>{escape(text)}</p>\n{content}"


def summary(points):
    """Counts points by what became of them, and names machines and versions."""
    counts = collections.Counter(point.status for point in points)
    machines = sorted({point.machine for point in points if point.machine})
    text = ", ".join([f"{len(points)} points", *(f"{count} {status}" for status, count in sorted(counts.items()))])
    if machines:
        how = "Simulated, not measured, on" if "simulated" in counts else "On"
        text += f". {how}: {'; '.join(machines)}"
    versions = sorted({str(point.sweep("program")).split(" ")[0] for point in points if point.sweep("program")})
    return ". ".join([text, *(f"Spillway {version}" for version in versions)]) + "."


def number(value, unit=""):
    return f'<td class="number">{"" if value is None else escape(short_number(value) + unit)}</td>'


def quality_cell(quality):
    if quality is None:
        return '<td class="number"></td>'
    ratio = f" ({signed_percent(quality.ratio)})" if quality.ratio not in (None, 1) else ""
    return f'<td class="number">{escape(short_number(quality.perplexity) + ratio)}</td>'


def row(point, quality, with_quality, link):
    command = shlex.join(map(str, point.sweep("command") or []))
    cells = [f'<tr id="p{point.number}"><td><a href="{escape(link)}" title="{escape(command)}">{point.number}</a></td>',
             f"<td>{escape(point.name)}</td><td>{escape(point.kv)}</td><td>{escape(point.status)}</td>"]
    if point.fault:
        cells.append(f'<td class="reason" colspan="{6 if with_quality else 5}">{escape(point.fault)}</td>')
    else:
        cells += [number(point.tokens_per_s), number(None if point.simulated else point.predicted_tokens_per_s),
                  number(point.speedup, " x")]
        if with_quality:
            cells.append(quality_cell(quality))
        cells.append(f"<td>{escape(point.block)}</td><td>{escape(point.roof.level if point.roof else '')}</td>")
    return "".join(cells) + "</tr>"


def table(points, qualities, link_of):
    known = [qualities.of(point) for point in points]
    with_quality = any(known)
    names = [("#", 0), ("point", 0), ("KV", 0), ("state", 0), ("tokens/s", 1), ("predicted", 1), ("over full KV", 1)]
    names += [("perplexity", 1)] if with_quality else []
    names += [("rows x batches", 0), ("limit", 0)]
    head = "".join(f'<th class="number">{name}</th>' if is_number else f"<th>{name}</th>" for name, is_number in names)
    lines = [row(point, quality, with_quality, link_of(point)) for point, quality in zip(points, known)]
    return "\n".join(['<div class="wide"><table>', f"<tr>{head}</tr>", *lines, "</table></div>", ""])


def link_from(page, folder):
    """Returns a function that gives the address of a point's report, seen from the page."""
    beside = os.path.relpath(folder, page.parent)
    return lambda point: urllib.parse.quote(os.path.normpath(os.path.join(beside, point.file)))


def page(sweep, qualities, warnings, sections, link_of):
    """Writes the HTML text. `sections` has (title, text, HTML) of each chart."""
    name = escape(sweep.title or "Spillway sweep")
    return "\n".join([
        "<!doctype html>", '<html lang="en">', "<head>", '<meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">', f"<title>{name}</title>",
        f"<style>{STYLE}</style>", "</head>", "<body>", f"<h1>{name}</h1>",
        *(f'<p class="warning">{escape(warning)}</p>' for warning in warnings),
        f"<p>{escape(summary(sweep.points))}</p>", *(section(*parts) for parts in sections),
        section("All points", "Each number leads to the point's report; its command shows on hovering. results.csv has more "
                "columns.", table(sweep.points, qualities, link_of)),
        "</body>", "</html>", "",
    ])
