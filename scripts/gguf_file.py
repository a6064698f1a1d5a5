"""GGUF files: metadata, and tensors as fp32. Layout: magic, version, counts, metadata, a table of tensors, their bytes. Needs numpy.

F32, F16, Q4_1, Q5_0, Q8_0, Q4_K and Q6_K are read. All but the first two are blocks of 32 or 256 values: scales, minimums
where there are any, and codes.
"""
import struct
import sys

import numpy

TEXT, LIST = 8, 9
SCALARS = dict(zip((0, 1, 2, 3, 4, 5, 6, 7, 10, 11, 12), "BbHhIifBQqd"))  # type of a value: its letter for struct


def fail(message):
    sys.exit(f"gguf_folder: {message}")


class Gguf:
    """Metadata and table of tensors of a file's bytes."""

    def __init__(self, data):
        self.data, self.place = data, 0
        if data[:4] != b"GGUF":
            fail("not a GGUF file")
        self.place = 8
        num_tensors, num_values = self.scalar("Q"), self.scalar("Q")
        self.values = {}
        for _ in range(num_values):
            name = self.text()
            self.values[name] = self.value(self.scalar("I"))
        entries = [(self.text(), [self.scalar("Q") for _ in range(self.scalar("I"))], self.scalar("I"), self.scalar("Q")) for _ in range(num_tensors)]
        step = self.values.get("general.alignment", 32)
        start = (self.place + step - 1) // step * step
        # The first dimension is the fastest: Hugging Face's last.
        self.tensors = {name: (tuple(reversed(dims)), kind, start + offset) for name, dims, kind, offset in entries}

    def scalar(self, letter):
        value = struct.unpack_from("<" + letter, self.data, self.place)[0]
        self.place += struct.calcsize("<" + letter)
        return value

    def text(self):
        size = self.scalar("Q")
        self.place += size
        return bytes(self.data[self.place - size:self.place]).decode()

    def value(self, kind):
        if kind == TEXT:
            return self.text()
        if kind != LIST:
            return self.scalar(SCALARS[kind])
        inner, count = self.scalar("I"), self.scalar("Q")
        return [self.value(inner) for _ in range(count)]

    def weights(self, name):
        shape, kind, start = self.tensors[name]
        if kind not in TYPES:
            fail(f"{name} has the type {kind}; F32, F16, Q4_1, Q5_0, Q8_0, Q4_K and Q6_K are read")
        values_a_block, block, decoded = TYPES[kind]
        blocks = numpy.frombuffer(self.data, block, int(numpy.prod(shape)) // values_a_block, start)
        return decoded(blocks).reshape(shape)


def column(values):
    return values.astype("f4")[:, None]


def nibbles(pairs):
    """Codes of a block: the low halves of all bytes, then the high ones."""
    return numpy.concatenate([pairs & 15, pairs >> 4], axis=-1)


def q4_1(blocks):
    return nibbles(blocks["pairs"]) * column(blocks["scale"]) + column(blocks["minimum"])


def q5_0(blocks):
    fifth = blocks["fifth"][:, None] >> numpy.arange(32, dtype="u4") & 1
    return ((nibbles(blocks["pairs"]) | fifth << 4).astype("f4") - 16) * column(blocks["scale"])


def q8_0(blocks):
    return blocks["codes"] * column(blocks["scale"])


def q4_k(blocks):
    """Eight groups of 32, each with a scale and a minimum of 6 bits: four of each whole, of the others the high 2 bits apart."""
    first, second, rest = numpy.split(blocks["parts"], 3, axis=1)
    scales = numpy.concatenate([first & 63, rest & 15 | first >> 6 << 4], axis=1)
    minimums = numpy.concatenate([second & 63, rest >> 4 | second >> 6 << 4], axis=1)
    codes = nibbles(blocks["pairs"].reshape(-1, 4, 32)).reshape(-1, 8, 32)
    steps, offsets = scales * column(blocks["scale"]), minimums * column(blocks["minimum"])
    return codes * steps[:, :, None] - offsets[:, :, None]


def q6_k(blocks):
    """Two halves of 128: 4 low bits from 64 bytes, 2 high bits from 32; 16 groups of 16 with a scale of 8 bits."""
    low = nibbles(blocks["low"].reshape(-1, 2, 64)).reshape(-1, 2, 4, 32)
    high = blocks["high"].reshape(-1, 2, 1, 32) >> numpy.array([0, 2, 4, 6], "u1")[:, None] & 3
    codes = (low | high << 4).reshape(-1, 16, 16).astype("f4") - 32
    return codes * (blocks["scales"] * column(blocks["scale"]))[:, :, None]


# Type of a tensor: (values a block, a block, its values).
TYPES = {
    0: (1, numpy.dtype("<f4"), lambda values: values),
    1: (1, numpy.dtype("<f2"), lambda values: values),
    3: (32, numpy.dtype([("scale", "<f2"), ("minimum", "<f2"), ("pairs", "u1", 16)]), q4_1),
    6: (32, numpy.dtype([("scale", "<f2"), ("fifth", "<u4"), ("pairs", "u1", 16)]), q5_0),
    8: (32, numpy.dtype([("scale", "<f2"), ("codes", "i1", 32)]), q8_0),
    12: (256, numpy.dtype([("scale", "<f2"), ("minimum", "<f2"), ("parts", "u1", 12), ("pairs", "u1", 128)]), q4_k),
    14: (256, numpy.dtype([("low", "u1", 128), ("high", "u1", 64), ("scales", "i1", 16), ("scale", "<f2")]), q6_k),
}
