"""`spillway profile` and the machine file it leaves, and `spillway inspect` on files. Standard library only.

  python3 profile_test.py path/to/spillway [unittest arguments]
"""

import json
import os
import pathlib
import signal
import subprocess
import sys
import time
import unittest

import harness

MACHINES = harness.REPOSITORY / "examples" / "machines"
SMALL = ["--prompt-len", 8, "--gen-len", 2, "--num-requests", 2, "--quiet"]


def catches(process, number):
    """True where a process has a handler for a signal by now."""
    status = pathlib.Path(f"/proc/{process.pid}/status").read_text(encoding="utf-8")
    mask = next(line.split()[1] for line in status.splitlines() if line.startswith("SigCgt:"))
    return int(mask, 16) >> (number - 1) & 1 == 1


class ProfileTest(harness.VerbTest):
    def setUp(self):
        super().setUp()
        self.cache = self.folder / "cache"
        self.offload = self.folder / "offload"
        self.offload.mkdir()
        self.env = {"XDG_CACHE_HOME": str(self.cache)}

    def profile(self, *words, status=0):
        return self.run_verb("profile", "--quick", "--offload-dir", self.offload, *words, status=status)

    def cached(self):
        return list((self.cache / "spillway").glob("machine-*.json"))

    def bench(self):
        """(stderr, report)"""
        report = self.folder / "r.json"
        result = self.run_verb("bench", *SMALL, "--offload-dir", self.offload, "--report", report)
        return result.stderr, json.loads(report.read_text())


class Profile(ProfileTest):
    def test_measures_every_rate_and_keeps_the_file(self):
        output = self.folder / "machine.json"
        result = self.profile("--output", output)
        machine = json.loads(output.read_text())
        self.assertEqual((machine["version"], machine["device"]), (1, "cpu"))
        self.assertEqual(set(machine["link_bytes_per_s"]), {"disk_read", "disk_write", "cpu_to_gpu", "gpu_to_cpu"})
        for name, rate in machine["link_bytes_per_s"].items():
            self.assertGreater(rate, 1e6, name)
        cpu = machine["cpu"]
        self.assertEqual([entry["rows"] for entry in cpu["matmul"]], [1, 4, 8, 16, 32, 64, 512])
        if "disturbed" not in machine:
            # Eight rows share one read of the weights, on any processor.
            self.assertGreater(cpu["matmul"][2]["flops_per_s"], 2 * cpu["matmul"][0]["flops_per_s"])
            # One row cannot be faster than its weights are read (a flop a byte).
            self.assertLess(cpu["matmul"][0]["flops_per_s"], 2 * cpu["memory_bytes_per_s"])
        self.assertLess(cpu["launch_s"], 0.01)
        self.assertEqual(set(machine["beside_compute"]), set(machine["link_bytes_per_s"]))
        self.assertEqual("disturbed" in machine, b"warning: this profile was disturbed" in result.stderr)
        self.assertRegex(result.stdout, rb"llama-3.1-8b +about [0-9.e+-]+ new tokens/s, [0-9]+ rows at a time, bound by ")
        self.assertIn("--quick", machine["sources"][0])
        for name in (b"disk_read", b"matmul, rows 512", b"decode attention", b"launch"):
            self.assertIn(name, result.stdout)
        self.assertEqual([path.read_text() for path in self.cached()], [output.read_text()])
        self.assertEqual(list(self.offload.iterdir()), [])
        self.assertIn(b"matmul", self.run_verb("inspect", output).stdout)
        self.uses_and_survives_the_cache()

    def uses_and_survives_the_cache(self):
        """Later runs take the cached file; a damaged one costs a line and changes nothing."""
        (path,) = self.cached()
        disturbed = json.loads(path.read_text()).get("disturbed")
        stderr, report = self.bench()
        self.assertEqual(len(stderr.splitlines()), int(disturbed is not None), stderr)
        self.assertEqual(b"profile was disturbed" in stderr, disturbed is not None)
        self.assertEqual(report["machine"].get("disturbed"), disturbed)
        path.write_text(json.dumps(json.loads(path.read_text()) | {"disturbed": "others took 30 % of the processor"}))
        self.assertEqual(self.bench()[1]["machine"]["disturbed"], "others took 30 % of the processor")
        path.write_text(path.read_text().replace('"cpu"', '"spu"'))
        stderr, damaged = self.bench()
        self.assertEqual(damaged["fingerprint"], report["fingerprint"])
        self.assertEqual(len(stderr.splitlines()), 1, stderr)
        self.assertIn(b"warning: the cached machine file is not used", stderr)

    def test_other_verbs_measure_nothing(self):
        self.bench()
        self.assertFalse(self.cache.exists())

    def test_bad_places_are_refused_before_anything_is_measured(self):
        for words in (["--output", self.folder / "none" / "m.json"], ["--offload-dir", self.folder / "none"]):
            result = self.run_verb("profile", "--quick", *words, status=60)
            self.assertEqual(len(result.error_lines()), 1)
            self.assertEqual(result.stdout, b"")
        self.assertFalse(self.cache.exists())

    def test_a_stop_leaves_nothing(self):
        process = self.background([self.binary, "profile", "--offload-dir", self.offload], env=self.env, stdout=subprocess.PIPE)
        while process.poll() is None and not catches(process, signal.SIGINT):
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        _, stderr = process.communicate(timeout=30 * harness.SLOWDOWN)
        self.assertEqual(process.returncode, 75, stderr)
        self.assertFalse(self.cache.exists())
        self.assertEqual(list(self.offload.iterdir()), [])


