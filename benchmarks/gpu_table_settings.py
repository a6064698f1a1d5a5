"""Subjects of gpu_table.py: settings, the peers' published policies, and what fits where. Standard library only."""

import argparse
import dataclasses
import re

GIB = 1 << 30
POSITIONS = 2048  # that OPT has
VOCABULARY = 50272
SHAPES = {"opt-6.7b": (32, 4096, 32), "opt-13b": (40, 5120, 40), "opt-30b": (48, 7168, 56)}  # layers, hidden, heads
RUNS = [("spillway", "full"), ("spillway", "h2o"), ("flexgen", "full"), ("h2o_flexgen", "h2o"), ("accelerate", "full")]


@dataclasses.dataclass(frozen=True)
class Setting:
    """Prompt and new tokens under the caps; with rows, one batch of so many, all on the GPU and without a GPU cap. Weights have
    16 bits where weight_bits is 0."""

    model: str
    prompt_len: int
    gen_len: int
    rows: int = 0
    weight_bits: int = 0

    @property
    def name(self):
        bits = f"@{self.weight_bits}" if self.weight_bits else ""
        return f"{self.model}{bits}:{self.prompt_len}+{self.gen_len}" + (f"x{self.rows}" if self.rows else "")

    @property
    def positions(self):
        return max(POSITIONS, self.prompt_len + self.gen_len)

    @staticmethod
    def parse(text):
        found = re.fullmatch(r"(.+?)(?:@([48]))?:(\d+)\+(\d+)(?:x(\d+))?", text)
        if not found:
            raise argparse.ArgumentTypeError(f"{text} is not machine or MODEL[@BITS]:PROMPT+NEW[xROWS]")
        return Setting(found[1], int(found[3]), int(found[4]), int(found[5] or 0), int(found[2] or 0))


SETTINGS = [Setting(model, 512, new) for model in ("opt-6.7b", "opt-30b") for new in (32, 512, 1024)] + [
    Setting("opt-6.7b", 2048, 2048, 24), Setting("opt-6.7b", 2048, 2048, 64),
    Setting("opt-13b", 5000, 5000, 4), Setting("opt-30b", 7000, 1024, 1), Setting("llama-3.1-8b", 512, 512),
    *[Setting(model, 512, new, weight_bits=4) for model, new in (("llama-3.1-8b", 512), ("llama-3.1-70b", 32))],
]


@dataclasses.dataclass(frozen=True)
class Block:
    """FlexGen's six percentages and its block; h2o_flexgen keeps twice `heavy` of the prompt."""

    percent: tuple
    rows: int
    batches: int = 1
    heavy: float = 0.0

    def flags(self):
        words = ["--percent", *self.percent, "--gpu-batch-size", self.rows, "--num-gpu-batches", self.batches]
        words += ["--overlap", "False"] if self.percent == ON_GPU else ["--cpu-cache-compute"]
        return words + (["--hh-ratio", self.heavy, "--hh-all"] if self.heavy else [])


ON_GPU, SPLIT, STREAMED = (100, 0, 100, 0, 100, 0), (20, 80, 0, 100, 0, 100), (0, 100, 0, 100, 0, 100)
# Blocks by new tokens, as published for a GPU of 16 GB and 208 GB of memory: h2o_flexgen/benchmark/h2o/h2o_suite.py.
PUBLISHED = {
    ("flexgen", "opt-6.7b"): {32: Block(ON_GPU, 2), 512: Block(ON_GPU, 1), 1024: Block(ON_GPU, 1)},
    ("flexgen", "opt-30b"): {32: Block(SPLIT, 48, 3), 512: Block(SPLIT, 40, 2), 1024: Block(SPLIT, 48, 1)},
    ("h2o_flexgen", "opt-6.7b"): {
        32: Block(ON_GPU, 4, 1, 0.1), 512: Block(ON_GPU, 4, 1, 0.2), 1024: Block(ON_GPU, 4, 1, 0.3)},
    ("h2o_flexgen", "opt-30b"): {
        32: Block(STREAMED, 52, 14, 0.1), 512: Block(STREAMED, 52, 8, 0.2), 1024: Block(STREAMED, 44, 6, 0.3)},
}


