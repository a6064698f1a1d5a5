#!/usr/bin/env python3
"""Checks which folder includes which. Usage: check_layers.py [ROOT]

ARROWS lists the folders from the ground up, each with the folders below it that it may include; `include/spillway` is
below all of them. An include that is not listed fails, and so does a listed arrow that no file needs any more: the table
is the map of the tree. Folders above are never included, so no two folders include each other.
"""
import pathlib
import re
import sys

ARROWS = {
    "src/base": [],
    "src/cuda": [],
    "src/memory": ["src/base"],
    "kernels/simd": ["src/cuda"],
    "kernels/convert": ["kernels/simd", "src/base"],
    "kernels/kv": ["kernels/convert", "kernels/simd", "src/base"],
    "kernels/rows": ["kernels/convert", "kernels/kv", "kernels/simd", "src/base"],
    "kernels/matmul": ["kernels/convert", "kernels/simd", "src/base", "src/cuda"],
    "kernels/attention": ["kernels/convert", "kernels/kv", "kernels/rows", "kernels/simd", "src/base"],
    "src/model": ["src/base"],
    "src/model/families": ["src/model"],
    "src/schedule": [],
    "policies/kv": [],
    "src/plan": ["src/base", "src/memory"],
    "policies/cost": [],
    "policies/search": ["policies/cost", "src/base"],
    "src/formats": ["policies/search", "src/base"],
    "src/report": ["policies/cost", "src/base", "src/formats"],
    "src/walk": ["src/base", "src/report"],
    "src/unicode": [],
    "src/tokenizer": ["src/base", "src/unicode"],
    "src/jinja/values": ["src/unicode"],
    "src/jinja": ["src/jinja/values", "src/unicode"],
    "src/chat": ["src/base", "src/jinja", "src/jinja/values", "src/tokenizer", "src/unicode"],
    "src/sampling": ["src/tokenizer", "src/unicode"],
    "src/requests": ["src/base", "src/chat", "src/jinja/values", "src/sampling", "src/tokenizer", "src/unicode"],
    "src/answers": ["src/base", "src/sampling", "src/tokenizer", "src/unicode"],
    "src/config": ["policies/search", "src/base", "src/formats", "src/unicode"],
    "src/checkpoint": ["kernels/rows", "src/base", "src/model"],
    "src/codes": ["kernels/convert", "src/checkpoint"],
    "src/gguf": ["kernels/convert", "src/base", "src/checkpoint", "src/tokenizer"],
    "src/io": ["src/base"],
    "src/store": ["kernels/convert", "src/base", "src/checkpoint", "src/codes", "src/gguf", "src/io", "src/memory",
                  "src/model",
                  "src/tokenizer"],
    "src/device": ["src/base", "src/memory"],
    "src/compute": ["kernels/attention", "kernels/kv", "kernels/matmul", "kernels/rows", "src/base", "src/device", "src/memory"],
    "src/gpu": ["kernels/attention", "kernels/kv", "kernels/matmul", "kernels/rows", "src/base", "src/compute",
                "src/cuda", "src/device", "src/memory"],
    "src/move": ["kernels/kv", "src/base", "src/device", "src/io", "src/memory", "src/plan", "src/report",
                 "src/store", "src/walk"],
    "src/run": ["src/base", "src/device", "src/memory", "src/move", "src/report", "src/sampling", "src/store", "src/walk"],
    "src/simulate": ["policies/cost", "src/report", "src/walk"],
    "src/profile": ["kernels/attention", "kernels/matmul", "kernels/rows", "src/base", "src/device", "src/formats",
                    "src/io", "src/memory", "src/sampling"],
    "src/verbs": ["policies/cost", "policies/kv", "policies/search", "src/answers", "src/base", "src/chat", "src/checkpoint",
                  "src/codes", "src/compute", "src/config", "src/cuda", "src/device", "src/formats", "src/gguf", "src/gpu", "src/io",
                  "src/plan", "src/profile", "src/report", "src/requests", "src/run", "src/sampling",
                  "src/simulate", "src/store", "src/tokenizer", "src/unicode"],
    "src/sweep": ["src/base", "src/config", "src/profile", "src/report", "src/store"],
    "src": ["src/base", "src/config", "src/sweep", "src/verbs"],
}
INCLUDE = re.compile(r'^\s*#\s*include\s+"((?:src|kernels|policies)/[^"]+)"', re.MULTILINE)
MAX_SHARE = 0.12  # of the lines of src that one folder may have


def sources(root):
    for top in ("src", "kernels", "policies"):
        for path in sorted((root / top).rglob("*")):
            if path.suffix in (".cc", ".h", ".cu", ".cuh", ".inc"):
                yield path


def arrows(root):
    """(folder, folder included) -> where the first such include stands."""
    found = {}
    for path in sources(root):
        folder = path.parent.relative_to(root).as_posix()
        for included in INCLUDE.findall(path.read_text(encoding="utf-8")):
            to = pathlib.PurePosixPath(included).parent.as_posix()
            if to != folder:
                found.setdefault((folder, to), f"{path.relative_to(root)} includes {included}")
    return found


def faults_of_includes(found):
    """`found` is of arrows()."""
    floors = list(ARROWS)
    for (folder, to), where in found.items():
        if folder not in ARROWS or to not in ARROWS:
            yield f"{where}: a folder that tests/scripts/check_layers.py does not list"
        elif floors.index(to) > floors.index(folder):
            yield f"{where}: {to} is above {folder}"
        elif to not in ARROWS[folder]:
            yield f"{where}: {folder} may not include {to}"
    for folder, below in ARROWS.items():
        for to in below:
            if (folder, to) not in found:
                yield f"check_layers.py lists {folder} -> {to}, which no file needs"


def faults_of_sizes(root):
    lines = {}
    for path in sources(root):
        folder = path.parent.relative_to(root).as_posix()
        if folder.startswith("src") and path.suffix != ".inc":  # tables
            lines[folder] = lines.get(folder, 0) + path.read_text(encoding="utf-8").count("\n")
    total = sum(lines.values())
    for folder, count in lines.items():
        if count > MAX_SHARE * total:
            yield f"{folder} has {count} of src's {total} lines, more than {MAX_SHARE:.0%}"


def main():
    root = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else pathlib.Path(__file__).resolve().parents[2]
    found = arrows(root)
    faults = [*faults_of_includes(found), *faults_of_sizes(root)]
    for fault in faults:
        print(fault)
    print(f"{len(found)} arrows between {len(ARROWS)} folders, {len(faults)} faults")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