class QuickProfileOfAJob(ProfileTest):
    SENTENCE = b"a quick profile is made first"

    def words(self, num_rows, memory="4GiB"):
        """A job of days on two threads, by its arithmetic alone, where it has many rows. Its memory is given: a profile is
        made only where there are 2 GiB, and what is left of the machine's is for its other programs to say."""
        source = harness.write_jsonl(self.folder / "in.jsonl", [{"token_ids": [5] * 50, "max_tokens": 1900}] * num_rows)
        return ["generate", "--model", "opt-125m", "--dummy-weights", "--tokenizer", "none", "--input", source, "--threads", 2,
                "--cpu-memory", memory, "--output", self.folder / "out.jsonl", "--offload-dir", self.offload, "--no-progress"]

    def start(self, *words):
        return self.background([self.binary, *words], env=self.env, stdout=subprocess.PIPE)

    def test_a_long_job_makes_one_and_says_so(self):
        process = self.start(*self.words(4000))
        self.assertIn(self.SENTENCE, process.stderr.readline())
        process.send_signal(signal.SIGINT)
        self.assertEqual(process.wait(30 * harness.SLOWDOWN), 75)
        self.assertFalse(self.cache.exists())

    def test_too_little_memory_for_one_is_said(self):
        process = self.start(*self.words(4000, "1GiB"))
        self.assertIn(b"a profile takes 2 GiB of memory", process.stderr.readline())
        self.assertIn(b" can run: ", process.stderr.readline())
        process.send_signal(signal.SIGINT)
        self.assertEqual(process.wait(30 * harness.SLOWDOWN), 75)

    def test_a_flag_and_a_small_job_leave_it_out(self):
        process = self.start(*self.words(4000), "--no-profile")
        self.assertIn(b" can run: ", process.stderr.readline())
        process.send_signal(signal.SIGINT)
        self.assertEqual(process.wait(30 * harness.SLOWDOWN), 75)
        small = self.start(*self.words(10), "--overwrite")
        self.assertIn(b" can run: ", small.stderr.readline())


class Inspect(ProfileTest):
    def test_machine_files(self):
        files = sorted(MACHINES.glob("*.json"))
        self.assertEqual(len(files), 6)
        for file in files:
            machine = json.loads(file.read_text())
            text = self.run_verb("inspect", file).stdout.decode()
            self.assertTrue(text.startswith("machine     " + machine["name"][:40]), text)
            self.assertIn(f"computes on {machine['device']}", text)
            self.assertEqual("FlexGen's effective rates" in text, "flexgen" in machine)

    def test_a_bad_machine_file_names_the_place(self):
        machine = json.loads((MACHINES / "t4.json").read_text())
        machine["gpu"]["matmul"][2]["flops_per_s"] = -1
        bad = self.folder / "bad.json"
        bad.write_text(json.dumps(machine))
        (line,) = self.run_verb("inspect", bad, status=3).error_lines()
        self.assertIn(b"error[E-MACHINE]", line)
        self.assertIn(b"$.gpu.matmul[2].flops_per_s: is -1, must be a number from 10000 to", line)

    def test_reports_plans_and_traces(self):
        report, trace, plan = (self.folder / name for name in ("r.json", "t.json", "p.json"))
        self.run_verb("bench", *SMALL, "--report", report, "--trace", trace, "--percent", 0, 0, 0, 100, 0, 100,
                      "--offload-dir", self.offload)
        self.run_verb("plan", *SMALL, "--report", plan, "--offload-dir", self.offload)
        values = json.loads(report.read_text())
        text = self.run_verb("inspect", report).stdout.decode()
        self.assertTrue(text.startswith("report "), text)
        self.assertIn(values["fingerprint"], text)
        self.assertIn("num_requests 2", text)
        self.assertTrue(self.run_verb("inspect", plan).stdout.startswith(b"plan "))
        text = self.run_verb("inspect", trace).stdout.decode()
        spans = sum(event["ph"] == "X" for event in json.loads(trace.read_text())["traceEvents"])
        self.assertTrue(text.startswith(f"trace       {spans} spans over "), text)
        self.assertIn("disk_read", text)
        trace.write_bytes(trace.read_bytes()[:-100])
        (line,) = self.run_verb("inspect", trace, status=20).error_lines()
        self.assertIn(b"not valid JSON", line)

    def test_a_file_of_weights_is_described(self):
        text = self.run_verb("inspect", harness.BUNDLED_MODEL / "model.safetensors").stdout.decode()
        for part in ("format      safetensors", "tensors     ", "its folder tells: spillway inspect ", "first tensors"):
            self.assertIn(part, text)

    def test_other_files_are_refused(self):
        for name, content in (("empty", b""), ("text", b"once upon a time"), ("list.json", b"[1]"),
                              ("other.json", b'{"a":1}'), ("deep.json", b"[" * 100_000), ("large", b" " * (1 << 21))):
            file = self.folder / name
            file.write_bytes(content)
            self.assertEqual(len(self.run_verb("inspect", file, status=20).error_lines()), 1, name)
        for name in ("model.bin", "tokenizer.json"):  # as large as such files are
            (self.folder / name).write_bytes(b'{"a":"' + b"x" * (3 << 20) + b'"}')
            (line,) = self.run_verb("inspect", self.folder / name, status=20).error_lines()
            self.assertIn(b"is no policy file, machine file, report, trace, requests or output; give one", line)
        os.mkfifo(self.folder / "pipe")
        self.run_verb("inspect", self.folder / "pipe", status=12)


if __name__ == "__main__":
    harness.VerbTest.binary = pathlib.Path(sys.argv.pop(1)).resolve()
    unittest.main()
