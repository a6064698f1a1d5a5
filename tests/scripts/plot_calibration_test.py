"""scripts/plot_calibration.py: a picture of a report, and what it refuses. Standard library; skips (77) where no Python has
matplotlib.

  python3 plot_calibration_test.py
"""

import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

from plot_sweep_case import REPOSITORY

SCRIPT = REPOSITORY / "scripts" / "plot_calibration.py"


def losses(bytes_frac, loss, bits=8):
    prompts = [{"prompt_tokens": tokens, "loss": loss, "loss_error": error} for tokens, error in ((448, 0.004), (128, None))]
    return {"kv_bits": bits, "kv_frac": 2 * bytes_frac, "bytes_frac": bytes_frac, "prompts": prompts}


def report(tried):
    policy = {"kv_bits": [8, 4], "kv": {"policy": "h2o", "head_budgets": [[0.2, 0.4], [1.0, 0.02], [0.5, 0.5]]}}
    return {"model": {"name": "a model"}, "policy": policy, "calibration": tried[0] | {"tried": tried}}


class PlotCalibration(unittest.TestCase):
    def setUp(self):
        place = tempfile.TemporaryDirectory()
        self.addCleanup(place.cleanup)
        self.file = pathlib.Path(place.name) / "r.json"

    def run_script(self, *words):
        return subprocess.run([sys.executable, "-B", SCRIPT, self.file, *words], capture_output=True, text=True, check=False)

    def test_draws_heads_and_losses(self):
        sizes = []
        for tried in ([losses(0.2, 0.01)], [losses(0.2, 0.01), losses(0.1, 0.03)],
                      [losses(0.2, 0.01), losses(0.1, 0.03), losses(0.05, 0.04, [8, 4]), losses(0.1, 0.02, [8, 4])]):
            self.file.write_text(json.dumps(report(tried)))
            done = self.run_script()
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            picture = self.file.with_suffix(".png")
            self.assertEqual(done.stdout, f"{picture}\n")
            sizes.append(picture.read_bytes()[16:24])  # width and height
            self.assertEqual(picture.read_bytes()[:8], b"\x89PNG\r\n\x1a\n")
        self.assertGreater(sizes[1][4:], sizes[0][4:])  # a second panel

    def test_draws_a_full_cache(self):
        full = report([losses(0.4, 0.01)])
        full["policy"]["kv"] = {"policy": "full"}
        full["calibration"]["alone_divergence"] = [[0.1, 0.2], [0.3, 0.1]]
        self.file.write_text(json.dumps(full))
        done = self.run_script()
        self.assertEqual((done.returncode, done.stderr), (0, ""))

    def test_refuses_other_files(self):
        self.file.write_text(json.dumps({"model": {"name": "m"}, "policy": {"kv": {"policy": "h2o"}}, "calibration": {}}))
        self.assertIn("no report of spillway calibrate with budgets per KV head", self.run_script().stderr)
        self.file.write_text("{")
        self.assertIn("no report", self.run_script().stderr)
        self.file.unlink()
        self.assertIn("No such file", self.run_script().stderr)


if __name__ == "__main__":
    unittest.main()
