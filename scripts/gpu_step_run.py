"""Parts with a deadline each, which a step of gpu_step.py is made of, and the Step, which runs their programs, keeps their logs
and writes the verdict. Puts benchmarks/ on the path of modules. Standard library only."""

import contextlib
import dataclasses
import itertools
import json
import os
import pathlib
import sys
import tarfile
import tempfile
import time
import traceback

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "benchmarks"))

import gpu_table  # noqa: E402

MOST_LOG_BYTES = 4 << 20  # of one log, its end; other files are left out where they are larger
OK, FAILED, CUT_OFF, SKIPPED, NOT_RUN = "ok", "FAILED", "cut off", "skipped", "not run"


@dataclasses.dataclass(frozen=True)
class Verdict:
    state: str
    text: str = ""


@dataclasses.dataclass(frozen=True)
class Part:
    """`run` takes the step and its seconds and returns a verdict. With less time than `least` it does not begin."""

    name: str
    seconds: float
    run: object
    least: float = 10.0


class Step:
    """Places, time and logs that the parts of a step share."""

    def __init__(self, args):
        self.number, self.out, self.bundle = args.number, args.out, args.bundle
        self.end = time.monotonic() + args.seconds
        self.rehearses = bool(os.environ.get("SPILLWAY_STEP_REHEARSE"))
        # A rehearsal may be of a build with sanitizers.
        self.slowdown = int(os.environ.get("SPILLWAY_TEST_SLOWDOWN", "1")) if self.rehearses else 1
        self.peers = pathlib.Path(os.environ.get("SPILLWAY_PEERS", ROOT / "gpu-peers")).resolve()
        self.work = pathlib.Path(tempfile.mkdtemp(prefix="gpu-step-"))
        self.logs = self.work / "logs"
        self.logs.mkdir()
        self.lines = {}
        self.numbers = itertools.count()
        self.hardware = gpu_table.hardware()

    def seconds_left(self):
        return self.end - time.monotonic()

    def program(self, name):
        return self.bundle / "bin" / name

    def new_folder(self, name):
        """Folder for the log of one program and for what it writes. Any thread."""
        folder = self.logs / f"{next(self.numbers):02}-{name.replace('/', '-').replace(':', '-')}"
        folder.mkdir()
        return folder

    def command(self, name, words, seconds, environment=None):
        """Runs a program; its output, both streams, is its log."""
        folder = self.new_folder(name)
        (folder / "command").write_text(" ".join(map(str, words)) + "\n")
        return gpu_table.run(words, seconds, folder, environment or {})

    def keep(self, name, text):
        """A file of the result."""
        (self.out / name).write_text(text, encoding="utf-8")

    def keep_json(self, name, value):
        self.keep(name, json.dumps(value, indent=1) + "\n")

    # --- the verdict

    def begin(self, parts):
        self.out.mkdir(parents=True, exist_ok=True)
        self.lines = {part.name: Verdict(NOT_RUN) for part in parts}
        self.write_verdict()

    def record(self, name, verdict, seconds):
        text = " ".join(verdict.text.split())
        self.lines[name] = Verdict(verdict.state, f"{text} ({seconds:.0f} s)")
        self.write_verdict()
        print(self.line(name), flush=True)
        with contextlib.suppress(OSError):
            self.pack_logs()

    def line(self, name):
        verdict = self.lines[name]
        return f"{name}: {verdict.state}" + (f": {verdict.text}" if verdict.text else "")

    def summary(self):
        states = [verdict.state for verdict in self.lines.values()]
        counts = ", ".join(f"{states.count(state)} {state}" for state in dict.fromkeys(states))
        return f"step {self.number}: {counts}; {'; '.join(self.hardware['gpus'])}, driver {self.hardware['driver']}"

    def write_verdict(self):
        self.keep("verdict.txt", "".join(f"{line}\n" for line in [self.summary(), *map(self.line, self.lines)]))

    def pack_logs(self):
        partial = self.out / "logs.tar.gz.part"
        with tarfile.open(partial, "w:gz") as archive:
            for path in sorted(self.logs.rglob("*")):
                if path.is_file() and (path.name == "output" or path.stat().st_size <= MOST_LOG_BYTES):
                    add_end(archive, path, path.relative_to(self.logs))
        partial.replace(self.out / "logs.tar.gz")

    def status(self):
        return 1 if {FAILED, CUT_OFF} & {verdict.state for verdict in self.lines.values()} else 0


def add_end(archive, path, name):
    """Adds the last MOST_LOG_BYTES of a file, or all of it, to a tar archive."""
    with open(path, "rb") as file:
        entry = archive.gettarinfo(arcname=name, fileobj=file)
        file.seek(max(0, entry.size - MOST_LOG_BYTES))
        entry.size -= file.tell()
        archive.addfile(entry, file)


def run_part(step, part):
    """A fault of a part is its verdict, and the next one runs."""
    seconds = min(part.seconds * step.slowdown, step.seconds_left())
    if seconds < part.least:
        return Verdict(NOT_RUN, "no time left")
    try:
        return part.run(step, seconds)
    except Exception as error:  # pylint: disable=broad-except
        (step.new_folder(f"{part.name}-fault") / "output").write_text(traceback.format_exc())
        return Verdict(FAILED, f"this script: {type(error).__name__}: {error}")


def run_parts(step, parts):
    step.begin(parts)
    for part in parts:
        begin = time.monotonic()
        step.record(part.name, run_part(step, part), time.monotonic() - begin)
    print(step.summary())
