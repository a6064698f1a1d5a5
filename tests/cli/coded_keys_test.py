"""Keys of 4 bits: what a KV head's keys have in common takes no codes. A model whose keys have a large bias, as those of Qwen 2 do,
keeps its scores in every place. Standard library only.

  python3 coded_keys_test.py path/to/spillway [unittest arguments]
"""

import json
import pathlib
import random
import shutil
import statistics
import struct
import sys
import unittest

import harness

TESTS = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(TESTS))

from placements import ON_CPU, ON_EMULATED_GPU, PARITY_MODELS, in_turn  # noqa: E402

NAME = "qwen2-grouped-tied"
BIAS = 30.0
MOST_ERROR = 0.15  # nats, in the mean; with the bias in the codes it is 0.97


def with_biased_keys(folder):
    """A copy of the model: in each KV head the elements that positions turn slowly get a large bias, of both signs."""
    shutil.copytree(PARITY_MODELS / NAME, folder)
    file = folder / "model.safetensors"
    content = bytearray(file.read_bytes())
    (header_bytes,) = struct.unpack("<Q", content[:8])
    header = json.loads(content[8 : 8 + header_bytes])
    for name, tensor in header.items():
        if not name.endswith("k_proj.bias"):
            continue
        assert tensor["dtype"] == "BF16"
        (size,) = tensor["shape"]
        values = [BIAS * (-1) ** (element // 2) if element % 8 >= 4 else 0.0 for element in range(size)]
        upper = b"".join(struct.pack("<f", value)[2:] for value in values)
        begin = 8 + header_bytes + tensor["data_offsets"][0]
        content[begin : begin + len(upper)] = upper
    file.write_bytes(content)
    return folder


class CodedKeysTest(harness.VerbTest):
    def scores(self, *words):
        rng = random.Random(3)
        rows = [{"token_ids": [2, *(rng.randrange(4, 256) for _ in range(length))]} for length in (40, 90, 170, 300)]
        source = harness.write_jsonl(self.folder / "in.jsonl", rows)
        done = self.run_verb("score", "--model", self.model, "--input", source, "--output", "-", "--quiet", "--offload-dir",
                             self.folder, *words)
        lines = [json.loads(line)["token_logprobs"][1:] for line in done.stdout.splitlines()]
        return [score for line in lines for score in line]

    def setUp(self):
        super().setUp()
        self.model = with_biased_keys(self.folder / "biased")

    def test_a_large_bias_of_keys_costs_nothing(self):
        whole = self.scores()
        for words in ([], ["--prefill", "30"], ["--kv-policy", "h2o", "--kv-budget", "100%", "--prefill", "30"]):
            for bits in ("4,16", "4"):
                for place in ([], in_turn(ON_CPU, 1, 1)[0], in_turn(ON_EMULATED_GPU, 2, 1)[0]):
                    with self.subTest(words=words, bits=bits, place=place):
                        coded = self.scores("--kv-bits", bits, *words, *place)
                        error = statistics.fmean(abs(ours - theirs) for ours, theirs in zip(coded, whole, strict=True))
                        self.assertLess(error, MOST_ERROR)


if __name__ == "__main__":
    CodedKeysTest.binary = pathlib.Path(sys.argv.pop(1)).resolve()
    unittest.main()
