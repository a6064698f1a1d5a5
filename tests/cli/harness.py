"""Runs the spillway binary for process-level tests: one call, one Result, nothing inherited from the caller's
environment that the binary reads. Standard library only."""

import json
import os
import pathlib
import subprocess
import tempfile
import time
import unittest

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
BUNDLED_MODEL = REPOSITORY / "examples" / "tales-opt-8m"
SLOWDOWN = int(os.environ.get("SPILLWAY_TEST_SLOWDOWN", "1"))  # of a build with sanitizers
TIMEOUT_S = 300 * SLOWDOWN


class Result:
    """Result of one run of the binary: exit status, both streams, and how to read its lines."""

    def __init__(self, status, stdout, stderr):
        self.status = status
        self.stdout = stdout
        self.stderr = stderr

    def error_lines(self):
        return [line for line in self.stderr.splitlines() if line.startswith(b"spillway: error[")]


def clean_environment(extra=None):
    """The caller's environment without the program's variables and without a cached machine file, so that a developer's
    settings cannot decide a test. SPILLWAY_CUDA_LIBRARIES is the launcher's: a program in a bundle does not start without."""
    kept = {key: value for key, value in os.environ.items()
            if not key.startswith("SPILLWAY_") or key == "SPILLWAY_CUDA_LIBRARIES"}
    return kept | {"XDG_CACHE_HOME": "/proc/nonexistent"} | (extra or {})  # which root cannot make either


def large_library(binary):
    """Name of a library of a build with CUDA or with sanitizers that itself needs more memory, address space or descriptors
    than a test with small limits leaves; None where there is none."""
    done = subprocess.run(["ldd", str(binary)], capture_output=True, check=False, text=True)
    return next((name for name in ("libcublasLt", "libasan", "libtsan") if name in done.stdout), None)


def run(binary, arguments, stdin=b"", cwd=None, env=None, timeout_s=TIMEOUT_S):
    done = subprocess.run(
        [str(binary), *map(str, arguments)],
        input=stdin,
        capture_output=True,
        cwd=cwd,
        env=clean_environment(env),
        timeout=timeout_s,
        check=False,
    )
    return Result(done.returncode, done.stdout, done.stderr)


def end(run):
    run.kill()
    with run:  # closes its streams, and waits
        pass


def write_jsonl(path, records):
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    return path


def read_jsonl(path):
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def choice(line):
    """The completion in an output line; an AssertionError naming the line's error when there is none."""
    assert line["error"] is None, f"line {line['custom_id']} failed: {line['error']}"
    return line["response"]["body"]["choices"][0]


class FolderTest(unittest.TestCase):
    """Tests that have a folder of their own each."""

    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = pathlib.Path(temporary.name).resolve()

    def background(self, words, env=None, **streams):
        """A run that the test goes on beside, in the test's folder. It does not outlive the test, whatever becomes of that:
        one that did, stopped perhaps, would hold the streams that ctest waits for."""
        run = subprocess.Popen([str(word) for word in words], env=clean_environment(env),
                               **{"cwd": self.folder, "stderr": subprocess.PIPE, **streams})
        self.addCleanup(end, run)
        return run

    def killed_with_lines(self, words, output, num_lines=1):
        """Kills a run of these words once OUTPUT.part holds so many lines, and leaves what it wrote."""
        part = pathlib.Path(f"{output}.part")
        for _ in range(20):
            run = self.background(words)
            while run.poll() is None and not (part.exists() and part.read_bytes().count(b"\n") >= num_lines):
                time.sleep(0.002)
            run.kill()
            run.wait(TIMEOUT_S)
            if part.exists():
                return
            output.unlink()
        self.fail("20 runs finished before they were seen to begin")


class VerbTest(FolderTest):
    """Tests of verbs. A script sets `binary` before it runs them."""

    binary = pathlib.Path()
    env = None  # beside clean_environment's

    def run_verb(self, verb, *words, status=0, env=None):
        result = run(self.binary, [verb, *words], cwd=self.folder, env=env or self.env)
        self.assertEqual(result.status, status, result.stderr.decode(errors="replace"))
        return result

    def report_of(self, verb, *words):
        path = self.folder / "report.json"
        self.run_verb(verb, *words, "--offload-dir", self.folder, "--quiet", "--report", path)
        return json.loads(path.read_text())

    def refusal(self, status, verb, *words):
        """The one line on stderr."""
        result = self.run_verb(verb, *words, status=status)
        self.assertEqual(result.stdout, b"")
        lines = result.stderr.splitlines()
        self.assertEqual(len(lines), 1, lines)
        self.assertTrue(lines[0].startswith(b"spillway: error[E-") and len(lines[0]) <= 300, lines)
        return lines[0].decode()
