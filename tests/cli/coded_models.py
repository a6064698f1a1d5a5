"""Folders whose matrices are coded as other programs publish them, each with its twin: a folder of the fp32 values that the
codes stand for. For tests; standard library only."""

import array
import json
import math
import random
import struct

AWQ_PLACES = [0, 4, 1, 5, 2, 6, 3, 7]  # of eight neighbours in a word
GROUP = 16
WIDE = 64  # whole groups of those in which codes are held


class Folder:
    """Tensors of a folder, and what its config.json says of them."""

    def __init__(self, config):
        self.config, self.tensors = config, {}

    def add(self, name, kind, shape, data):
        self.tensors[name] = (kind, shape, data)

    def write(self, folder):
        header, end = {}, 0
        for name, (kind, shape, data) in self.tensors.items():
            header[name] = {"dtype": kind, "shape": shape, "data_offsets": [end, end + len(data)]}
            end += len(data)
        text = json.dumps(header).encode()
        data = b"".join(tensor[2] for tensor in self.tensors.values())
        (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + data)
        (folder / "config.json").write_text(json.dumps(self.config))


def halfs(values):
    return struct.pack(f"<{len(values)}e", *values)


def as_half(value):
    return struct.unpack("<e", struct.pack("<e", value))[0]


def words(rows, cols, bits, code):
    """Rows of words, the first code in the lowest bits: code(row, place)."""
    a_word = 32 // bits
    packed = [sum(code(row, word * a_word + i) << bits * i for i in range(a_word)) for row in range(rows) for word in range(cols // a_word)]
    return array.array("I", packed).tobytes()


def f32(value):
    return struct.unpack("<f", struct.pack("<f", value))[0]


def fp8_value(code):
    exponent, mantissa = code >> 3 & 15, code & 7
    size = math.ldexp(mantissa, -9) if exponent == 0 else math.ldexp(8 + mantissa, exponent - 10)
    return -size if code > 127 else size


class Coder:
    """Codes of one matrix, and their values. `group`: neighbours of a row that share a scale."""

    def __init__(self, out, stem, shape, chance, bits, group=GROUP):
        self.out, self.stem, (self.rows, self.cols), self.bits = out, stem, shape, bits
        self.groups = -(-self.cols // group)
        top = (1 << bits) - 1
        self.code = [[chance.randint(0, top) for _ in range(self.cols)] for _ in range(self.rows)]
        self.zero = [[chance.choice([0, top // 2, top // 2 + 1]) for _ in range(self.rows)] for _ in range(self.groups)]
        self.scale = [[as_half(chance.uniform(0.5, 1.5) * 0.3 / top) for _ in range(self.rows)] for _ in range(self.groups)]
        self.group_of = [col // group for col in range(self.cols)]
        self.chance = chance

    def add(self, end, kind, shape, data):
        self.out.add(f"{self.stem}.{end}", kind, shape, data)

    def values(self):
        return [f32(self.scale[g][r] * (self.code[r][c] - self.zero[g][r])) for r in range(self.rows) for c, g in enumerate(self.group_of)]

    def gptq(self, ordered):
        if ordered:
            self.chance.shuffle(self.group_of)
        a_word = 32 // self.bits
        self.add("qweight", "I32", [self.cols // a_word, self.rows], self.columns_in_words())
        zeros = words(self.groups, self.rows, self.bits, lambda g, r: self.zero[g][r] - 1 & (1 << self.bits) - 1)
        self.add("qzeros", "I32", [self.groups, self.rows // a_word], zeros)
        self.add("scales", "F16", [self.groups, self.rows], halfs([s for group in self.scale for s in group]))
        self.add("g_idx", "I32", [self.cols], array.array("i", self.group_of).tobytes())
        return self.values()

    def columns_in_words(self):
        a_word = 32 // self.bits
        packed = [sum(self.code[r][word * a_word + i] << self.bits * i for i in range(a_word))
                  for word in range(self.cols // a_word) for r in range(self.rows)]
        return array.array("I", packed).tobytes()

    def awq(self):
        at = lambda place: place // 8 * 8 + AWQ_PLACES.index(place % 8)
        self.add("qweight", "I32", [self.cols, self.rows // 8], words(self.cols, self.rows, 4, lambda c, i: self.code[at(i)][c]))
        self.add("qzeros", "I32", [self.groups, self.rows // 8], words(self.groups, self.rows, 4, lambda g, i: self.zero[g][at(i)]))
        self.add("scales", "F16", [self.groups, self.rows], halfs([s for group in self.scale for s in group]))
        return self.values()

    def packed(self, symmetric):
        a_word = 32 // self.bits
        self.add("weight_packed", "I32", [self.rows, self.cols // a_word], words(self.rows, self.cols, self.bits, lambda r, c: self.code[r][c]))
        self.add("weight_scale", "BF16", [self.rows, self.groups], self.bf16_scales())
        self.add("weight_shape", "I64", [2], struct.pack("<2q", self.rows, self.cols))
        if symmetric:
            self.zero = [[1 << (self.bits - 1)] * self.rows for _ in range(self.groups)]
        else:
            packed = [sum(self.zero[g][word * a_word + i] << self.bits * i for i in range(a_word))
                      for word in range(self.rows // a_word) for g in range(self.groups)]
            self.add("weight_zero_point", "I32", [self.rows // a_word, self.groups], array.array("I", packed).tobytes())
        return self.values()

    def bf16_scales(self):
        cut = lambda value: struct.unpack("<I", struct.pack("<f", value))[0] >> 16
        self.scale = [[struct.unpack("<f", struct.pack("<I", cut(value) << 16))[0] for value in group] for group in self.scale]
        return struct.pack(f"<{self.rows * self.groups}H", *(cut(self.scale[g][r]) for r in range(self.rows) for g in range(self.groups)))

    def scaled(self, kind, block):
        """One byte each; a scale for each block of rows and columns."""
        number = fp8_value if kind == "F8_E4M3" else lambda code: code - 256 if code > 127 else code
        largest = 448 if kind == "F8_E4M3" else 127
        code = [[byte if kind == "I8" or byte & 127 != 127 else 0 for byte in row] for row in self.code]
        self.add("weight", kind, [self.rows, self.cols], bytes(byte for row in code for byte in row))
        rows, cols = -(-self.rows // block[0]), -(-self.cols // block[1])
        scale = [[f32(self.chance.uniform(0.5, 1.5) * 0.3 / largest) for _ in range(cols)] for _ in range(rows)]
        end = "weight_scale_inv" if cols > 1 else "weight_scale"
        self.add(end, "F32", [rows, cols], array.array("f", [s for row in scale for s in row]).tobytes())
        return [f32(number(code[r][c]) * scale[r // block[0]][c // block[1]]) for r in range(self.rows) for c in range(self.cols)]


def compressed(fmt, bits, kind, **more):
    weights = {"num_bits": bits, "type": kind, "symmetric": True} | more
    return {"quant_method": "compressed-tensors", "format": fmt, "ignore": ["lm_head"],
            "config_groups": {"group_0": {"targets": ["Linear"], "weights": weights, "input_activations": None}}}


# Name: (quantization_config, bits of a code, how a Coder writes it)
FORMS = {
    "gptq-4": ({"quant_method": "gptq", "bits": 4, "group_size": GROUP, "sym": False, "desc_act": False}, 4, lambda coder: coder.gptq(False)),
    "gptq-8-ordered": ({"quant_method": "gptq", "bits": 8, "group_size": GROUP, "desc_act": True}, 8, lambda coder: coder.gptq(True)),
    "awq": ({"quant_method": "awq", "bits": 4, "group_size": GROUP, "zero_point": True, "version": "gemm"}, 4, lambda coder: coder.awq()),
    "packed-4": (compressed("pack-quantized", 4, "int", strategy="group", group_size=GROUP), 4, lambda coder: coder.packed(True)),
    "packed-8-zeros": (compressed("pack-quantized", 8, "int", strategy="group", group_size=GROUP), 8, lambda coder: coder.packed(False)),
    "fp8-blocks": ({"quant_method": "fp8", "weight_block_size": [32, 48], "activation_scheme": "dynamic"}, 8,
                   lambda coder: coder.scaled("F8_E4M3", (32, 48))),
    "fp8-rows": (compressed("float-quantized", 8, "float", strategy="channel"), 8, lambda coder: coder.scaled("F8_E4M3", (1, 1 << 20))),
    "int8-rows": (compressed("int-quantized", 8, "int", strategy="channel"), 8, lambda coder: coder.scaled("I8", (1, 1 << 20))),
    "gptq-4-wide": ({"quant_method": "gptq", "bits": 4, "group_size": WIDE, "desc_act": False}, 4, lambda coder: coder.gptq(False)),
    "awq-wide": ({"quant_method": "awq", "bits": 4, "group_size": WIDE, "zero_point": True, "version": "gemm"}, 4, lambda coder: coder.awq()),
    "packed-8-wide": (compressed("pack-quantized", 8, "int", strategy="group", group_size=WIDE), 8, lambda coder: coder.packed(False)),
    "fp8-wide": ({"quant_method": "fp8", "weight_block_size": [32, 64]}, 8, lambda coder: coder.scaled("F8_E4M3", (32, 64))),
}
# Those whose codes are held as they are, and the type.
HELD = {"gptq-4-wide": "int4", "awq-wide": "int4", "packed-8-wide": "int8", "fp8-wide": "fp8", "fp8-rows": "fp8"}


def make(tensors, config, form, coded, plain):
    """Writes the folder `coded` and its twin `plain`. `tensors`: name -> (type, shape, bytes), of which projections are coded."""
    quantisation, bits, write = FORMS[form]
    chance = random.Random(form)
    codes, values = Folder(config | {"quantization_config": quantisation}), Folder(config)
    for name, (kind, shape, data) in tensors.items():
        if "_proj.weight" not in name:
            codes.add(name, kind, shape, data)
            values.add(name, kind, shape, data)
            continue
        group = WIDE if form.endswith("-wide") else GROUP
        floats = write(Coder(codes, name.removesuffix(".weight"), shape, chance, bits, group))
        values.add(name, "F32", shape, array.array("f", floats).tobytes())
    codes.write(coded)
    values.write(plain)


FP4_VALUES = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0]


def mxfp4_values(blocks, scales):
    """Values of groups of 16 bytes, the first of two in the low half of a byte, each group times a power of two."""
    values = []
    for group, scale in enumerate(scales):
        for byte in blocks[16 * group:16 * group + 16]:
            for code in (byte & 15, byte >> 4):
                values.append(math.ldexp(FP4_VALUES[code & 7] * (-1 if code > 7 else 1), scale - 127))
    return values


def transposed(values, rows, cols):
    """Each matrix of a stack, [rows, cols], by its columns."""
    size = rows * cols
    return [values[first + row * cols + col] for first in range(0, len(values), size) for col in range(cols) for row in range(rows)]


def make_plain_of_mxfp4(tensors, config, plain):
    """Writes the twin of a folder of gpt-oss: stacks of values, with a row for each input, as transformers saves them."""
    values = Folder({key: value for key, value in config.items() if key != "quantization_config"})
    for name, (kind, shape, data) in tensors.items():
        if name.endswith("_blocks"):
            stem, (experts, rows, groups, _) = name.removesuffix("_blocks"), shape
            floats = transposed(mxfp4_values(data, tensors[f"{stem}_scales"][2]), rows, 32 * groups)
            values.add(stem, "F32", [experts, 32 * groups, rows], array.array("f", floats).tobytes())
        elif not name.endswith("_scales"):
            values.add(name, kind, shape, data)
    values.write(plain)
