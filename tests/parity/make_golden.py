"""Makes tests/parity/models and tests/parity/golden, or measures how far an engine's number formats move them.

  python make_golden.py             writes the small checkpoints and the golden rows of the float32 reference
  python make_golden.py NAME ...    writes those of these models alone
  python make_golden.py --emulate   runs the committed checkpoints with 16-bit matrices and fp16 KV, as the engine
                                    holds them, and compares with the golden rows by the rule of comparison.py; bf16 KV
                                    (--kv-dtype bfloat16) moves logprobs by 0.01, five times the tolerance

Needs the PyPI packages torch, transformers, tokenizers, safetensors and numpy. One thread: a rerun gives the same files.
"""

import argparse
import json
import pathlib
import shutil
import statistics
import sys

import tokenizers
import torch
import transformers

import comparison
import reference
from family_variants import EXPERT_VARIANTS, FAMILY_VARIANTS

HERE = pathlib.Path(__file__).resolve().parent
EXAMPLES = HERE.parents[1] / "examples"
MODELS = HERE / "models"
GOLDEN = HERE / "golden"
MAX_TOKENS = 32
PROMPT_LENGTHS = [1, 2, 3, 5, 8, 13, 16, 17, 31, 32, 33, 48, 64, 65, 96, 127, 128, 129, 160, 200, 256, 300]
# Of the variants of family_variants.py.
FEWER_LENGTHS = [1, 3, 8, 16, 33, 64, 65, 129, 200, 300]
EXPERT_LENGTHS = FEWER_LENGTHS[:8]  # longer ones have close choices nearly always
# With scaled frequencies what matters is on which side of the original context of 64 or 96 tokens a row is.
SCALED_LENGTHS = [1, 5, 16, 31, 32, 33, 48, 63, 64, 65, 96, 129, 200, 300]
NUM_EOS_ROWS = 3
# Between the scores of the last expert that a token has and of the next one.
CLOSE_CHOICE = 0.0015
MOST_TRIES = 400

SMALL_LLAMA = {"model_type": "llama", "hidden_size": 64, "num_attention_heads": 2, "num_key_value_heads": 1,
               "intermediate_size": 64, "num_hidden_layers": 2, "tie_word_embeddings": True}
SMALL_PHI3 = {"model_type": "phi3", "hidden_size": 64, "num_attention_heads": 2, "num_key_value_heads": 1,
              "intermediate_size": 64, "num_hidden_layers": 2}
SMALL_NEOX = {"model_type": "gpt_neox", "hidden_size": 64, "num_attention_heads": 2, "intermediate_size": 96,
              "num_hidden_layers": 2, "tie_word_embeddings": True}


def factors(count, first, last):
    """Factors of longrope, one a pair, from the first to the last."""
    return [round(first * (last / first) ** (pair / (count - 1)), 4) for pair in range(count)]


