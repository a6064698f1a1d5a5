"""Bad input at process level: every case ends with its declared exit status and one short error line, and leaves
nothing behind. Standard library only.

  python3 bad_input_test.py path/to/spillway [part of a case's name ...]
"""

import json
import os
import pathlib
import shutil
import sys
import tempfile

import bad_flags
import bad_lines
import bad_models
import harness

MODELS = harness.REPOSITORY / "tests" / "parity" / "models"
MAX_ERROR_BYTES = 300
TIMEOUT_S = 60


def snapshot(root):
    """Everything under `root` with what would change if it were written: names, kinds, sizes, times, link targets."""
    found = {}
    for path in sorted(root.rglob("*")):
        status = path.lstat()
        target = os.readlink(path) if path.is_symlink() else ""
        changed = 0 if path.is_dir() else status.st_mtime_ns
        size = 0 if path.is_dir() else status.st_size
        found[str(path.relative_to(root))] = (status.st_mode, size, changed, target)
    return found


def difference(before, after):
    return [f"{name} {'changed' if name in before and name in after else 'appeared' if name in after else 'vanished'}"
            for name in sorted(before.keys() | after.keys()) if before.get(name) != after.get(name)]


def error_line_faults(stderr):
    """Faults of the one line that a refusal prints. The models for tests have a word for their end token, which is said."""
    told = (b"the model's end token", b" can run: ")  # before the model is loaded
    lines = [line for line in stderr.splitlines(keepends=True) if not any(text in line for text in told)]
    if len(lines) != 1 or not lines[0].endswith(b"\n"):
        return [f"stderr has {len(lines)} lines: {stderr[:400]!r}"]
    line = lines[0][:-1]
    faults = []
    if not line.startswith(b"spillway: error[E-"):
        faults.append(f"stderr begins {line[:40]!r}")
    if len(line) > MAX_ERROR_BYTES:
        faults.append(f"the error line has {len(line)} bytes")
    if any(byte < 0x20 or byte == 0x7F for byte in line):
        faults.append(f"the error line holds control characters: {line!r}")
    try:
        line.decode("utf-8")
    except UnicodeDecodeError:
        faults.append(f"the error line is not UTF-8: {line!r}")
    return faults


def make_root(folder):
    root = pathlib.Path(folder) / "root"
    for name in ("work", "out", "tmp"):
        (root / name).mkdir(parents=True)
    bad_flags.write_good_input(root)
    return root


def refusal_faults(binary, root, status, words, environment):
    before = snapshot(root)
    result = harness.run(binary, bad_flags.command_line(words, root), cwd=root / "work",
                         env={"TMPDIR": str(root / "tmp")} | environment, timeout_s=TIMEOUT_S)
    faults = error_line_faults(result.stderr)
    if result.status != status:
        faults.append(f"exit {result.status}, expected {status}: {result.stderr[:300].decode(errors='replace').strip()}")
    if result.stdout:
        faults.append(f"stdout is {result.stdout[:200]!r}")
    return faults + difference(before, snapshot(root))


def check_model(binary, case):
    _, status, variant, damage = case
    with tempfile.TemporaryDirectory() as folder:
        root = make_root(folder)
        shutil.copytree(MODELS / variant, root / "model")
        damage(root / "model")
        return refusal_faults(binary, root, status, ["--model", "{root}/model"], {})


def check_flags(binary, case):
    _, status, words, prepare = case
    with tempfile.TemporaryDirectory() as folder:
        root = make_root(folder)
        if callable(prepare):
            prepare(root)
        return refusal_faults(binary, root, status, words, prepare if isinstance(prepare, dict) else {})


def line_faults(output, number, text):
    """Faults of the output line of bad line `number`."""
    error = output["error"]
    if output["response"] is not None or not isinstance(error, dict):
        return ["was answered"]
    faults = []
    if not error.get("code") or not error["message"].startswith(f"line {number}: "):
        faults.append(f"error is {error}")
    if text not in error["message"]:
        faults.append(f"the message does not name {text!r}: {error['message']}")
    if len(error["message"].encode()) > MAX_ERROR_BYTES:
        faults.append(f"the message has {len(error['message'].encode())} bytes")
    return faults


def run_lines(binary, root, content):
    """(result, output lines or None) of a run over an input file with this content."""
    (root / "in.jsonl").write_bytes(content)
    result = harness.run(binary, bad_flags.command_line([], root), cwd=root / "work",
                         env={"TMPDIR": str(root / "tmp")}, timeout_s=TIMEOUT_S)
    output = root / "out" / "out.jsonl"
    return result, harness.read_jsonl(output) if output.exists() else None


def check_lines(binary, cases):
    """{name: faults} of all bad lines, and of the good ones between them."""
    good = json.dumps(bad_lines.GOOD).encode()
    lines = [good] + [line for _, bad, _ in cases for line in (bad, good)]
    with tempfile.TemporaryDirectory() as folder:
        root = make_root(folder)
        before = snapshot(root)
        result, output = run_lines(binary, root, b"\n".join(lines) + b"\n")
        left = [fault for fault in difference(before, snapshot(root)) if not fault.startswith(("in.jsonl", "out/out.jsonl"))]
    if result.status != 21 or output is None or len(output) != len(lines):
        wrong = f"exit {result.status} with {len(output or [])} output lines, expected 21 with {len(lines)}: {result.stderr[:300]!r}"
        return {"bad lines": [wrong]}
    faults = {"bad lines leave something": left}
    texts = {line["response"]["body"]["choices"][0]["text"] for line in output[::2] if line["response"]}
    if len(texts) != 1 or any(line["error"] for line in output[::2]):
        faults["good lines between bad ones"] = [f"differ: {sorted(texts)[:3]}"]
    for index, (name, _, text) in enumerate(cases):
        faults[f"line: {name}"] = line_faults(output[2 * index + 1], 2 * index + 2, text)
    return faults


def check_only_bad_lines(binary):
    with tempfile.TemporaryDirectory() as folder:
        result, output = run_lines(binary, make_root(folder), b"{}\nnonsense\n")
    if result.status == 21 and output is not None and [line["response"] for line in output] == [None, None]:
        return []
    return [f"exit {result.status}, output {output}"]


def check_all(binary, wanted):
    def chosen(name):
        return not wanted or any(part in name for part in wanted)

    faults = {}
    for kind, cases, check in (("model", bad_models.CASES, check_model), ("flags", bad_flags.CASES, check_flags)):
        for case in cases:
            name = f"{kind}: {case[0]}"
            if chosen(name):
                faults[name] = check(binary, case)
    lines = [case for case in bad_lines.CASES if chosen(f"line: {case[0]}")]
    if lines:
        faults |= check_lines(binary, lines)
    if chosen("only bad lines"):
        faults["only bad lines"] = check_only_bad_lines(binary)
    return faults


def main():
    faults = check_all(pathlib.Path(sys.argv[1]).resolve(), sys.argv[2:])
    failed = {name: found for name, found in faults.items() if found}
    for name, found in failed.items():
        print(f"FAILED {name}: {'; '.join(found)}")
    print(f"{len(faults)} cases, {len(failed)} failed")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
