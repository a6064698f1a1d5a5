#!/usr/bin/env python3
"""Encoding rate of tokenizers on one thread, Spillway's beside Hugging Face's `tokenizers` where that is importable.

    python benchmarks/tokenizer_rate.py build/release/benchmarks/tokenizer_bench FOLDER [FOLDER...]

The text is examples/heldout_tales.txt, line by line, for two seconds each.
"""
import os
import pathlib
import subprocess
import sys
import time

TEXT = pathlib.Path(__file__).resolve().parents[1] / "examples" / "heldout_tales.txt"
SECONDS = 2


def reference_rate(folder):
    """MB/s and tokens/s, or None."""
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    try:
        from tokenizers import Tokenizer
    except ImportError:
        return None
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    lines = TEXT.read_text(encoding="utf-8").split("\n")
    size = sum(len(line.encode()) for line in lines)
    rounds = tokens = 0
    begin = time.monotonic()
    while time.monotonic() - begin < SECONDS:
        tokens += sum(len(tokenizer.encode(line).ids) for line in lines)
        rounds += 1
    elapsed = time.monotonic() - begin
    return rounds * size / elapsed / 1e6, tokens / elapsed


def main():
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    for folder in map(pathlib.Path, sys.argv[2:]):
        own = subprocess.run([sys.argv[1], folder, TEXT], capture_output=True, text=True, check=True).stdout.split()
        print(f"{folder.name}: Spillway {float(own[0]):.2f} MB/s, {float(own[1]):.0f} tokens/s")
        found = reference_rate(folder) if (folder / "tokenizer.json").exists() else None
        print(f"{folder.name}: tokenizers {found[0]:.2f} MB/s, {found[1]:.0f} tokens/s" if found else f"{folder.name}: no tokenizers to compare with")


if __name__ == "__main__":
    main()