# name: (form on disk, seed, config), of the OPT family where it does not say. Hidden sizes follow from the head sizes that
# the family has: 64, 80, 96, 128.
VARIANTS = {
    "prenorm-head64": ("safetensors", 1, {"hidden_size": 128, "num_attention_heads": 2, "ffn_dim": 128, "num_hidden_layers": 2}),
    "postnorm-projected": ("safetensors", 2, {"hidden_size": 64, "num_attention_heads": 2, "ffn_dim": 128, "num_hidden_layers": 4,
                                              "do_layer_norm_before": False, "word_embed_proj_dim": 32}),
    "bf16-head128": ("safetensors", 3, {"hidden_size": 128, "num_attention_heads": 1, "ffn_dim": 128, "num_hidden_layers": 2,
                                        "torch_dtype": "bfloat16"}),
    "sharded-head16": ("sharded", 10, {"hidden_size": 64, "num_attention_heads": 4, "ffn_dim": 128, "num_hidden_layers": 3}),
    "torch-bin-head96": ("torch_zip", 5, {"hidden_size": 96, "num_attention_heads": 1, "ffn_dim": 96, "num_hidden_layers": 2}),
    "gelu-head80-untied": ("safetensors", 6, {"hidden_size": 160, "num_attention_heads": 2, "ffn_dim": 64, "num_hidden_layers": 2,
                                              "activation_function": "gelu", "tie_word_embeddings": False}),
    "flexgen-np": ("numpy", 7, {"hidden_size": 64, "num_attention_heads": 2, "ffn_dim": 256, "num_hidden_layers": 2}),
    "fp32-plain": ("safetensors", 8, {"hidden_size": 64, "num_attention_heads": 1, "ffn_dim": 128, "num_hidden_layers": 2,
                                      "enable_bias": False, "layer_norm_elementwise_affine": False, "torch_dtype": "float32"}),
    "gpt2-head32": ("sharded", 11, {"model_type": "gpt2", "n_embd": 64, "n_head": 2, "n_layer": 3}),
    # As Llama 3.2: grouped queries, a tied head, frequencies scaled (here from 64 positions on).
    "llama-grouped-tied": ("sharded", 12, {
        "model_type": "llama", "hidden_size": 128, "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 192,
        "num_hidden_layers": 2, "tie_word_embeddings": True, "rope_theta": 500000.0, "rope_scaling": {
            "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
            "original_max_position_embeddings": 64}}),
    # Heads that are wider together than the hidden states, biases everywhere, frequencies divided by 2.
    "llama-wide-biased": ("safetensors", 13, {
        "model_type": "llama", "hidden_size": 96, "num_attention_heads": 3, "num_key_value_heads": 1, "head_dim": 48,
        "intermediate_size": 128, "num_hidden_layers": 2, "attention_bias": True, "mlp_bias": True,
        "rope_scaling": {"type": "linear", "factor": 2.0}, "torch_dtype": "bfloat16"}),
    # As Llama 2: all heads have their own keys.
    "llama-plain": ("safetensors", 14, {
        "model_type": "llama", "hidden_size": 128, "num_attention_heads": 2, "num_key_value_heads": 2, "intermediate_size": 256,
        "num_hidden_layers": 2}),
    "neox-parallel": ("safetensors", 15, {
        "model_type": "gpt_neox", "hidden_size": 96, "num_attention_heads": 3, "intermediate_size": 96, "num_hidden_layers": 2}),
    # As Pythia's .bin files, with attention before the MLP, half of a head turned, and transformers' new names.
    "neox-serial": ("torch_zip", 16, {
        "model_type": "gpt_neox", "hidden_size": 64, "num_attention_heads": 2, "intermediate_size": 96, "num_hidden_layers": 2,
        "use_parallel_residual": False, "hidden_act": "gelu_fast", "attention_bias": False, "torch_dtype": "bfloat16",
        "rope_parameters": {"rope_type": "default", "rope_theta": 5000.0, "partial_rotary_factor": 0.5}}),
    "neox-tied-linear": ("sharded", 17, {
        "model_type": "gpt_neox", "hidden_size": 64, "num_attention_heads": 4, "intermediate_size": 128, "num_hidden_layers": 2,
        "hidden_act": "gelu_new", "rotary_pct": 1.0, "tie_word_embeddings": True,
        "rope_scaling": {"type": "linear", "factor": 2.0}}),
    # Small models, one for each way in which frequencies may be scaled.
    "yarn": ("safetensors", 18, SMALL_LLAMA | {
        "rope_scaling": {"type": "yarn", "factor": 6.0, "original_max_position_embeddings": 64}}),
    "yarn-mscale": ("safetensors", 19, SMALL_LLAMA | {
        "rope_parameters": {"rope_type": "yarn", "rope_theta": 500.0, "factor": 8.0, "original_max_position_embeddings": 64,
                            "beta_fast": 4.0, "beta_slow": 1.5, "mscale": 2.0, "mscale_all_dim": 0.5, "truncate": False}}),
    "yarn-neox": ("safetensors", 20, SMALL_NEOX | {
        "rotary_pct": 0.75, "rope_scaling": {"rope_type": "yarn", "factor": 4.0, "attention_factor": 1.3,
                                             "original_max_position_embeddings": 96}}),
    "dynamic": ("safetensors", 21, SMALL_LLAMA | {
        "max_position_embeddings": 96, "rope_scaling": {"type": "dynamic", "factor": 4.0}}),
    "dynamic-steep": ("safetensors", 22, SMALL_LLAMA | {
        "max_position_embeddings": 64, "rope_parameters": {"rope_type": "dynamic", "rope_theta": 300.0, "factor": 8.0}}),
    "dynamic-neox": ("safetensors", 23, SMALL_NEOX | {
        "max_position_embeddings": 96, "rotary_pct": 0.5, "rope_scaling": {"type": "dynamic", "factor": 4.0}}),
    "longrope": ("safetensors", 24, SMALL_LLAMA | {
        "rope_parameters": {"rope_type": "longrope", "rope_theta": 10000.0, "original_max_position_embeddings": 64,
                            "short_factor": factors(16, 1.0, 1.2), "long_factor": factors(16, 1.0, 8.0)}}),
    "longrope-factor": ("safetensors", 25, SMALL_LLAMA | {
        "original_max_position_embeddings": 96,
        "rope_scaling": {"rope_type": "longrope", "factor": 32.0, "short_factor": factors(16, 0.8, 1.5),
                         "long_factor": factors(16, 2.0, 5.0)}}),
    "longrope-neox": ("safetensors", 26, SMALL_NEOX | {
        "rotary_pct": 0.5, "rope_scaling": {"type": "longrope", "attention_factor": 1.25, "original_max_position_embeddings": 64,
                                            "short_factor": factors(8, 1.0, 1.0), "long_factor": factors(8, 1.0, 16.0)}}),
    "phi3-plain": ("sharded", 27, SMALL_PHI3 | {"num_attention_heads": 4, "num_key_value_heads": 2, "torch_dtype": "bfloat16"}),
    # As Phi-4-mini, and as the first Phi-3-mini-128k.
    "phi3-partial": ("safetensors", 31, SMALL_PHI3 | {
        "tie_word_embeddings": True, "partial_rotary_factor": 0.75, "original_max_position_embeddings": 64,
        "rope_scaling": {"type": "longrope", "short_factor": factors(12, 1.0, 1.3), "long_factor": factors(12, 1.0, 9.0)}}),
    "phi3-su": ("safetensors", 32, SMALL_PHI3 | {
        "original_max_position_embeddings": 96,
        "rope_scaling": {"type": "su", "original_max_position_embeddings": 96, "short_factor": factors(16, 1.1, 1.1),
                         "long_factor": factors(16, 1.0, 4.0)}}),
    # As Phi-3-mini-4k.
    "phi3-window": ("safetensors", 30, SMALL_PHI3 | {"sliding_window": 47, "tie_word_embeddings": True}),
} | FAMILY_VARIANTS | EXPERT_VARIANTS
# This one ships tokenizer.json; the others vocab.json and merges.txt.
TOKENIZER_JSON_VARIANT = "prenorm-head64"

