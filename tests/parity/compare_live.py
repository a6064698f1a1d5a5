"""Greedy generation against transformers itself, on fresh random models: `python compare_live.py path/to/spillway
[--seed N] [--models N]`. Needs the PyPI packages torch, transformers, safetensors and numpy; exits 77 (skipped) without.
"""

import argparse
import json
import pathlib
import random
import shutil
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "cli"))

import comparison
import engine

try:
    import torch
    import transformers

    import reference
except ImportError as missing:
    print(f"SKIPPED: {missing}; the live comparison needs torch, transformers, safetensors and numpy")
    sys.exit(77)

MAX_TOKENS = 16
NUM_PROMPTS = 8
POSITIONS = 200


def random_config(rng):
    head_dim, num_heads = rng.choice([(16, 4), (32, 2), (64, 1), (64, 2), (80, 2), (96, 1), (128, 1)])
    hidden = head_dim * num_heads
    pre_norm = rng.random() < 0.7
    return reference.opt_config(
        hidden_size=hidden,
        num_attention_heads=num_heads,
        num_hidden_layers=rng.randint(1, 4),
        ffn_dim=rng.choice([64, 100, 256]),
        word_embed_proj_dim=rng.choice([hidden, hidden // 2]),
        do_layer_norm_before=pre_norm,
        _remove_final_layer_norm=rng.random() < 0.2,
        enable_bias=rng.random() < 0.8,
        layer_norm_elementwise_affine=rng.random() < 0.8,
        activation_function=rng.choice(["relu", "gelu"]),
        tie_word_embeddings=rng.random() < 0.7,
        torch_dtype=rng.choice(["float16", "float16", "bfloat16"]),
        max_position_embeddings=POSITIONS,
    )


def write_model(folder, config, form, seed):
    (folder / "config.json").write_text(json.dumps(config))
    reference.SAVERS[form](folder, reference.random_state(config, seed))
    for name in ("vocab.json", "merges.txt", "tokenizer_config.json", "special_tokens_map.json"):
        shutil.copy(HERE / "models" / "fp32-plain" / name, folder)


def random_rows(model, rng):
    rows = []
    for _ in range(NUM_PROMPTS):
        length = rng.randint(1, POSITIONS - MAX_TOKENS)
        prompt = [2] + [rng.randrange(4, model.config.vocab_size) for _ in range(length - 1)]
        rows.append(reference.greedy(model, prompt, MAX_TOKENS) | {"ignore_eos": True})
    return rows


def compare_one(binary, seed):
    rng = random.Random(seed)
    config = random_config(rng)
    # numpy has no bf16.
    form = rng.choice(sorted(set(reference.SAVERS) - ({"numpy"} if config["torch_dtype"] == "bfloat16" else set())))
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        write_model(folder, config, form, seed)
        rows = random_rows(reference.load(folder), rng)
        requests = engine.token_requests(rows, MAX_TOKENS)
        found = [engine.row(line) for line in engine.generate(binary, folder, requests)]
    summary = comparison.compare(rows, found)
    print(comparison.table_line(f"seed {seed} {form} {config['torch_dtype']}", summary), flush=True)
    if summary.failures:
        print(json.dumps(config))
    return summary.failures


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("binary")
    parser.add_argument("--seed", type=int, default=0, help="of the first model")
    parser.add_argument("--models", type=int, default=12)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    print(comparison.TABLE_HEAD)
    seeds = range(arguments.seed, arguments.seed + arguments.models)
    failures = [f"seed {seed}, {failure}" for seed in seeds for failure in compare_one(arguments.binary, seed)]
    for failure in failures[:40]:
        print(failure)
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
