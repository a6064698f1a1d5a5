#!/usr/bin/env python3
"""Checks the documents against the tree. Reported are, one line each:
  - links to files or headings that are not there, and names the tree does not have: paths, flags, verbs, identifiers,
    variables of the environment; scripts quoted as commands that cannot be run;
  - comments of the code that cite a document, or a heading of one, that is not there;
  - verbs, flags and error codes of the program that docs/verbs.md and docs/formats.md leave out;
  - a README of more than 150 lines.
Ends with status 1 where there is one. Standard library only.

  scripts/check_docs.py [FILE.md ...]      (default: README.md, CONTRIBUTING.md, CHANGELOG.md, docs/*.md and the comments)
"""

import ast
import functools
import io
import os
import pathlib
import re
import sys
import tokenize

ROOT = pathlib.Path(__file__).resolve().parents[1]
FOLDERS = ("src", "include", "kernels", "policies", "scripts", "benchmarks", "third_party", "tests", "examples", "docs",
           "python")
SOURCE_SUFFIXES = {".cc", ".h", ".cu", ".cuh", ".in", ".py", ".sh", ".txt", ".json"}
COMMENTED_FOLDERS = ("include", "src", "policies", "kernels", "tests")
# Flags of other programs, quoted in commands.
FOREIGN_FLAGS = {"--preset", "--build", "--install", "--target", "--local-dir"}
MAX_README_LINES = 150


@functools.cache
def source_text():
    """The text of everything that can define a flag or an identifier."""
    files = [ROOT / name for name in ("CMakeLists.txt", "CMakePresets.json") if (ROOT / name).exists()]
    for folder in set(FOLDERS) - {"docs"}:
        files += [path for path in (ROOT / folder).rglob("*") if path.suffix in SOURCE_SUFFIXES]
    this = pathlib.Path(__file__).resolve()
    return "\n".join(path.read_text(errors="replace") for path in sorted(files) if path != this)


@functools.cache
def program_flags():
    """Names in the program's own table of flags, without the dashes."""
    text = "\n".join(path.read_text() for path in sorted((ROOT / "src/config").glob("*.[ch]*")))
    makers = "|".join(set(re.findall(r"^Flag (\w+)\(", text, re.M)))
    made = re.findall(rf'\b(?:{makers})\(\s*"([a-z][a-z0-9-]*)"', text)
    return set(made) | set(re.findall(r'\{"([a-z][a-z0-9-]*)", FlagKind::', text))


@functools.cache
def program_verbs():
    text = "\n".join(path.read_text() for path in sorted((ROOT / "src/config").glob("*.[ch]*")))
    return set(re.findall(r'VerbRow\{\s*"([a-z]+)"', text))


@functools.cache
def in_sources(word):
    """True where the sources have it as a whole word."""
    return re.search(rf"\b{word}\b", source_text()) is not None


def program_errors():
    path = ROOT / "src/base/error.cc"
    return set(re.findall(r'"(E-[A-Z-]+)"', path.read_text())) if path.exists() else set()


def code_spans(text):
    """Fenced blocks and inline code, where names stand."""
    fenced = re.findall(r"^```\w*\n(.*?)^```", text, re.M | re.S)
    inline = re.findall(r"`([^`\n]+)`", re.sub(r"^```.*?^```", "", text, flags=re.M | re.S))
    return fenced + inline


@functools.cache
def headings(path):
    text = re.sub(r"^```.*?^```", "", path.read_text(), flags=re.M | re.S)
    return [heading.strip() for heading in re.findall(r"^#+ (.+)$", text, re.M)]


def anchor(heading):
    """Anchor that GitHub makes of a heading."""
    kept = re.sub(r"[^\w\- ]", "", heading.lower())
    return kept.replace(" ", "-")


def missing_links(text, page):
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if "://" in target:
            continue
        name, _, section = target.partition("#")
        path = page.parent / name if name else page
        if not path.exists():
            yield f"link to {name}"
        elif section and section not in [anchor(heading) for heading in headings(path)]:
            yield f"heading {target}"


def missing_paths(spans):
    pattern = re.compile(rf"(?<![\w/.-])(?:{'|'.join(FOLDERS)})/[\w./*-]+")
    for span in spans:
        for path in pattern.findall(span):
            path = path.rstrip(".")
            if not (any(ROOT.glob(path)) if "*" in path else (ROOT / path).exists()):
                yield f"path {path}"


def missing_flags(spans):
    for span in spans:
        for flag in re.findall(r"(?<![\w-])--[a-z][a-z0-9-]+", span):
            known = flag in FOREIGN_FLAGS or flag[2:] in program_flags()
            if not known and not re.search(rf"{flag}(?![\w-])", source_text()):
                yield f"flag {flag}"