TALES_PROMPTS = [
    "Once upon a time",
    "The king said to his daughter, \"",
    "In the middle of the forest there lived",
    "",
    "a",
    " leading space and trailing space ",
    "First line.\nSecond line.\n\nThe third",
    "caf\u00e9 na\u00efve \u2014 \u201cquoted\u201d \u20ac5 \U0001f600 \u65e5\u672c\u8a9e",
    "don't we'll I'M 1234567 !!?? ...",
    "A literal </s> in the text, then <pad> and <s>",
    "\ttabs\tand\r\ncarriage returns",
    "The " * 100,
    "So the youngest brother set out, and when he had gone a little way he met an old woman who asked him for bread.",
]
# The trained model is more sensitive than the random ones: an fp16 KV cache alone moves single logprobs by 0.006.
TALES_LOGPROB_TOLERANCE = 0.02
# Spillway holds the matrices of an fp32 checkpoint in fp16, which alone moves logprobs by 0.004. So this variant has two
# golden files: one with the matrices rounded first, to the usual tolerance, and one as saved, to this.
FP32_VARIANT = "fp32-plain"
FP32_LOGPROB_TOLERANCE = 0.01


def write_tokenizer(folder, vocab_size):
    trainer = tokenizers.ByteLevelBPETokenizer()
    special = ["<s>", "<pad>", "</s>", "<unk>"]
    trainer.train([str(EXAMPLES / "heldout_tales.txt")], vocab_size=vocab_size, special_tokens=special, show_progress=False)
    trainer.save_model(str(folder))
    for name in ("tokenizer_config.json", "special_tokens_map.json"):
        shutil.copy(EXAMPLES / "tales-opt-8m" / name, folder)


