#!/usr/bin/env python3
"""Makes small OPT checkpoints with transformers, torch, safetensors and numpy, and compares what our readers say.

Not part of the test suite, which needs no packages. Run:
    python compare_live.py BUILD/tests/checkpoint_dump
"""
import ctypes
import itertools
import json
import pathlib
import random
import subprocess
import sys
import tempfile

import numpy
import torch
from safetensors.torch import save_file
from transformers import OPTConfig, OPTForCausalLM

XXH64 = ctypes.CDLL("libxxhash.so.0").XXH64
XXH64.restype = ctypes.c_uint64
XXH64.argtypes = [ctypes.c_char_p, ctypes.c_size_t, ctypes.c_uint64]

TYPES = {torch.float16: "fp16", torch.bfloat16: "bf16", torch.float32: "fp32"}


def line(name, tensor):
    data = tensor.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
    shape = ",".join(str(size) for size in tensor.shape)
    return f"{name} {TYPES[tensor.dtype]} [{shape}] {XXH64(data, len(data), 0):016x}"


def dump(tool, *arguments):
    done = subprocess.run([tool, *arguments], capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"{arguments}: {done.stderr}")
    return done.stdout.splitlines()


def check(what, found, expected):
    if sorted(found) != sorted(expected):
        for wrong in sorted(set(found) ^ set(expected))[:10]:
            print("   ", wrong)
        raise SystemExit(f"{what}: differs")
    print(f"{what}: {len(expected)} lines agree")


def make_model(kwargs, dtype):
    config = OPTConfig(vocab_size=67, hidden_size=24, num_hidden_layers=3, ffn_dim=40, num_attention_heads=4,
                       max_position_embeddings=19, **kwargs)
    torch.manual_seed(len(str(kwargs)))
    return OPTForCausalLM(config).to(dtype)


def write_all(model, folder):
    """Yields (folder, tensors) for each container."""
    state = model.state_dict()
    dtype = next(iter(state.values())).dtype
    for name, size in [("whole", "1GB"), ("shards", "8KB")]:
        path = folder / f"safetensors_{name}"
        model.save_pretrained(path, max_shard_size=size)
        tied = model.config.tie_word_embeddings
        yield path, {n: t for n, t in state.items() if not (tied and n == "lm_head.weight")}
    path = folder / "bin"
    path.mkdir()
    torch.save(state, path / "pytorch_model.bin")
    yield path, state
    path = folder / "bin_shards"
    path.mkdir()
    names = list(state)
    random.Random(1).shuffle(names)
    weight_map = {}
    for number in range(3):
        file = f"pytorch_model-{number}.bin"
        torch.save({n: state[n] for n in names[number::3]}, path / file)
        weight_map.update({n: file for n in names[number::3]})
    (path / "pytorch_model.bin.index.json").write_text(json.dumps({"weight_map": weight_map}))
    yield path, state
    path = folder / "old_names"
    path.mkdir()
    old = {n.replace("model.", "").replace("decoder.final_layer_norm", "decoder.layer_norm"): t for n, t in state.items()}
    save_file({n: t.clone() for n, t in old.items()}, path / "model.safetensors")
    yield path, old
    if dtype != torch.bfloat16:
        path = folder / "numpy"
        path.mkdir()
        for name, tensor in old.items():
            with open(path / name, "wb") as file:
                numpy.save(file, tensor.numpy())
        yield path, old


def check_shape(tool, path, model):
    """config.json as transformers writes it: every tensor of the model is found with its shape."""
    text = "\n".join(dump(tool, "--shape", str(path)))
    if "every tensor of the model is there, 0 more are not used" not in text:
        raise SystemExit(f"{path}: {text}")
    if f" {sum(p.numel() for p in model.parameters())} parameters" not in text:
        raise SystemExit(f"{path}: wrong number of parameters: {text}")


def main():
    tool = sys.argv[1]
    variants = {
        "plain": {},
        "post_norm": dict(do_layer_norm_before=False, word_embed_proj_dim=16),
        "no_final_norm": dict(_remove_final_layer_norm=True),
        "no_bias": dict(enable_bias=False),
        "no_affine": dict(layer_norm_elementwise_affine=False, activation_function="gelu"),
        "untied": dict(tie_word_embeddings=False),
    }
    for (name, kwargs), dtype in itertools.product(variants.items(), TYPES):
        with tempfile.TemporaryDirectory() as temporary:
            model = make_model({"word_embed_proj_dim": 24, **kwargs}, dtype)
            for path, tensors in write_all(model, pathlib.Path(temporary)):
                if not (path / "config.json").exists():
                    model.config.save_pretrained(path)
                found = dump(tool, str(path))
                check(f"{name} {TYPES[dtype]} {path.name}", found[1:], [line(n, t) for n, t in tensors.items()])
                check_shape(tool, path, model)


if __name__ == "__main__":
    main()
