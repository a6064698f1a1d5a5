#!/usr/bin/env python3
"""Perplexity of a text far longer than the model's context, with caches that roll (`score --rolling`).

  python3 benchmarks/past_context.py path/to/spillway --model FOLDER --text FILE [--contexts 4] [--kept 1024] [--prompt 128]
    [--settings NAME ...] [--output FILE.json]

The first tokens are read in one pass, the others are told one a pass, as if they had been generated, and scored. The table
has the perplexity of each context's worth of tokens. Texts are not alike everywhere: beside it stands `full`, the full cache,
begun anew with each context; where positions within the cache do what they should, the distance from it does not grow. One
row of the text at a time: as slow as decoding it. A rerun measures only what the output does not hold. Standard library only.
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
    """Log-probabilities of the tokens, in their order; None for those of the prompt."""
    source = place / "ids.jsonl"
    source.write_text(json.dumps({"token_ids": ids}) + "\n", encoding="utf-8")
    words = [options.binary, "score", "--model", options.model, "--input", source, "--output", "-", "--quiet", *flags]
    words += ["--prefill", options.prompt] if flags else []
    words += ["--threads", options.threads] if options.threads else []
    done = subprocess.run(list(map(str, words)), stdout=subprocess.PIPE)
    if done.returncode != 0:
        sys.exit(f"past_context: spillway score ended with status {done.returncode}")
    return [None] * options.prompt + json.loads(done.stdout)["token_logprobs"][options.prompt :]


def perplexities(logprobs, positions):
    """Of each context's worth of tokens; None stands for those that are not scored."""
    parts = (logprobs[begin : begin + positions] for begin in range(0, len(logprobs), positions))
    return [math.exp(-statistics.fmean(value for value in part if value is not None)) for part in parts]


def measure(options, ids, setting, positions, place):
    flags = SETTINGS[setting]
    if flags:
        return perplexities(score(options, ids, [*flags, "--kv-budget", options.kept], place), positions)
    contexts = (ids[begin : begin + positions] for begin in range(0, len(ids), positions))
    return perplexities([value for part in contexts for value in score(options, part, [], place)], positions)


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
    if options.output and options.output.exists():
        earlier = json.loads(options.output.read_text())
        if all(earlier[key] == result[key] for key in ("model", "positions", "kept", "prompt")):
            result = earlier
    with tempfile.TemporaryDirectory() as name:
        place = pathlib.Path(name)
        ids = tokens_of(options, place)
        if len(ids) < options.contexts * positions:
            sys.exit(f"past_context: {options.text} has {len(ids)} tokens, and {options.contexts} contexts {options.contexts * positions}")
        print("| cache | " + " | ".join(f"tokens to {n * positions:,}" for n in range(1, options.contexts + 1)) + " |", flush=True)
        print("|---" * (options.contexts + 1) + "|", flush=True)
        for setting in options.settings:
            of_parts = result["perplexity"].get(setting)
            of_parts = of_parts or measure(options, ids[: options.contexts * positions], setting, positions, place)
            result["perplexity"][setting] = of_parts
            print(f"| {setting} | " + " | ".join(f"{value:.2f}" for value in of_parts) + " |", flush=True)
            if options.output:
                options.output.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
