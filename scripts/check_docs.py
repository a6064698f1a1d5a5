#!/usr/bin/env python3
"""Names in the documentation that the tree does not have: paths, flags, verbs, identifiers and links, and
scripts quoted as commands that cannot be run. Prints one line for each and ends with status 1 where there is one.
Standard library only.

  scripts/check_docs.py [FILE.md ...]      (default: README.md)
"""

import os
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
FOLDERS = ("src", "include", "kernels", "policies", "scripts", "benchmarks", "third_party", "tests", "examples")
SOURCE_SUFFIXES = {".cc", ".h", ".cu", ".cuh", ".in", ".py", ".sh", ".txt", ".json"}
# Of other programs, quoted in commands.
FOREIGN_FLAGS = {"--preset", "--build", "--install", "--local-dir"}


def source_text():
    """The text of everything that can define a flag or an identifier."""
    files = [ROOT / "CMakeLists.txt"]
    for folder in set(FOLDERS) - {"tests"}:
        files += [path for path in (ROOT / folder).rglob("*") if path.suffix in SOURCE_SUFFIXES]
    this = pathlib.Path(__file__).resolve()
    return "\n".join(path.read_text(errors="replace") for path in sorted(files) if path != this)


def code_spans(text):
    """Fenced blocks and inline code, where names stand."""
    fenced = re.findall(r"^```\w*\n(.*?)^```", text, re.M | re.S)
    inline = re.findall(r"`([^`\n]+)`", re.sub(r"^```.*?^```", "", text, flags=re.M | re.S))
    return fenced + inline


def missing_links(text, folder):
    for target in re.findall(r"\]\(([^)#\s]+)\)", text):
        if "://" not in target and not (folder / target).exists():
            yield f"link to {target}"


def missing_paths(spans):
    pattern = re.compile(rf"(?<![\w/.-])(?:{'|'.join(FOLDERS)})/[\w./*-]+")
    for span in spans:
        for path in pattern.findall(span):
            path = path.rstrip(".")
            if not (any(ROOT.glob(path)) if "*" in path else (ROOT / path).exists()):
                yield f"path {path}"


def missing_flags(spans, sources):
    for span in spans:
        for flag in re.findall(r"(?<![\w-])--[a-z][a-z0-9-]+", span):
            # The program's table has the bare names.
            declared = re.search(rf'{flag}(?![\w-])|[A-Z]\w*\("{flag[2:]}"', sources)
            if flag not in FOREIGN_FLAGS and not declared:
                yield f"flag {flag}"


def missing_verbs(spans, sources):
    for span in spans:
        for verb in re.findall(r"^spillway ([a-z]+)\b", span, re.M):
            if f'"{verb}"' not in sources:
                yield f"verb {verb}"


def missing_identifiers(spans, sources):
    for span in spans:
        for name in re.findall(r"\b[A-Z]\w*::\w+", span):
            if not all(re.search(rf"\b{part}\b", sources) for part in name.split("::")):
                yield f"identifier {name}"
        for name in re.findall(r"\bSPILLWAY_[A-Z_]+[A-Z]\b", span):
            if not re.search(rf"\b{name}\b", sources):
                yield f"identifier {name}"


def missing_commands(spans):
    pattern = re.compile(r"^(?:sudo )?((?:benchmarks|scripts)/[\w/-]+\.(?:py|sh))\b", re.M)
    for span in spans:
        for script in pattern.findall(span):
            if (ROOT / script).exists() and not os.access(ROOT / script, os.X_OK):
                yield f"command {script}: it is not executable"


def complaints(path, sources):
    text = path.read_text()
    spans = code_spans(text)
    yield from missing_links(text, path.parent)
    yield from missing_paths(spans)
    yield from missing_commands(spans)
    yield from missing_flags(spans, sources)
    yield from missing_verbs(spans, sources)
    yield from missing_identifiers(spans, sources)


def main():
    paths = [pathlib.Path(name) for name in sys.argv[1:]] or [ROOT / "README.md"]
    sources = source_text()
    found = [f"{path}: no such {complaint}" for path in paths for complaint in dict.fromkeys(complaints(path, sources))]
    for line in found:
        print(line)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
