"""Makes tests/parity/golden_kv: greedy rows of the float32 reference under KV policies that evict (kv_reference.py).

  python make_kv_golden.py

Needs the PyPI packages torch and transformers. One thread: a rerun gives the same files.
"""

import json
import math
import pathlib

import torch

import comparison
import kv_reference
import reference
from kv_reference import Keep

HERE = pathlib.Path(__file__).resolve().parent
GOLDEN = HERE / "golden_kv"
MAX_TOKENS = 40
MIN_STEPS = 8  # a row that becomes fragile earlier says too little
TALES = "examples/tales-opt-8m"
MODELS = ["tests/parity/models/prenorm-head64", "tests/parity/models/postnorm-projected",
          "tests/parity/models/sharded-head16", TALES]
LENGTHS = [1, 2, 5, 9, 17, 33, 48, 64, 100, 128, 160, 200, 230, 256]


def share(percent):
    """Half heavy, half recent, of prompt + max tokens."""

    def keep(row_tokens):
        kept = math.ceil(percent * row_tokens / 100)
        return Keep(0, kept // 2, kept - kept // 2)

    return keep


# name: (flags, what a row of so many tokens keeps, whether scores decide, whether h2o_flexgen's variant)
POLICIES = {
    "h2o-20": (["--kv-policy", "h2o", "--kv-budget", "20%"], share(20), True, False),
    "h2o-7-tokens": (["--kv-policy", "h2o", "--kv-budget", "7"], lambda _: Keep(0, 3, 4), True, False),
    "h2o-one-recent": (["--kv-policy", "h2o", "--kv-heavy", "9", "--kv-recent", "1"], lambda _: Keep(0, 9, 1), True, False),
    "h2o-no-heavy": (["--kv-policy", "h2o", "--kv-heavy", "0", "--kv-recent", "12"], lambda _: Keep(0, 0, 12), True, False),
    "window-sinks": (["--kv-policy", "window", "--kv-budget", "16", "--kv-sinks", "3"], lambda _: Keep(3, 0, 13), False, False),
    "h2o-flexgen": (["--kv-policy", "h2o-flexgen", "--kv-budget", "30%"], share(30), True, True),
}


def prompts_for(model, path):
    generator = torch.Generator().manual_seed(77)
    return [[2] + torch.randint(4, model.config.vocab_size, (length - 1,), generator=generator).tolist() for length in LENGTHS]


def write(path, head, rows):
    lines = ",\n".join(json.dumps(row, separators=(",", ":")) for row in rows)
    path.write_text(json.dumps(head)[:-1] + ', "rows": [\n' + lines + "\n]}\n", encoding="utf-8")


def main():
    torch.set_num_threads(1)
    GOLDEN.mkdir(exist_ok=True)
    for path in MODELS:
        model = reference.load(HERE.parents[1] / path)
        tolerance = 0.02 if path == TALES else comparison.LOGPROB_TOLERANCE
        for name, (flags, keep, uses_scores, flexgen) in POLICIES.items():
            rows = []
            for prompt in prompts_for(model, path):
                policy = (keep(len(prompt) + MAX_TOKENS), uses_scores, flexgen)
                rows.append(kv_reference.greedy(model, prompt, MAX_TOKENS, policy) | {"ignore_eos": True})
            whole = [row for row in rows if len(row["tokens"]) >= MIN_STEPS]
            print(f"{path} {name}: {len(whole)} of {len(rows)} rows, {sum(len(r['tokens']) for r in whole)} steps", flush=True)
            head = {"model": path, "max_tokens": MAX_TOKENS, "logprob_tolerance": tolerance, "flags": flags}
            write(GOLDEN / f"{pathlib.Path(path).name}.{name}.json", head, whole)


if __name__ == "__main__":
    main()
