#!/usr/bin/env python3
"""Makes the fixture files beside it, with torch, safetensors and numpy.

Each folder holds the same six tensors of a small decoder, so that golden_test.cc can expect the same bytes of all
of them. Run: python make_data.py (torch 2.11, safetensors 0.7, numpy 2). The files are committed; a test needs none of
the packages.
"""
import collections
import json
import pathlib
import pickle
import shutil

import numpy
import torch
from safetensors.torch import save_file

HERE = pathlib.Path(__file__).parent


def tensors(dtype):
    """Element i of tensor n is (i % 61 - 30) / 8 + n, exact in every type."""
    shapes = collections.OrderedDict([
        ("decoder.embed_tokens.weight", (16, 8)),
        ("decoder.embed_positions.weight", (12, 8)),
        ("decoder.layer_norm.weight", (8,)),
        ("decoder.layer_norm.bias", (8,)),
        ("decoder.layers.0.fc1.weight", (32, 8)),
        ("decoder.layers.0.fc1.bias", (32,)),
    ])
    made = collections.OrderedDict()
    for number, (name, shape) in enumerate(shapes.items()):
        count = int(numpy.prod(shape))
        values = [(i % 61 - 30) / 8 + number for i in range(count)]
        made[name] = torch.tensor(values, dtype=torch.float32).reshape(shape).to(dtype)
    return made


def with_prefix(state):
    return {"model." + name: value for name, value in state.items()}


class Attack:
    def __reduce__(self):
        import os
        return os.system, ("touch /tmp/spillway_was_attacked",)


def folder(name):
    path = HERE / name
    shutil.rmtree(path, ignore_errors=True)
    path.mkdir()
    return path


def main():
    for name, dtype in [("fp16", torch.float16), ("bf16", torch.bfloat16), ("fp32", torch.float32)]:
        state = tensors(dtype)
        torch.save(state, folder(f"bin_{name}") / "pytorch_model.bin")
        save_file(with_prefix(state), folder(f"safetensors_{name}") / "model.safetensors", metadata={"format": "pt"})

    state = tensors(torch.float16)
    tied = collections.OrderedDict(state)
    tied["lm_head.weight"] = tied["decoder.embed_tokens.weight"]
    tied["decoder.layers.0.fc1.weight"] = torch.nn.Parameter(tied["decoder.layers.0.fc1.weight"])
    tied._metadata = collections.OrderedDict([("", {"version": 1})])  # as Module.state_dict() has it
    torch.save(tied, folder("bin_tied") / "pytorch_model.bin")
    torch.save(dict(state), folder("bin_protocol4") / "pytorch_model.bin", pickle_protocol=4)

    views = collections.OrderedDict(state)
    both = torch.cat([state["decoder.layer_norm.weight"], state["decoder.layer_norm.bias"]])
    views["decoder.layer_norm.weight"], views["decoder.layer_norm.bias"] = both[:8], both[8:]
    torch.save(views, folder("bin_views") / "pytorch_model.bin")

    shards = folder("bin_shards")
    names = list(state)
    weight_map = {}
    for number, part in enumerate([names[:3], names[3:]], start=1):
        file = f"pytorch_model-0000{number}-of-00002.bin"
        torch.save({name: state[name] for name in part}, shards / file)
        weight_map.update({name: file for name in part})
    index = {"metadata": {"total_size": 0}, "weight_map": weight_map}
    (shards / "pytorch_model.bin.index.json").write_text(json.dumps(index, indent=2) + "\n")

    arrays = folder("numpy_fp16")
    for name, value in state.items():
        with open(arrays / name, "wb") as file:
            numpy.save(file, value.numpy())

    transposed = collections.OrderedDict(state)
    transposed["decoder.layers.0.fc1.weight"] = state["decoder.layers.0.fc1.weight"].t()
    torch.save(transposed, folder("bin_transposed") / "pytorch_model.bin")
    torch.save(state, folder("bin_legacy") / "pytorch_model.bin", _use_new_zipfile_serialization=False)
    torch.save({"decoder.embed_tokens.weight": Attack()}, folder("bad_attack") / "pytorch_model.bin")
    (folder("bad_bare_attack") / "pytorch_model.bin").write_bytes(pickle.dumps(Attack(), protocol=0))


if __name__ == "__main__":
    main()