def keep_tokenizer_json_only(folder):
    transformers.AutoTokenizer.from_pretrained(folder).backend_tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "vocab.json").unlink()
    (folder / "merges.txt").unlink()


def write_model(name):
    form, seed, overrides = VARIANTS[name]
    folder = MODELS / name
    folder.mkdir(parents=True)
    config = reference.make_config(**{"model_type": "opt"} | overrides)
    (folder / "config.json").write_text(json.dumps(config, indent=1, sort_keys=True) + "\n")
    state = reference.random_state(config, seed)
    reference.SAVERS[form](folder, state if form == "stacked" else reference.split_experts(config, state))
    write_tokenizer(folder, config["vocab_size"])
    if name == TOKENIZER_JSON_VARIANT:
        keep_tokenizer_json_only(folder)
    for path in folder.iterdir():
        path.chmod(0o644)  # safetensors writes 0600


def random_prompt(length, vocab_size, generator):
    return [2] + torch.randint(4, vocab_size, (length - 1,), generator=generator).tolist()


def is_scaled(config):
    settings = config.get("rope_parameters") or config.get("rope_scaling") or {}
    return settings.get("rope_type", settings.get("type")) in ("yarn", "dynamic", "longrope", "su")


def random_row(model, name, length, generator):
    """Where a router chooses, the first row without a choice so close that the rounding of keys and values may turn it: an
    expert in another's place moves logprobs by far more than the tolerance."""
    for _ in range(MOST_TRIES):
        prompt = random_prompt(length, model.config.vocab_size, generator)
        chooses = name in EXPERT_VARIANTS
        if chooses and reference.closest_choice(model, prompt) < CLOSE_CHOICE:
            continue
        row = reference.greedy(model, prompt, MAX_TOKENS) | {"ignore_eos": True}
        if not chooses or reference.closest_choice(model, prompt + row["tokens"]) > CLOSE_CHOICE:
            return row
    print(f"{name}: no row of {length} tokens is without a close choice")
    return None


def random_rows(model, name):
    _, seed, config = VARIANTS[name]
    generator = torch.Generator().manual_seed(1000 + seed)
    lengths = SCALED_LENGTHS if is_scaled(config) else PROMPT_LENGTHS
    if name in FAMILY_VARIANTS:
        lengths = FEWER_LENGTHS
    elif name in EXPERT_VARIANTS:
        lengths = EXPERT_LENGTHS
    rows = [row for length in lengths if (row := random_row(model, name, length, generator))]
    variety = statistics.mean(len(set(row["tokens"])) for row in rows)
    assert variety >= 7, f"{name} repeats itself: {variety} distinct tokens a row"
    return rows


def end_at(row, eos):
    length = row["tokens"].index(eos) + 1
    return {"prompt": row["prompt"], "tokens": row["tokens"][:length], "top": row["top"][:length], "ignore_eos": False}


