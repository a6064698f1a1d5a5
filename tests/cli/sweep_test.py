"""`spillway sweep`: a grid of runs, resumed, refused, stopped and killed. Standard library only.

  python3 sweep_test.py path/to/spillway [unittest arguments]
"""

import csv
import json
import os
import pathlib
import shutil
import signal
import sys
import time
import unittest

import harness

BINARY = pathlib.Path()
T4 = harness.REPOSITORY / "examples" / "machines" / "t4.json"
SMALL = """
threads = 1
num-requests = 2
gpu-batch-size = 2
prompt-len = 8
gen-len = [2, 3]
"""
# A point of about a second, then quick ones.
SLOW_FIRST = """
threads = 1
gpu-batch-size = 4
prompt-len = 8
gen-len = [1500, 2, 3]
"""


class SweepTest(harness.VerbTest):
    def setUp(self):
        super().setUp()
        self.out = self.folder / "out"

    def grid(self, text):
        path = self.folder / "grid.toml"
        path.write_text(text)
        return path

    def sweep(self, text, *words, status=0, env=None):
        result = harness.run(BINARY, ["sweep", self.grid(text), "--output", self.out, *words], cwd=self.folder, env=env)
        self.assertEqual(result.status, status, result.stderr.decode(errors="replace"))
        return result

    def refusal(self, text, *words, status=2):
        lines = self.sweep(text, *words, status=status).stderr.decode().splitlines()
        self.assertEqual(len(lines), 1, lines)
        return lines[0]

    def rows(self):
        with open(self.out / "results.csv", newline="", encoding="utf-8") as file:
            return list(csv.DictReader(file))

    def points(self):
        return sorted((self.out / "points").glob("[!.]*.json"))

    def start(self, text):
        words = [str(BINARY), "sweep", str(self.grid(text)), "--output", str(self.out), "--quiet"]
        return self.background(words)

    def wait_for(self, condition):
        deadline = time.monotonic() + 60 * harness.SLOWDOWN
        while not condition():
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.01)

    def running(self):
        """Processes that run a point of this test's sweep."""
        found = []
        for folder in pathlib.Path("/proc").iterdir():
            try:
                words = (folder / "cmdline").read_bytes() if folder.name.isdigit() else b""
            except OSError:
                continue
            if str(self.out).encode() in words and b"\0bench\0" in words:
                found.append(int(folder.name))
        return found


