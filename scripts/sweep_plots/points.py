"""Reads the folder of a sweep: a Point for each line of results.csv, with what its report adds."""

import csv
import dataclasses
import json
import math
import pathlib
import tomllib


class Unusable(Exception):
    """Fault of a file, in one line that names it."""


@dataclasses.dataclass(frozen=True)
class Roof:
    """Place of a run's decode passes under the machine's limits; `level` is the memory or link that limits them."""

    level: str
    flops_per_byte: float
    flops_per_s: float
    level_bytes_per_s: float
    matmul_flops_per_s: float


@dataclasses.dataclass(frozen=True)
class Point:
    """Line of results.csv. A rate that is not known is None; `fault` is empty where the point ran."""

    number: int  # as results.csv counts, from 1
    status: str  # measured, simulated, refused, failed
    name: str  # "opt-30b, 512 + 32": what it is, without its KV policy
    kv: str  # "h2o 20 %"
    fault: str  # "E-CPU-MEMORY ..."
    model: str
    machine: str
    work: str  # model and tokens of a row, "opt-30b, 512 + 32"
    tokens_per_s: float | None
    predicted_tokens_per_s: float | None
    speedup: float | None  # over full KV
    block: str  # "32 x 1": rows of a batch x batches
    roof: Roof | None
    file: str  # the report, relative to the folder
    report: dict  # empty where the file is not there

    @property
    def simulated(self):
        return self.status == "simulated"

    def sweep(self, key):
        """Returns what the sweep wrote into the report about this point."""
        return member(self.report, "sweep", key)


@dataclasses.dataclass(frozen=True)
class Sweep:
    folder: pathlib.Path
    title: str
    points: list[Point]
    complaints: list[str]  # lines for people: what could not be read


def member(document, *keys):
    """Returns document[keys[0]][keys[1]]..., or None where there is no such thing."""
    for key in keys:
        if not isinstance(document, dict):
            return None
        document = document.get(key)
    return document


class Line:
    """Line of results.csv with typed columns. Raises Unusable for a column that is missing or no number."""

    def __init__(self, place, row):
        self.place, self.row = place, row

    def text(self, column):
        if self.row.get(column) is None:
            raise Unusable(f"{self.place}: has no column {column}; it is not the table of a sweep")
        return self.row[column]

    def number(self, column):
        text = self.text(column)
        if not text:
            return None
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not math.isfinite(value):
            raise Unusable(f"{self.place}: {column} is {text[:40]!r}, no number")
        return value

    def rate(self, column):
        """Returns a number above zero, or None."""
        value = self.number(column)
        return value if value is not None and value > 0 else None


def roof_of(line):
    columns = ("decode_flops_per_byte", "decode_flops_per_s", "roof_bytes_per_s", "matmul_flops_per_s")
    rates = [line.rate(column) for column in columns]
    return Roof(line.text("roof"), *rates) if line.text("roof") and None not in rates else None


def work_of(line):
    """Names model and mean tokens of a row; FlexGen's schedule is work of its own."""
    rows = line.rate("num_requests")
    if rows is None:
        return ""
    prompt, new = ((line.number(column) or 0) / rows for column in ("prompt_tokens", "generated_tokens"))
    schedule = ", FlexGen's schedule" if line.row.get("as-flexgen") == "true" else ""
    return f"{line.text('model_name')}, {prompt:.0f} + {new:.0f}{schedule}"


def block_of(line):
    sizes = [line.text(column) for column in ("used_gpu_batch_size", "used_num_gpu_batches")]
    return " x ".join(sizes) if all(sizes) else ""


def point_of(line, report):
    return Point(
        number=int(line.number("point") or 0),
        status=line.text("status"),
        name=line.text("name"),
        kv=line.text("kv"),
        fault=f"{line.text('error_code')} {line.text('error')}".strip(),
        model=line.text("model_name"),
        machine=line.text("machine_name"),
        work=work_of(line),
        tokens_per_s=line.rate("generated_tokens_per_s"),
        predicted_tokens_per_s=line.rate("predicted_tokens_per_s"),
        speedup=line.rate("speedup_over_full_kv"),
        block=block_of(line),
        roof=roof_of(line),
        file=line.text("file"),
        report=report,
    )


def read_lines(path):
    try:
        with open(path, newline="", encoding="utf-8") as file:
            rows = csv.DictReader(file, strict=True)
            lines = [Line(f"{path}:{rows.line_num}", row) for row in rows]
    except OSError as error:
        raise Unusable(f"{path}: {error.strerror}; give the folder that spillway sweep wrote") from error
    except (UnicodeDecodeError, csv.Error) as error:
        raise Unusable(f"{path}: is not the table of a sweep: {error}") from error
    if not lines:
        raise Unusable(f"{path}: no point of the sweep is finished")
    return lines


def read_report(path):
    """Returns an empty document where there is no whole report."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return document if isinstance(document, dict) else {}


def read_title(path, complaints):
    try:
        title = tomllib.loads(path.read_text(encoding="utf-8")).get("title", "")
    except OSError as error:
        complaints.append(f"{path.name}: {error.strerror}; the title is not shown")
        return ""
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        complaints.append(f"{path.name}: {error}; the title is not shown")
        return ""
    return title if isinstance(title, str) else ""


def read_sweep(folder):
    """Raises Unusable where there is no table of a sweep with at least one point."""
    complaints = []
    points = []
    for line in read_lines(folder / "results.csv"):
        points.append(point_of(line, read_report(folder / line.text("file"))))
    lost = [point.file for point in points if not point.report]
    if lost:
        complaints.append(f"{len(lost)} of {len(points)} reports cannot be read ({lost[0]}): commands, warnings of the "
                          "machine's profile and quality are not shown for them")
    return Sweep(folder, read_title(folder / "grid.toml", complaints), points, complaints)


def disturbances(points):
    """Lists (machine, what disturbed its profile), each once."""
    found = {}
    for point in points:
        disturbed = member(point.report, "machine", "disturbed")
        if isinstance(disturbed, str) and disturbed:
            found[point.machine, disturbed] = None
    return list(found)