def published_block(program, setting):
    """That of the nearest length; the latency settings have the same for both programs, and a share of their own."""
    if setting.rows:
        heavy = 0.11 if setting.model == "opt-30b" else 0.2
        return Block(ON_GPU, setting.rows, 1, heavy if program == "h2o_flexgen" else 0.0)
    blocks = PUBLISHED[program, setting.model]
    return blocks[min(blocks, key=lambda new: abs(new - setting.gen_len))]


def weight_bytes(setting):
    layers, hidden, _ = SHAPES[setting.model]
    return 2 * (12 * layers * hidden * hidden + (VOCABULARY + setting.positions) * hidden)


def kv_bytes(setting, slots):
    """Bytes of one row."""
    layers, hidden, _ = SHAPES[setting.model]
    return 4 * layers * hidden * slots


def pinned(size):
    """torch rounds each pinned tensor up to a power of two."""
    return 1 << (size - 1).bit_length()


def cpu_bytes(block, setting):
    """CPU memory that FlexGen takes. Its four copy threads pin 2 GiB each; attention on the CPU has K and V of one batch in
    fp32."""
    layers, hidden, _ = SHAPES[setting.model]
    slots = 2 * int(setting.prompt_len * block.heavy) if block.heavy else setting.prompt_len + setting.gen_len
    total = 8 * GIB
    if block.percent[1]:
        total += layers * (4 * pinned(2 * hidden**2) + 2 * pinned(8 * hidden**2)) + 2 * pinned(2 * VOCABULARY * hidden)
    if block.percent[3]:
        total += kv_bytes(setting, slots) * block.rows * block.batches + 8 * hidden * slots * block.rows
    if block.percent[5]:
        total += block.batches * pinned(2 * hidden * setting.prompt_len * block.rows)
    return total


def fitted(block, setting, limit_bytes):
    """The nearest block that fits in CPU memory: fewer batches, then fewer rows; None if there is none."""
    while cpu_bytes(block, setting) > limit_bytes:
        if block.batches > 1:
            block = dataclasses.replace(block, batches=block.batches - 1)
        elif block.rows > 4:
            block = dataclasses.replace(block, rows=block.rows - 4)
        else:
            return None
    return block


def accelerate_batch(setting, gpu_bytes):
    """(rows, bytes of weights on the GPU). Accelerate keeps KV on the GPU, and streamed weights serve all rows: where the
    model does not fit, most of the GPU goes to rows."""
    usable = gpu_bytes - 3 * GIB // 2  # the driver, the libraries and a layer's work
    row_bytes = kv_bytes(setting, setting.prompt_len + setting.gen_len) * 5 // 4  # the cache is copied as it grows
    beside_weights = (usable - weight_bytes(setting)) // row_bytes
    if beside_weights >= max(1, setting.rows):
        return setting.rows or beside_weights, usable
    return setting.rows or max(1, usable * 6 // 10 // row_bytes), usable // 4


def left_out(program, kv, setting, gpu_bytes):
    """Why a peer is not run with a setting, or None."""
    if program == "spillway":
        return None
    if setting.weight_bits or setting.model not in SHAPES or not (setting.rows or program == "accelerate" or (program, setting.model) in PUBLISHED):
        return "no policy is published for this model and its weights"
    if setting.rows:
        tokens = setting.prompt_len + setting.gen_len
        needed = weight_bytes(setting) + kv_bytes(setting, tokens if kv == "full" else tokens // 5) * setting.rows
        if needed > gpu_bytes:
            return f"weights and KV are {needed / GIB:.0f} GiB, the GPU has {gpu_bytes / GIB:.0f}"
    return None
