#!/usr/bin/env python3
"""Perplexity of a text far longer than the model's context, with caches that roll (`score --rolling`).

  python3 benchmarks/past_context.py path/to/spillway --model FOLDER --text FILE [--contexts 4] [--kept 1024] [--prompt 128]
    [--settings NAME ...] [--output FILE.json]

The first tokens are read in one pass, the others are told one a pass, as if they had been generated, and scored. The table
has the perplexity of each context's worth of tokens: where positions within the cache do what they should, it does not rise
behind the first. `full` is the full cache, which ends with the context. One row of the text at a time: as slow as decoding it.
Standard library only.
"""

import argparse
import json
import math
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

import origin

H2O, WINDOW = ["--kv-policy", "h2o", "--rolling"], ["--kv-policy", "window", "--rolling"]
SETTINGS = {
    "full": [],
    "window, 4 first tokens": [*WINDOW, "--kv-sinks", "4"],
    "window alone": WINDOW,
    "h2o": H2O,
    "h2o, 8,4 bits": [*H2O, "--kv-bits", "8,4"],
}


def positions_of(model):
    config = json.loads((model / "config.json").read_text())
    return config.get("text_config", config)["max_position_embeddings"]


def tokens_of(options, place):
    source = place / "text.jsonl"
    source.write_text(json.dumps({"prompt": options.text.read_text(encoding="utf-8")}) + "\n", encoding="utf-8")
    words = [options.binary, "tokenize", "--model", options.model, "--input", source]
    done = subprocess.run(list(map(str, words)), stdout=subprocess.PIPE, check=True)
    return json.loads(done.stdout)["token_ids"]


def score(options, ids, flags, place):
    """Log-probabilities of the tokens behind the prompt, in their order."""
    source = place / "ids.jsonl"
    source.write_text(json.dumps({"token_ids": ids}) + "\n", encoding="utf-8")
    words = [options.binary, "score", "--model", options.model, "--input", source, "--output", "-", "--quiet", *flags]
    words += ["--prefill", options.prompt] if flags else []
    words += ["--threads", options.threads] if options.threads else []
    done = subprocess.run(list(map(str, words)), stdout=subprocess.PIPE)
    if done.returncode != 0:
        sys.exit(f"past_context: spillway score ended with status {done.returncode}")
    return json.loads(done.stdout)["token_logprobs"][options.prompt :]


def perplexities(logprobs, positions, prompt):
    """Of each context's worth of tokens."""
    first, rest = logprobs[: positions - prompt], logprobs[positions - prompt :]
    parts = [first, *(rest[begin : begin + positions] for begin in range(0, len(rest), positions))]
    return [math.exp(-statistics.fmean(part)) for part in parts if part]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("binary", type=pathlib.Path)
    parser.add_argument("--model", type=pathlib.Path, required=True)
    parser.add_argument("--text", type=pathlib.Path, required=True)
    parser.add_argument("--contexts", type=int, default=4, help="of the model, that the text is cut to")
    parser.add_argument("--kept", type=int, default=1024, help="tokens in the cache")
    parser.add_argument("--prompt", type=int, default=128, help="tokens read in one pass")
    parser.add_argument("--settings", nargs="+", choices=SETTINGS, default=list(SETTINGS))
    parser.add_argument("--threads", type=int)
    parser.add_argument("--output", type=pathlib.Path, help="the figures as JSON")
    options = parser.parse_args()
    positions = positions_of(options.model)
    result = {"model": options.model.name, "positions": positions, "kept": options.kept, "prompt": options.prompt,
              "machine": f"{os.cpu_count()} cores of {origin.processor_name()}", "commit": origin.commit(), "perplexity": {}}
    with tempfile.TemporaryDirectory() as name:
        place = pathlib.Path(name)
        ids = tokens_of(options, place)
        if len(ids) < options.contexts * positions:
            sys.exit(f"past_context: {options.text} has {len(ids)} tokens, and {options.contexts} contexts {options.contexts * positions}")
        print("| cache | " + " | ".join(f"tokens to {n * positions:,}" for n in range(1, options.contexts + 1)) + " |", flush=True)
        print("|---" * (options.contexts + 1) + "|", flush=True)
        for setting in options.settings:
            flags = SETTINGS[setting]
            num_tokens = positions * (options.contexts if flags else 1)
            kept = ["--kv-budget", options.kept] if flags else []
            of_parts = perplexities(score(options, ids[:num_tokens], [*flags, *kept], place), positions, options.prompt)
            result["perplexity"][setting] = of_parts
            print(f"| {setting} | " + " | ".join(f"{value:.2f}" for value in of_parts) + " |", flush=True)
            if options.output:
                options.output.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