class Results(SweepTest):
    def test_a_report_for_each_point_and_a_table(self):
        text = self.sweep(SMALL).stdout.decode()
        self.assertIn("2/2", text)
        self.assertIn("ETA", text)
        self.assertEqual([row["gen-len"] for row in self.rows()], ["2", "3"])
        for row in self.rows():
            report = json.loads((self.out / row["file"]).read_text())
            self.assertEqual(row["status"], "measured")
            self.assertEqual(row["generated_tokens"], str(2 * int(row["gen-len"])))
            self.assertEqual(float(row["generated_tokens_per_s"]), report["throughput"]["generated_tokens_per_s"])
            self.assertEqual(report["sweep"]["settings"]["gen-len"], row["gen-len"])
            self.assertIsNone(report["sweep"]["error"])
            self.assertEqual(report["version"], 1)
            self.assertEqual(report["sweep"]["command"][:2], ["spillway", "bench"])
            self.assertIn(f"--gen-len={row['gen-len']}", report["sweep"]["command"])
        self.assertEqual((self.out / "grid.toml").read_text(), SMALL)
        self.assertEqual(sorted(path.name for path in self.out.iterdir()), ["grid.toml", "points", "results.csv"])
        self.assertEqual(len(self.points()), 2)
        self.assertEqual(len(list((self.out / "points").iterdir())), 2)

    def test_a_point_is_the_run_of_its_command(self):
        self.sweep(SMALL)
        report = self.folder / "r.json"
        harness.run(BINARY, ["bench", "--num-requests", 2, "--gpu-batch-size", 2, "--prompt-len", 8, "--gen-len", 3,
                             "--report", report, "--quiet"])
        self.assertEqual(self.rows()[1]["fingerprint"], json.loads(report.read_text())["fingerprint"])

    def test_simulated_points_need_no_weights(self):
        self.sweep(f'verb = "simulate"\nmodel = "opt-6.7b"\nmachine = "{T4}"\ngen-len = 8\nkv-policy = ["full", "h2o"]\n'
                   "gpu-batch-size = 24\nnum-gpu-batches = 4\nnum-requests = 96\n")
        full, h2o = self.rows()
        self.assertEqual((full["status"], full["kv"], h2o["kv"]), ("simulated", "full", "h2o 20 %"))
        self.assertEqual(float(full["speedup_over_full_kv"]), 1.0)
        self.assertGreater(float(h2o["speedup_over_full_kv"]), 1.0)
        self.assertGreater(float(h2o["decode_flops_per_byte"]), 0)

    def test_the_verb_of_the_command_line_counts(self):
        text = SMALL.replace("threads = 1", "") + f'[bench]\nthreads = 1\n[simulate]\nmachine = "{T4}"\n'
        self.sweep(text, "--verb", "simulate", "--quiet")
        self.assertEqual({row["status"] for row in self.rows()}, {"simulated"})

    def test_points_take_nothing_from_the_environment(self):
        self.sweep(SMALL, env={"SPILLWAY_PROMPT_LEN": "30", "SPILLWAY_REPORT": str(self.folder / "x.json")})
        self.assertEqual({row["prompt_tokens"] for row in self.rows()}, {"16"})
        self.assertFalse((self.folder / "x.json").exists())

    def test_another_instruction_set_makes_a_new_point(self):
        self.sweep(SMALL)
        self.sweep(SMALL, env={"SPILLWAY_ISA": "portable"})
        self.assertEqual(len(self.points()), 4)

    def test_variables_that_are_left_out_are_named(self):
        diagnostics = self.sweep(SMALL, env={"SPILLWAY_PROMPT_LEN": "30", "SPILLWAY_QUIET": "1"}).stderr.decode()
        self.assertNotIn("SPILLWAY_QUIET", diagnostics)  # the sweep's own
        self.assertEqual(diagnostics.count("\n"), 1)
        self.assertIn("SPILLWAY_PROMPT_LEN", diagnostics)

    def test_a_point_that_cannot_run_is_a_row(self):
        result = self.sweep(SMALL.replace("[2, 3]", "[2, 5000, 3]") + 'cpu-memory = ["1MiB", "1GiB"]\n', status=21)
        self.assertIn(b"4 could not run", result.stdout)
        rows = self.rows()
        self.assertEqual([row["status"] for row in rows],
                         ["refused", "measured", "refused", "refused", "refused", "measured"])
        self.assertEqual(rows[0]["error_code"], "E-CPU-MEMORY")
        self.assertIn("--cpu-memory", rows[0]["error"])
        self.assertEqual(rows[2]["error_code"], "E-FLAG")
        self.assertIn("positions", rows[2]["error"])
        self.assertEqual(rows[0]["generated_tokens_per_s"], "")


