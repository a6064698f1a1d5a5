#!/usr/bin/env python3
"""Makes types.json: blocks of every type of GGUF codes, and their values as the package gguf decodes them. Needs gguf and
numpy; run it again when a type is added.

  python3 make_types.py > types.json
"""
import json

import gguf
import numpy

NAMES = ["Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "MXFP4"]
SCALES = {"Q4_1": (0, 2), "Q5_1": (0, 2), "Q4_K": (0, 2), "Q5_K": (0, 2), "Q2_K": (80, 82), "Q3_K": (108,), "Q6_K": (208,), "MXFP4": ()}


def blocks_of(kind, count, random):
    """Any bytes, with scales of fp16 that are finite."""
    _, size = gguf.GGML_QUANT_SIZES[kind]
    blocks = random.integers(0, 256, (count, size), dtype="u1")
    for at in SCALES.get(kind.name, (0,)):
        blocks[:, at:at + 2] = random.normal(0, 0.05, (count, 1)).astype("<f2").view("u1")
    return blocks


def main():
    random = numpy.random.default_rng(7)
    out = {}
    for name in NAMES:
        kind = gguf.GGMLQuantizationType[name]
        blocks = blocks_of(kind, 1 if name.endswith("_K") else 3, random)
        values = gguf.dequantize(blocks, kind).astype("<f4")
        out[name] = {"number": int(kind), "blocks": blocks.tobytes().hex(), "values": values.tobytes().hex()}
    print(json.dumps(out, indent=1))


if __name__ == "__main__":
    main()
