"""Makes tests/parity/golden_kv: greedy rows of the float32 reference under KV policies that evict (kv_reference.py).

  python make_kv_golden.py [heads|rolling] [model ...]

`heads`: only those of budgets per KV head; `rolling`: only those of caches that roll.

Needs the PyPI packages torch and transformers. A rerun gives the same rows, but for the last digits of logprobs.
"""

import json
import math
import pathlib
import sys

import torch

import comparison
import kv_reference
import reference
from kv_reference import Keep

HERE = pathlib.Path(__file__).resolve().parent
GOLDEN = HERE / "golden_kv"
MIN_STEPS = 8  # a row that becomes fragile earlier says too little
TALES = "examples/tales-opt-8m"
OPT = ["tests/parity/models/prenorm-head64", "tests/parity/models/postnorm-projected", "tests/parity/models/sharded-head16", TALES]
OPT_TOKENS = 40
OPT_LENGTHS = [1, 2, 5, 9, 17, 33, 48, 64, 100, 128, 160, 200, 230, 256]
# Grouped queries and rotary positions. Of several prompts of a length, the first whose row is nowhere fragile.
GROUPED = [f"tests/parity/models/{name}" for name in ("llama-groups-of-four", "mistral-groups-windowed", "gemma3-groups-windowed")]
GROUPED_TOKENS = 32
GROUPED_LENGTHS = [1, 9, 33, 64, 100, 160, 240]
# Experts, chosen again where what is kept changes the states.
EXPERTS = [f"tests/parity/models/{name}" for name in ("mixtral-plain", "qwen2moe-plain", "qwen3moe-plain", "gptoss-plain", "gptoss-wide")]
GROUPED_TRIES = 30
GROUPED_TOP = 2  # what the rule of comparison.py needs, in small files


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


# Windows of 24 and 40 tokens are shorter than some of these budgets and longer than others.
GROUPED_POLICIES = {name: POLICIES[name] for name in ("h2o-20", "h2o-one-recent", "window-sinks")} | {
    "h2o-30-tokens": (["--kv-policy", "h2o", "--kv-budget", "30"], lambda _: Keep(0, 15, 15), True, False),
}


# Budgets per KV head: percent, in turn.
HEAD_SHARES = [5, 30, 80, 15, 50, 100, 10]
HEADS = [*GROUPED, "tests/parity/models/prenorm-head64", "tests/parity/models/qwen3moe-plain"]
HEAD_LENGTHS = [1, 5, 9, 17, 33, 48, 64, 100, 128, 160, 200, 240]


def heads_policy(model):
    """The row of POLICIES with budgets per KV head of a model; writes the file that its flags name."""
    config = model.config.get_text_config()
    layers, heads = config.num_hidden_layers, getattr(config, "num_key_value_heads", config.num_attention_heads)
    percent = [[HEAD_SHARES[(layer * heads + head) % len(HEAD_SHARES)] for head in range(heads)] for layer in range(layers)]
    file = pathlib.Path("tests/parity/policies") / f"heads-{layers}x{heads}.json"
    budgets = [[share / 100 for share in of_layer] for of_layer in percent]
    (HERE.parents[1] / file).parent.mkdir(exist_ok=True)
    (HERE.parents[1] / file).write_text(json.dumps({"version": 1, "kv": {"policy": "h2o", "head_budgets": budgets}}) + "\n")
    return ["--policy", str(file)], lambda tokens: lambda layer, head: share(percent[layer][head])(tokens), True, False


EXPERT_POLICIES = {name: GROUPED_POLICIES[name] for name in ("h2o-30-tokens", "h2o-one-recent")}


# Caches that roll. The longest rows leave the models' 336 positions behind.
ROLLING = [f"tests/parity/models/{name}" for name in ("llama-groups-of-four", "qwen3-biased", "neox-parallel", "yarn")]
ROLLING_TOKENS = 60
ROLLING_LENGTHS = [1, 33, 100, 200, 300, 330]
ROLLING_POLICIES = {
    f"rolling-{name}": ([*flags, "--rolling"], keep, uses_scores, flexgen)
    for name, (flags, keep, uses_scores, flexgen) in GROUPED_POLICIES.items() if name != "h2o-one-recent"
}


def prompt_of(length, model, generator):
    return [2] + torch.randint(4, model.config.vocab_size, (length - 1,), generator=generator).tolist()


def opt_rows(model, policy_of):
    generator = torch.Generator().manual_seed(77)
    prompts = [prompt_of(length, model, generator) for length in OPT_LENGTHS]
    rows = [kv_reference.greedy(model, prompt, OPT_TOKENS, policy_of(len(prompt) + OPT_TOKENS)) for prompt in prompts]
    return [row for row in rows if len(row["tokens"]) >= MIN_STEPS]


def grouped_rows(model, policy_of, lengths=GROUPED_LENGTHS, max_tokens=GROUPED_TOKENS, rolls=False):
    generator = torch.Generator().manual_seed(78)
    rows = []
    for length in lengths:
        policy = policy_of(length + max_tokens)
        for _ in range(GROUPED_TRIES):
            row = kv_reference.greedy(model, prompt_of(length, model, generator), max_tokens, policy, GROUPED_TOP, rolls)
            if len(row["tokens"]) == max_tokens:
                rows.append(row)
                break
    return rows


def write(path, head, rows):
    lines = ",\n".join(json.dumps(row, separators=(",", ":")) for row in rows)
    path.write_text(json.dumps(head)[:-1] + ', "rows": [\n' + lines + "\n]}\n", encoding="utf-8")


def head_rows(model, policy_of):
    return grouped_rows(model, policy_of, HEAD_LENGTHS)


def rolling_rows(model, policy_of):
    return grouped_rows(model, policy_of, ROLLING_LENGTHS, ROLLING_TOKENS, rolls=True)


def make(path, policies, max_tokens, rows_of):
    model = reference.load(HERE.parents[1] / path)
    tolerance = 0.02 if path == TALES else comparison.LOGPROB_TOLERANCE
    if policies is None:
        policies = {"h2o-heads": heads_policy(model)}
    for name, (flags, keep, uses_scores, flexgen) in policies.items():
        rows = rows_of(model, lambda row_tokens: (keep(row_tokens), uses_scores, flexgen))
        print(f"{path} {name}: {len(rows)} rows, {sum(len(row['tokens']) for row in rows)} steps", flush=True)
        head = {"model": path, "max_tokens": max_tokens, "logprob_tolerance": tolerance, "flags": flags}
        write(GOLDEN / f"{pathlib.Path(path).name}.{name}.json", head, [row | {"ignore_eos": True} for row in rows])


def main():
    torch.set_num_threads(1)
    GOLDEN.mkdir(exist_ok=True)
    kinds = {"": [(OPT, (POLICIES, OPT_TOKENS, opt_rows)), (GROUPED, (GROUPED_POLICIES, GROUPED_TOKENS, grouped_rows)),
                  (EXPERTS, (EXPERT_POLICIES, GROUPED_TOKENS, grouped_rows))],
             "heads": [(HEADS, (None, GROUPED_TOKENS, head_rows))],
             "rolling": [(ROLLING, (ROLLING_POLICIES, ROLLING_TOKENS, rolling_rows))]}
    only, chosen = [name for name in sys.argv[1:] if name in kinds], [name for name in sys.argv[1:] if name not in kinds]
    for paths, work in [item for kind in only or kinds for item in kinds[kind]]:
        for path in paths:
            if not chosen or pathlib.Path(path).name in chosen:
                make(path, *work)


if __name__ == "__main__":
    main()