class Resumed(SweepTest):
    def times(self):
        return {path.name: path.stat().st_mtime_ns for path in self.points()}

    def test_finished_points_are_not_run_again(self):
        self.sweep(SMALL)
        before = self.times()
        self.sweep(SMALL)
        self.assertEqual(self.times(), before)
        self.sweep(SMALL.replace("[2, 3]", "[4, 3, 2]"))
        self.assertEqual({name: time for name, time in self.times().items() if name in before}, before)
        self.assertEqual([row["generated_tokens"] for row in self.rows()], ["8", "6", "4"])
        self.assertEqual(len(self.points()), 3)

    def test_what_counts_is_in_the_file_not_its_name(self):
        self.sweep(SMALL)
        two, three = self.points()
        swapped = two.read_bytes()
        two.write_bytes(three.read_bytes())
        three.write_bytes(swapped)
        before = self.times()
        self.sweep(SMALL)
        self.assertEqual(self.times(), before)
        self.assertEqual([row["generated_tokens"] for row in self.rows()], ["4", "6"])
        self.assertEqual([pathlib.Path(row["file"]).name for row in self.rows()], [three.name, two.name])
        # Another point's result under this one's name.
        two.write_bytes(three.read_bytes())
        self.sweep(SMALL)
        self.assertEqual([row["generated_tokens"] for row in self.rows()], ["4", "6"])

    def test_files_that_were_cut_short_do_not_count(self):
        self.sweep(SMALL)
        whole = self.points()[0].read_bytes()
        for half in (whole[: len(whole) // 2], b"", b"{}", b"[]", b"\0" * 100, b'{"sweep": 3}'):
            self.points()[0].write_bytes(half)
            self.sweep(SMALL, "--quiet")
            self.assertEqual(json.loads(self.points()[0].read_bytes())["workload"],
                             json.loads(whole)["workload"], half)

    def test_a_machine_file_that_was_edited_makes_a_new_point(self):
        machine = self.folder / "machine.json"
        document = json.loads(T4.read_text())
        text = f'verb = "simulate"\nmodel = "opt-125m"\nmachine = "{machine}"\ngen-len = 4\ngpu-batch-size = 2\n'
        machine.write_text(json.dumps(document))
        self.sweep(text)
        first = self.rows()[0]["generated_tokens_per_s"]
        document["gpu"]["memory_bytes_per_s"] /= 4
        machine.write_text(json.dumps(document))
        self.sweep(text)
        self.assertLess(float(self.rows()[0]["generated_tokens_per_s"]), float(first))

    def test_a_model_that_changed_makes_a_new_point(self):
        text = f'model = "{self.folder / "model"}"\n' + SMALL
        shutil.copytree(harness.BUNDLED_MODEL, self.folder / "model")
        self.sweep(text)
        before = self.times()
        for file in (self.folder / "model").iterdir():
            file.touch()
        self.sweep(text)
        self.assertEqual(self.times(), before)
        harness.run(BINARY, ["convert", "--output", self.folder / "four", "--weight-bits", 4, "--quiet"])
        shutil.rmtree(self.folder / "model")
        (self.folder / "four").rename(self.folder / "model")
        self.sweep(text)
        self.assertEqual({row["kv"] for row in self.rows()}, {"full, 4-bit weights"})

    def test_a_new_profile_makes_a_new_point(self):
        cache = self.folder / "cache" / "spillway"
        cache.mkdir(parents=True)
        env = {"XDG_CACHE_HOME": str(cache.parent)}
        self.sweep(SMALL, env=env)
        before = self.times()
        (cache / "other.json").write_text("{}")
        self.sweep(SMALL, env=env)
        self.assertEqual(self.times(), before)
        (cache / "machine-x.json").write_text("{}")
        self.sweep(SMALL, env=env)
        self.assertEqual(len(self.points()), 4)

    def test_a_profile_whose_name_is_not_utf8(self):
        cache = self.folder / "cache" / "spillway"
        cache.mkdir(parents=True)
        (cache / os.fsdecode(b"machine-\xff.json")).write_text("{}")
        env = {"XDG_CACHE_HOME": str(cache.parent)}
        self.sweep(SMALL, env=env)
        before = self.times()
        self.sweep(SMALL, env=env)
        self.assertEqual(self.times(), before)

    def test_refused_points_are_tried_again(self):
        text = SMALL + 'offload-dir = "later"\n'
        self.sweep(text, status=21)
        self.assertEqual({row["status"] for row in self.rows()}, {"refused"})
        (self.folder / "later").mkdir()
        self.sweep(text)
        self.assertEqual({row["status"] for row in self.rows()}, {"measured"})
        self.assertEqual(len(self.points()), 2)


class Stopped(SweepTest):
    def test_a_kill_in_the_middle(self):
        process = self.start(SLOW_FIRST.replace("[1500, 2, 3]", "[2, 1500, 3]"))
        self.wait_for(lambda: len(self.points()) == 1 and self.running())
        process.kill()
        process.communicate()
        self.wait_for(lambda: not self.running())  # the point that ran does not outlive its sweep
        self.assertEqual(len(self.points()), 1)
        kept = self.points()[0].stat().st_mtime_ns
        self.sweep(SLOW_FIRST.replace("1500", "4"), "--quiet")
        self.assertEqual([row["gen-len"] for row in self.rows()], ["4", "2", "3"])
        self.assertIn(kept, [path.stat().st_mtime_ns for path in self.points()])
        self.assertEqual([path for path in (self.out / "points").iterdir() if path.name.startswith(".")], [])

    def test_a_stop_keeps_what_is_finished(self):
        self.sweep(SLOW_FIRST.replace("1500, ", ""), "--quiet")
        process = self.start(SLOW_FIRST)
        self.wait_for(self.running)
        process.send_signal(signal.SIGINT)
        _, stderr = process.communicate(timeout=60 * harness.SLOWDOWN)
        self.assertEqual(process.returncode, 75, stderr)
        self.assertIn(b"2 of 3 points", stderr)
        self.assertEqual(self.running(), [])
        self.assertEqual([row["gen-len"] for row in self.rows()], ["2", "3"])

    def test_one_sweep_at_a_time(self):
        process = self.start(SLOW_FIRST)
        self.wait_for(self.running)
        self.assertIn(f"another sweep (process {process.pid}) is at work", self.refusal(SLOW_FIRST, status=50))
        process.terminate()
        process.communicate(timeout=60 * harness.SLOWDOWN)
        self.assertEqual(process.returncode, 75)


class Refused(SweepTest):
    def test_grids(self):
        self.assertIn("grid.toml:2:1: genlen: bench has no such flag; did you mean gen-len?",
                      self.refusal("threads = 1\ngenlen = 4\n"))
        self.assertIn(":1:12: --gen-len x", self.refusal('gen-len = ["x"]'))
        self.assertFalse(self.out.exists())
        self.out = self.folder / "grid.toml" / "out"
        self.assertIn("--output", self.refusal(SMALL, status=60))
        missing = harness.run(BINARY, ["sweep", self.folder / "none.toml", "--output", self.folder / "o"])
        self.assertEqual(missing.status, 2)

    def test_folders_of_other_things(self):
        self.out.mkdir()
        (self.out / "index.html").write_text("mine")
        self.assertIn("holds other files", self.refusal(SMALL, status=52))
        self.assertEqual((self.out / "index.html").read_text(), "mine")
        self.out = self.folder / "file"
        self.out.write_text("")
        self.refusal(SMALL, status=60)

    def test_the_grids_that_are_shipped_are_grids(self):
        (self.folder / "a_file").write_text("")
        for grid in sorted((harness.REPOSITORY / "examples" / "sweeps").glob("*.toml")):
            # A wrong grid is refused before its folder is made. Its files are found from anywhere.
            result = harness.run(BINARY, ["sweep", grid, "--output", self.folder / "a_file" / "o"], cwd=self.folder)
            self.assertEqual(result.status, 60, result.stderr)

    def test_folders_above_the_results_are_made(self):
        self.out = self.folder / "new" / "results"
        self.sweep(SMALL)
        self.assertTrue((self.out / "results.csv").exists())


if __name__ == "__main__":
    BINARY = pathlib.Path(sys.argv.pop(1)).resolve()
    unittest.main(verbosity=2)
