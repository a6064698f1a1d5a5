"""Folders as transformers' save_pretrained writes them, of each family and of models with other parts, in one file and in
shards, in three types: the same greedy tokens as transformers in float32. `python folders_live.py path/to/spillway [name ...]`.
Needs the PyPI packages torch, transformers, safetensors and numpy; exits 77 (skipped) without.
"""

import json
import pathlib
import shutil
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "cli"))

import comparison
import engine
from family_variants import FAMILY_VARIANTS, SMALL, WIDE

try:
    import safetensors.torch
    import torch
    import transformers

    import reference
except ImportError as missing:
    print(f"SKIPPED: {missing}; the live comparison needs torch, transformers, safetensors and numpy")
    sys.exit(77)

MAX_TOKENS = 12
LENGTHS = [1, 5, 40, 90]
# (type, largest shard)
FORMS = [("float16", "1GB"), ("bfloat16", "60KB"), ("float32", "100KB")]
TOKENIZER_FILES = ("vocab.json", "merges.txt", "tokenizer_config.json", "special_tokens_map.json")

TOWER = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 1, "num_attention_heads": 2, "image_size": 28,
         "patch_size": 14}
TEXT = {"vocab_size": 384, "max_position_embeddings": 336, "bos_token_id": 2, "eos_token_id": 2, "pad_token_id": 1}
MISTRAL = SMALL | TEXT | {"model_type": "mistral", "sliding_window": None, "head_dim": 32}
QWEN2 = SMALL | TEXT | {"model_type": "qwen2", "tie_word_embeddings": True}
LLAMA = WIDE | TEXT | {"model_type": "llama"}
GEMMA3 = WIDE | TEXT | {"model_type": "gemma3_text", "head_dim": 32, "sliding_window": 512, "query_pre_attn_scalar": 24}
# model_type: (text part, the rest)
WHOLES = {
    "gemma3": (GEMMA3, {"vision_config": TOWER, "mm_tokens_per_image": 4}),
    "mistral3": (MISTRAL, {"vision_config": TOWER | {"model_type": "pixtral", "head_dim": 16}, "tie_word_embeddings": False}),
    "llava": (LLAMA, {"vision_config": TOWER | {"model_type": "clip_vision_model", "projection_dim": 32}}),
    "llava_next": (MISTRAL, {"vision_config": TOWER | {"model_type": "clip_vision_model", "projection_dim": 32}}),
    "llava_onevision": (QWEN2, {"vision_config": TOWER | {"model_type": "siglip_vision_model"}}),
    "internvl": (QWEN2, {"vision_config": TOWER}),
    "idefics3": (LLAMA, {"vision_config": TOWER}),
    "smolvlm": (LLAMA, {"vision_config": TOWER}),
}
OTHER_PARTS = ("vision", "multi_modal_projector", "connector", "image_newline")
# How earlier versions of transformers, and it in memory, name the text part: prefix of the model, of the head.
NAMES = [("language_model.model.", "language_model."), ("model.language_model.", "")]


def fill(model, config, seed):
    """Random weights of the text part that any of the types holds, so that all folders hold the same model."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if any(part in name for part in OTHER_PARTS):
                continue
            value = reference.INITIAL_VALUES.get(config["model_type"], reference._initial_llama_value)(
                name, parameter.shape, config, generator)
            parameter.copy_(value.bfloat16().half().float())


def text_model(config):
    return transformers.AutoModelForCausalLM.from_config(transformers.AutoConfig.for_model(**config))


def whole_model(model_type, text, rest):
    config = transformers.AutoConfig.for_model(model_type, text_config=text, **rest)
    return transformers.AutoModelForImageTextToText.from_config(config)


def prompts(seed):
    generator = torch.Generator().manual_seed(seed)
    return [[2] + torch.randint(4, 384, (length - 1,), generator=generator).tolist() for length in LENGTHS]


def golden_rows(folder, loader, dtype):
    """Greedy rows of the folder as transformers reads it, computed in float32."""
    model = loader.from_pretrained(folder, dtype="auto")
    assert model.dtype == reference.DTYPES[dtype], model.dtype
    model.set_attn_implementation("eager")
    model = model.float().eval()
    return [reference.greedy(model, prompt, MAX_TOKENS) | {"ignore_eos": True} for prompt in prompts(7)]


def check(binary, folder, name, rows):
    for file in TOKENIZER_FILES:
        shutil.copy(HERE / "models" / "fp32-plain" / file, folder)
    found = [engine.row(line) for line in engine.generate(binary, folder, engine.token_requests(rows, MAX_TOKENS))]
    summary = comparison.compare(rows, found, comparison.LOGPROB_TOLERANCE)
    print(comparison.table_line(name, summary), flush=True)
    return [f"{name}: {failure}" for failure in summary.failures]


def forms_of(binary, name, model, loader, scratch):
    failures = []
    for dtype, shard in FORMS:
        folder = scratch / f"{name}-{dtype}"
        model.to(reference.DTYPES[dtype]).save_pretrained(folder, max_shard_size=shard)
        assert (folder / "model.safetensors.index.json").exists() == (shard != "1GB")
        failures += check(binary, folder, folder.name, golden_rows(folder, loader, dtype))
    return failures


def renamed_forms(binary, name, scratch):
    """The folder of one file again, with the text part under the names that other versions give it."""
    source = scratch / f"{name}-float16"
    rows = golden_rows(source, transformers.AutoModelForImageTextToText, "float16")
    tensors = safetensors.torch.load_file(source / "model.safetensors")
    failures = []
    for number, (prefix, head) in enumerate(NAMES):
        folder = scratch / f"{name}-names-{number}"
        shutil.copytree(source, folder)
        state = {}
        for key, tensor in tensors.items():
            part = next((key.removeprefix(known) for known, _ in NAMES if key.startswith(known)), None)
            is_head = key.endswith("lm_head.weight")
            state[head + "lm_head.weight" if is_head else prefix + part if part else key] = tensor
        safetensors.torch.save_file(state, folder / "model.safetensors", metadata={"format": "pt"})
        failures += check(binary, folder, folder.name, rows)
    return failures


def check_family(binary, name, scratch):
    _, seed, overrides = FAMILY_VARIANTS[name]
    config = reference.make_config(**overrides)
    model = text_model(config)
    fill(model, config, seed)
    return forms_of(binary, name, model, transformers.AutoModelForCausalLM, scratch)


def check_whole(binary, name, scratch):
    text, rest = WHOLES[name]
    model = whole_model(name, text, rest)
    fill(model, text, 99)
    failures = forms_of(binary, name, model, transformers.AutoModelForImageTextToText, scratch)
    return failures + (renamed_forms(binary, name, scratch) if text is not LLAMA or name == "llava" else [])


def main():
    binary = pathlib.Path(sys.argv[1]).resolve()
    torch.set_num_threads(1)
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    names = sys.argv[2:] or [*FAMILY_VARIANTS, *WHOLES]
    failures = []
    print(comparison.TABLE_HEAD)
    for name in names:
        with tempfile.TemporaryDirectory() as scratch:
            failures += (check_whole if name in WHOLES else check_family)(binary, name, pathlib.Path(scratch))
    print("\n".join(failures[:40]))
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
