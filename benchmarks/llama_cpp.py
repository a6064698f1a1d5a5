"""llama.cpp's llama-batched-bench: its command, and the line that it prints. Standard library only."""

import json


def bench_words(source, gguf, batch, options):
    """`source`: llama.cpp's folder, built in build/; `options`: threads, prompt_tokens and new_tokens."""
    words = [source / "build" / "bin" / "llama-batched-bench", "-m", gguf, "-t", options.threads, "-tb", options.threads]
    words += ["-npp", options.prompt_tokens, "-ntg", options.new_tokens, "-npl", batch, "--output-format", "jsonl"]
    words += ["-c", batch * (options.prompt_tokens + options.new_tokens) + 64]
    return [str(word) for word in words]


def bench_line(printed):
    return next(json.loads(line) for line in printed.splitlines() if line.startswith("{"))