def missing_verbs(spans, verbs):
    for span in spans:
        for verb in re.findall(r"^spillway ([a-z]+)\b", span, re.M):
            if verb not in verbs and verb != "help":
                yield f"verb {verb}"


def missing_identifiers(spans):
    variables = {"SPILLWAY_" + flag.upper().replace("-", "_") for flag in program_flags()}
    for span in spans:
        names = re.findall(r"\b[A-Z]\w*::\w+", span)
        # Two humps: a type or a function of ours, and no word of English.
        names += re.findall(r"^[A-Z][a-z0-9]+(?:[A-Z][a-z0-9]*)+$", span)
        for name in names:
            if not all(map(in_sources, name.split("::"))):
                yield f"identifier {name}"
        for name in re.findall(r"\bSPILLWAY_[A-Z_]+[A-Z]\b", span):
            if name not in variables and not in_sources(name):
                yield f"identifier {name}"


def missing_commands(spans):
    pattern = re.compile(r"^(?:sudo )?((?:benchmarks|scripts)/[\w/-]+\.(?:py|sh))\b", re.M)
    for span in spans:
        for script in pattern.findall(span):
            if (ROOT / script).exists() and not os.access(ROOT / script, os.X_OK):
                yield f"executable command {script}"


def faults_of_page(page):
    text = page.read_text()
    spans = code_spans(text)
    yield from missing_links(text, page)
    yield from missing_paths(spans)
    yield from missing_commands(spans)
    yield from missing_flags(spans)
    yield from missing_verbs(spans, program_verbs())
    yield from missing_identifiers(spans)


def python_comments(text):
    """Comments and documentation strings."""
    nodes = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    found = [ast.get_docstring(node) or "" for node in ast.walk(ast.parse(text)) if isinstance(node, nodes)]
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    found.append("\n".join(token.string for token in tokens if token.type == tokenize.COMMENT))
    return "\n".join(found)


def comments(path):
    """All comments of a source file as one text without line breaks, so that a citation may cross lines."""
    text = path.read_text(errors="replace")
    if path.suffix == ".py":
        text = python_comments(text)
    else:
        mark = "#" if path.suffix in {".txt", ".sh", ".cmake"} else "//"
        text = "\n".join(re.findall(rf"(?:^|\s){mark}(.*)$", text, re.M))
    return re.sub(r"\s*\n[\s#]*", " ", text)


def faults_of_comments(path):
    """Documents are named from the root of the tree, or stand beside the file; a heading follows in quotes."""
    for name, heading in re.findall(r'([\w./-]+\.md)\b(?:, "([^"]+)")?', comments(path)):
        page = next((place for place in (ROOT / name, path.parent / name) if place.exists()), None)
        if page is None:
            yield f"document {name}"
        elif heading and heading not in headings(page):
            yield f'heading "{heading}" in {name}'


def commented_files():
    for folder in COMMENTED_FOLDERS:
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix in SOURCE_SUFFIXES - {".json"} and path.is_file():
                yield path


def names_left_out(page, names):
    text = page.read_text() if page.exists() else ""
    return [name for name in sorted(names) if not re.search(rf"`[^`\n]*(?<![\w-]){re.escape(name)}(?![\w-])", text)]


def faults_of_reference():
    """Names that the program has and its reference leaves out."""
    verbs_page, formats_page = ROOT / "docs/verbs.md", ROOT / "docs/formats.md"
    flags = {f"--{flag}" for flag in program_flags()}
    for name in names_left_out(verbs_page, program_verbs() | flags):
        yield f"docs/verbs.md: leaves out {name}"
    for name in names_left_out(formats_page, program_errors()):
        yield f"docs/formats.md: leaves out {name}"


def faults_of_readme():
    num_lines = len((ROOT / "README.md").read_text().splitlines())
    if num_lines > MAX_README_LINES:
        yield f"README.md: {num_lines} lines, more than {MAX_README_LINES}"


def pages_of_tree():
    pages = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")]
    return pages + sorted((ROOT / "docs").glob("*.md"))


def named(path):
    return path.relative_to(ROOT) if path.is_relative_to(ROOT) else path


def main():
    pages = [pathlib.Path(name).resolve() for name in sys.argv[1:]]
    found = []
    for page in pages or pages_of_tree():
        found += [f"{named(page)}: no such {fault}" for fault in dict.fromkeys(faults_of_page(page))]
    if not pages:
        for path in commented_files():
            found += [f"{named(path)}: no such {fault}" for fault in dict.fromkeys(faults_of_comments(path))]
        found += [*faults_of_reference(), *faults_of_readme()]
    for line in found:
        print(line)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
