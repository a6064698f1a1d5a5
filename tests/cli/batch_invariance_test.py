"""The bytes of the output do not depend on what is computed together: the same for every batch size, number of batches,
number of threads and prefill chunk, on rows of all kinds. Standard library only.

  python3 batch_invariance_test.py path/to/spillway
"""

import json
import pathlib
import random
import sys
import tempfile

import harness

PARITY_MODELS = harness.REPOSITORY / "tests" / "parity" / "models"
MODELS = [
    [harness.BUNDLED_MODEL],
    [PARITY_MODELS / "postnorm-projected"],
    [PARITY_MODELS / "bf16-head128"],
    [PARITY_MODELS / "gelu-head80-untied"],
    [PARITY_MODELS / "neox-parallel"],
    [PARITY_MODELS / "dynamic"],  # rows of up to 96 tokens and longer ones, which turn by other frequencies
    [PARITY_MODELS / "longrope-neox"],
    [PARITY_MODELS / "qwen2moe-windowed"],
    [PARITY_MODELS / "gptoss-plain"],
    [harness.BUNDLED_MODEL, "--kv-bits", "4"],
    [PARITY_MODELS / "llama-groups-of-four", "--kv-bits", "4"],
    [PARITY_MODELS / "bf16-head128", "--kv-bits", "8,4"],
    [PARITY_MODELS / "gelu-head80-untied", "--kv-bits", "4", "--kv-policy", "h2o", "--kv-budget", "40%"],
]
# The first one is what the others are compared with.
FLAGS = [
    ["--gpu-batch-size", "1", "--threads", "1"],
    ["--gpu-batch-size", "1", "--threads", "2"],
    ["--gpu-batch-size", "3", "--threads", "1"],
    ["--gpu-batch-size", "3", "--threads", "2"],
    ["--gpu-batch-size", "16", "--threads", "1"],
    ["--gpu-batch-size", "16", "--threads", "2"],
    ["--gpu-batch-size", "3", "--num-gpu-batches", "4", "--threads", "2"],
    ["--gpu-batch-size", "16", "--prefill-chunk", "1", "--threads", "2"],
    ["--gpu-batch-size", "16", "--prefill-chunk", "7", "--threads", "2"],
    ["--gpu-batch-size", "4", "--prefill-chunk", "64", "--threads", "1"],
    [],
]
SENTENCE = "So the youngest brother set out, and when he had gone a little way he met an old woman. "


def sampling(rng):
    """One of the ways in which rows differ beside their prompts."""
    return rng.choice([
        {},
        {"logprobs": 3},
        {"temperature": 0.8, "top_p": 0.9},
        {"temperature": 1.3, "top_k": 20, "seed": rng.randrange(10**6)},
        {"temperature": 1.0, "logprobs": 1},
        {"stop": [" the", "\n"]},
        {"stop": ["e"], "temperature": 0.7},
        {"ignore_eos": True},
    ])


def mixed_requests():
    """Ragged prompts from 1 to 300 tokens, as text and as ids, with completions from 1 to 40 tokens."""
    rng = random.Random(7)
    requests = [{"prompt": "", "max_tokens": 5}, {"token_ids": [2], "max_tokens": 40, "ignore_eos": True}]
    for length in (1, 2, 3, 4, 5, 7, 8, 15, 16, 17, 31, 64, 65, 127, 200, 290):
        ids = [2] + [rng.randrange(4, 384) for _ in range(length)]
        requests.append({"token_ids": ids, "max_tokens": rng.randint(1, 40)} | sampling(rng))
    for length in (1, 9, 40, 88, 100):
        requests.append({"prompt": SENTENCE[:length], "max_tokens": rng.randint(1, 40)} | sampling(rng))
    body = {"prompt": SENTENCE, "max_tokens": 12} | sampling(rng)
    requests.append({"custom_id": "batch", "method": "POST", "url": "/v1/completions", "body": body})
    return requests


def name_of(model):
    return " ".join([model[0].name, *model[1:]])


def output(binary, model, source, flags):
    result = harness.run(
        binary,
        ["generate", "--model", *model, "--input", source, "--output", "-", "--seed", "3", "--quiet", *flags],
    )
    if result.status != 0:
        sys.exit(f"{name_of(model)} {' '.join(flags)}: exit {result.status}: {result.stderr.decode(errors='replace')}")
    return result.stdout


def first_difference(expected, found):
    for line, (a, b) in enumerate(zip(expected.splitlines(), found.splitlines()), start=1):
        if a != b:
            return f"line {line}:\n  {a.decode()[:600]}\n  {b.decode()[:600]}"
    return f"{len(expected.splitlines())} and {len(found.splitlines())} lines"


def check(binary, model, source):
    """The flag lists whose output differs from the first one's."""
    expected = output(binary, model, source, FLAGS[0])
    generated = sum(len(harness.choice(json.loads(line))["token_ids"]) for line in expected.splitlines())
    different = 0
    for flags in FLAGS[1:]:
        found = output(binary, model, source, flags)
        if found != expected:
            different += 1
            print(f"FAILED {name_of(model)} {' '.join(flags)}: {first_difference(expected, found)}")
    print(f"{name_of(model)}: {len(FLAGS)} runs of {generated} tokens, {different} differ", flush=True)
    return different


def main():
    binary = pathlib.Path(sys.argv[1]).resolve()
    with tempfile.TemporaryDirectory() as folder:
        source = harness.write_jsonl(pathlib.Path(folder) / "in.jsonl", mixed_requests())
        sys.exit(1 if sum(check(binary, model, source) for model in MODELS) else 0)


if __name__ == "__main__":
    main()