def with_eos_rows(rows, folder):
    """A random model ends by chance only. So the token that stops most rows midway is made its end token in config.json,
    and some rows are repeated up to it; the rows that ignore it hold it as an ordinary token."""

    def stopped(eos):
        return [row for row in rows if eos in row["tokens"][2:-2] and eos not in row["tokens"][:2]]

    eos = max(range(4, 384), key=lambda token: len(stopped(token)))
    assert len(stopped(eos)) >= NUM_EOS_ROWS, f"{folder.name}: no token stops {NUM_EOS_ROWS} rows"
    config = json.loads((folder / "config.json").read_text()) | {"eos_token_id": eos}
    (folder / "config.json").write_text(json.dumps(config, indent=1, sort_keys=True) + "\n")
    return rows + [end_at(row, eos) for row in stopped(eos)[:NUM_EOS_ROWS]]


def tales_rows():
    folder = EXAMPLES / "tales-opt-8m"
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = reference.load(folder)
    rows = []
    for text in TALES_PROMPTS:
        row = reference.greedy(model, tokenizer(text).input_ids, MAX_TOKENS, eos=2)
        decoded = tokenizer.decode(row["tokens"], skip_special_tokens=True, clean_up_tokenization_spaces=False)
        rows.append(row | {"ignore_eos": False, "text": text, "completion": decoded})
    return rows


def write_golden(name, model, tolerance, rows):
    """One row a line, so that a change shows which rows it touched."""
    print(f"{name}: {len(rows)} rows", flush=True)
    head = {"model": model, "max_tokens": MAX_TOKENS, "logprob_tolerance": tolerance}
    lines = ",\n".join(json.dumps(row, separators=(",", ":")) for row in rows)
    text = json.dumps(head)[:-1] + ', "rows": [\n' + lines + "\n]}\n"
    (GOLDEN / f"{name}.json").write_text(text, encoding="utf-8")


def make_all():
    for folder in (MODELS, GOLDEN):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
    make(VARIANTS)
    write_golden("tales-opt-8m", "examples/tales-opt-8m", TALES_LOGPROB_TOLERANCE, tales_rows())


def make(names):
    for name in names:
        shutil.rmtree(MODELS / name, ignore_errors=True)
        write_model(name)
        path = f"tests/parity/models/{name}"
        model = reference.load(MODELS / name)
        if name == FP32_VARIANT:
            write_golden(f"{name}-as-saved", path, FP32_LOGPROB_TOLERANCE, random_rows(model, name))
            reference.round_matrices(model, torch.float16)
        rows = with_eos_rows(random_rows(model, name), MODELS / name)
        write_golden(name, path, comparison.LOGPROB_TOLERANCE, rows)


def emulate(golden, cache_dtype):
    """The golden prompts again, with matrices and KV rounded."""
    folder = HERE.parents[1] / golden["model"]
    config = json.loads((folder / "config.json").read_text())
    dtype = torch.bfloat16 if config["torch_dtype"] == "bfloat16" else torch.float16
    model = reference.load(folder)
    reference.round_matrices(model, dtype)
    return [
        reference.greedy(
            model, row["prompt"], golden["max_tokens"], None if row["ignore_eos"] else config["eos_token_id"], cache_dtype
        )
        for row in golden["rows"]
    ]


def emulate_all(cache_dtype):
    print(comparison.TABLE_HEAD)
    for path in sorted(GOLDEN.glob("*.json")):
        golden = json.loads(path.read_text(encoding="utf-8"))
        rows = emulate(golden, cache_dtype)
        summary = comparison.compare(golden["rows"], rows, golden["logprob_tolerance"])
        print(comparison.table_line(path.stem, summary), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", choices=[*VARIANTS, []], metavar="NAME")
    parser.add_argument("--emulate", action="store_true")
    parser.add_argument("--kv-dtype", choices=sorted(reference.DTYPES), default="float16",
                        help="of the emulated KV cache")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    if arguments.emulate:
        emulate_all(reference.DTYPES[arguments.kv_dtype])
    else:
        make(arguments.names) if arguments.names else make_all()


if __name__ == "__main__":
    sys.exit(main())
