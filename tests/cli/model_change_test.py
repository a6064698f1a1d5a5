"""Weights that changed under a name, a size and times that did not: no answer comes from the ones before. Standard library
only.

  python3 model_change_test.py path/to/spillway [unittest arguments]
"""

import json
import os
import pathlib
import shutil
import sys
import time
import unittest

import harness
from generate_case import GenerateTest

RECORDS = [{"prompt": f"Once upon a time there were {number} goats", "max_tokens": 24} for number in range(40)]
ON_DISK = ["--percent", "0", "0", "0", "100", "0", "100"]
SMALL_BLOCKS = ["--gpu-batch-size", "4", "--num-gpu-batches", "1"]
# A high byte of an fp16 weight in the middle of the file: a number far from what it was.
CHANGED_AT = 0.5


def change_a_weight(model):
    """One byte of the weights, size and times kept."""
    path = model / "model.safetensors"
    before = path.stat()
    with path.open("r+b") as file:
        file.seek(int(before.st_size * CHANGED_AT) | 1)
        byte = file.read(1)[0]
        file.seek(-1, os.SEEK_CUR)
        file.write(bytes([byte ^ 0x40]))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


class ModelChangeTest(GenerateTest):
    def copy(self, parent):
        """A model folder with the names and times of the bundled one."""
        model = self.folder / parent / "m"
        shutil.copytree(harness.BUNDLED_MODEL, model)
        return model

    def answers(self, model, *flags):
        (self.folder / "cache").mkdir(exist_ok=True)
        return self.lines(RECORDS[:6], "--model", model, *flags, env={"XDG_CACHE_HOME": str(self.folder / "cache")})

    def test_a_store_is_of_one_models_weights(self):
        one, two = self.copy("x"), self.copy("y")
        change_a_weight(two)
        offload = self.folder / "offload"
        offload.mkdir()
        time.sleep(2.1)  # what has just been written is read again each time
        in_memory = [self.answers(model) for model in (one, two)]
        self.assertNotEqual(*in_memory)
        for model, answers in zip([one, two] * 2, in_memory * 2, strict=True):
            self.assertEqual(self.answers(model, *ON_DISK, "--offload-dir", offload), answers)
        self.assertEqual(len(list(offload.glob("*.store"))), 2)

    def test_weights_that_change_in_place_make_another_store(self):
        model = self.copy("x")
        offload = self.folder / "offload"
        offload.mkdir()
        time.sleep(2.1)
        before = self.answers(model, *ON_DISK, "--offload-dir", offload)
        change_a_weight(model)
        in_memory = self.answers(model)
        self.assertNotEqual(in_memory, before)
        self.assertEqual(self.answers(model, *ON_DISK, "--offload-dir", offload), in_memory)

    def test_a_copy_of_the_model_finds_the_store(self):
        offload = self.folder / "offload"
        offload.mkdir()
        for parent in ("x", "y"):
            self.answers(self.copy(parent), *ON_DISK, "--offload-dir", offload)
            self.assertEqual(len(list(offload.glob("*.store"))), 1)

    def test_a_run_does_not_go_on_with_other_weights(self):
        model = self.copy("x")
        source = self.write(RECORDS)
        words = ["generate", "--model", model, "--input", source, "--output", self.output, *SMALL_BLOCKS, "--quiet"]
        self.killed_with_lines([self.binary, *words], self.output, 4)
        change_a_weight(model)
        result = harness.run(self.binary, [*words, "--resume"])
        self.assertEqual(result.status, 51, result.stderr)
        self.assertIn(b"another model", result.stderr)
        change_a_weight(model)  # back
        self.assertEqual(harness.run(self.binary, [*words, "--resume"]).status, 0)
        ids = [json.loads(line)["custom_id"] for line in self.output.read_text().splitlines()]
        self.assertEqual(len(ids), len(RECORDS))


if __name__ == "__main__":
    GenerateTest.binary = pathlib.Path(sys.argv.pop(1)).resolve()
    unittest.main()
