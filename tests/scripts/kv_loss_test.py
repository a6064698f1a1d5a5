"""benchmarks/kv_loss.py on a small model: its rows, a rerun, and what it refuses. Standard library only.

  python3 kv_loss_test.py path/to/spillway
"""

import json
import pathlib
import random
import subprocess
import sys
import tempfile
import unittest

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
BINARY = None
MODEL = REPOSITORY / "tests" / "parity" / "models" / "llama-groups-of-four"


def kv_loss(folder, *words):
    windows = folder / "windows.jsonl"
    if not windows.exists():
        rng = random.Random(4)
        lines = [{"token_ids": [rng.randrange(4, 384) for _ in range(64)]} for _ in range(3)]
        windows.write_text("".join(json.dumps(line) + "\n" for line in lines))
    line = [sys.executable, "-B", REPOSITORY / "benchmarks" / "kv_loss.py", BINARY, "--model", MODEL, "--windows", windows,
            "--output", folder / "found.json", "--budgets", "50,20", *words]
    return subprocess.run(list(map(str, line)), capture_output=True, text=True)


class KvLoss(unittest.TestCase):
    def setUp(self):
        place = tempfile.TemporaryDirectory()
        self.addCleanup(place.cleanup)
        self.folder = pathlib.Path(place.name)

    def found(self):
        return json.loads((self.folder / "found.json").read_text())

    def test_rows(self):
        done = kv_loss(self.folder)
        self.assertEqual(done.returncode, 0, done.stderr)
        result = self.found()
        self.assertEqual(list(result["rows"]), ["full", "h2o 50 %", "h2o 20 %", "window 50 %", "window 20 %", "full, 8 bits",
                                                "h2o 20 %, 8 bits", "full, 8,4 bits", "h2o 20 %, 8,4 bits", "full, 4 bits",
                                                "h2o 20 %, 4 bits"])
        self.assertEqual((result["about"]["prompt"], result["about"]["scored"]), (16, 3 * 47))
        self.assertIn("| full | 100.0% |", done.stdout)
        self.assertIn("+0.00 % | 0.00 |", done.stdout)
        rows = result["rows"]
        self.assertLess(rows["h2o 20 %"]["kv_bytes"], rows["h2o 50 %"]["kv_bytes"])
        self.assertNotEqual(rows["h2o 20 %"]["losses"], rows["full"]["losses"])

    def test_a_rerun_measures_what_is_missing(self):
        self.assertEqual(kv_loss(self.folder, "--rows", "h2o").returncode, 0)
        marked = self.found()
        marked["rows"]["full"]["duration_s"] = 12345
        (self.folder / "found.json").write_text(json.dumps(marked))
        self.assertEqual(kv_loss(self.folder, "--rows", "h2o,window").returncode, 0)
        self.assertEqual(self.found()["rows"]["full"]["duration_s"], 12345)
        self.assertIn("window 20 %", self.found()["rows"])

    def test_refusals(self):
        self.assertEqual(kv_loss(self.folder, "--rows", "h2o").returncode, 0)
        other = kv_loss(self.folder, "--rows", "h2o", "--prompt", "20")
        self.assertEqual((other.returncode, "another study (prompt)" in other.stderr), (1, True), other.stderr)
        self.assertIn("are the groups", kv_loss(self.folder, "--rows", "h3o").stderr)
        self.assertIn("needs a text", kv_loss(self.folder, "--rows", "layers").stderr)


if __name__ == "__main__":
    BINARY = pathlib.Path(sys.argv.pop(1)).resolve()
    unittest.main()
