"""`spillway generate` and what surrounds it: limits of the system, signals, the caller's environment. Standard library only.

  python3 surroundings_test.py path/to/spillway [unittest arguments]
"""

import json
import pathlib
import resource
import signal
import subprocess
import sys
import time
import unittest

import harness
from generate_case import GenerateTest


class SystemLimits(GenerateTest):
    def limited(self, name, soft, *flags):
        source = self.write([{"prompt": "a", "max_tokens": 2}])
        words = ["generate", "--input", source, "--output", self.output, "--overwrite", "--quiet", *flags]
        return subprocess.run(
            [self.binary, *map(str, words)], capture_output=True, env=harness.clean_environment(), check=False,
            preexec_fn=lambda: resource.setrlimit(name, (soft, soft)),
        )

    def test_open_files(self):
        """Whatever the open is that fails, the limit is named; with enough of them the run succeeds."""
        self.skip_with_large_library()
        statuses = {}
        for count in range(4, 16):
            done = self.limited(resource.RLIMIT_NOFILE, count)
            statuses[count] = done.returncode
            if done.returncode != 0:
                self.assertEqual(done.returncode, 33, (count, done.stderr))
                self.assertIn(b"ulimit -n", done.stderr)
        self.assertEqual((statuses[4], statuses[15]), (33, 0), statuses)

    def test_address_space(self):
        """64 stacks of 8 MiB, or the arena itself, do not fit."""
        self.skip_with_large_library()
        done = self.limited(resource.RLIMIT_AS, 300 << 20, "--threads", "64")
        self.assertEqual(done.returncode, 33, done.stderr)
        self.assertIn(b"ulimit -v", done.stderr)


class Interruption(GenerateTest):
    PART = "out.jsonl.part"

    def start_long_run(self, ignored=()):
        """A run of minutes, some of whose lines are finished. It starts with these signals ignored, as under nohup."""
        source = self.write([{"prompt": f"Chapter {i}.", "max_tokens": 300, "ignore_eos": True} for i in range(2000)])
        words = ["generate", "--input", source, "--output", self.output, "--gpu-batch-size", "2", "--quiet"]
        process = self.background([self.binary, *words], stdout=subprocess.PIPE,
                                  preexec_fn=lambda: [signal.signal(number, signal.SIG_IGN) for number in ignored])
        part = self.folder / self.PART
        deadline = time.monotonic() + 120 * harness.SLOWDOWN
        while not (part.exists() and part.read_bytes().count(b"\n") >= 2) and process.poll() is None:
            self.assertLess(time.monotonic(), deadline, "no line was finished in two minutes")
            time.sleep(0.05)
        return process

    def check_stopped_by(self, number):
        process = self.start_long_run()
        process.send_signal(number)
        begin = time.monotonic()
        stdout, stderr = process.communicate(timeout=60 * harness.SLOWDOWN)
        self.assertLess(time.monotonic() - begin, 10)
        self.assertEqual((process.returncode, stdout), (75, b""), stderr)
        self.assertRegex(stderr, rb"\Aspillway: error\[E-INTERRUPTED\]: [^\n]*\n\Z")
        self.assertFalse(self.output.exists())
        text = (self.folder / self.PART).read_text(encoding="utf-8")
        self.assertTrue(text.endswith("\n"))
        names = [int(json.loads(line)["custom_id"]) for line in text.splitlines()]
        self.assertGreaterEqual(len(names), 2)
        self.assertLess(len(names), 2000)
        self.assertEqual(names, sorted(set(names)))

    def test_interrupt(self):
        self.check_stopped_by(signal.SIGINT)

    def test_terminate(self):
        self.check_stopped_by(signal.SIGTERM)

    def test_notice_of_a_batch_system(self):
        self.check_stopped_by(signal.SIGUSR1)

    def test_a_closed_terminal(self):
        self.check_stopped_by(signal.SIGHUP)

    def test_a_closed_terminal_under_nohup(self):
        process = self.start_long_run(ignored=[signal.SIGHUP])
        lines = (self.folder / self.PART).read_bytes().count(b"\n")
        process.send_signal(signal.SIGHUP)
        deadline = time.monotonic() + 120 * harness.SLOWDOWN
        while (self.folder / self.PART).read_bytes().count(b"\n") <= lines + 2:
            self.assertIsNone(process.poll())
            self.assertLess(time.monotonic(), deadline, "no line was finished in two minutes")
            time.sleep(0.05)

    def test_a_second_signal_ends_at_once(self):
        process = self.start_long_run()
        process.send_signal(signal.SIGSTOP)  # so that both wait; which one's handler runs first does not matter
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGCONT):
            process.send_signal(number)
        process.communicate(timeout=60 * harness.SLOWDOWN)
        self.assertIn(process.returncode, (-signal.SIGINT, -signal.SIGTERM))
        self.assertFalse(self.output.exists())

    def test_stops_and_continues_change_nothing(self):
        source = self.write([{"prompt": f"Chapter {i}.", "max_tokens": 100, "ignore_eos": True} for i in range(40)])
        words = ["generate", "--input", source, "--gpu-batch-size", "4", "--quiet", "--percent", *"0 0 0 0 0 100".split()]
        words += ["--offload-dir", self.folder]
        whole = self.folder / "whole.jsonl"
        self.assertEqual(harness.run(self.binary, [*words, "--output", whole]).status, 0)
        process = self.background([self.binary, *words, "--output", self.output])
        stops = 0
        while process.poll() is None:
            process.send_signal(signal.SIGSTOP)
            time.sleep(0.002)
            process.send_signal(signal.SIGCONT)
            time.sleep(0.01)
            stops += 1
        self.assertEqual(process.communicate()[1], b"")
        self.assertEqual(process.returncode, 0)
        self.assertGreater(stops, 3)
        self.assertEqual(self.output.read_bytes(), whole.read_bytes())


class Environment(GenerateTest):
    """docs/reliability.md, "Flags and places": what a caller's environment says changes no byte."""

    def test_locale_time_zone_home_and_umask(self):
        source = self.write([{"prompt": "Once upon a time", "max_tokens": 8, "temperature": 0.75, "logprobs": 2}])
        words = ["generate", "--input", source, "--quiet"]
        plain, other = self.folder / "plain.jsonl", self.folder / "other.jsonl"
        self.assertEqual(harness.run(self.binary, [*words, "--output", plain]).status, 0)
        strange = {"LC_ALL": "de_DE.UTF-8", "LC_NUMERIC": "de_DE.UTF-8", "TZ": "Pacific/Kiritimati"}
        environment = {key: value for key, value in harness.clean_environment(strange).items() if key != "HOME"}
        done = subprocess.run([str(word) for word in [self.binary, *words, "--output", other]], env=environment, umask=0,
                              capture_output=True, check=False)
        self.assertEqual((done.returncode, done.stderr), (0, b""))
        self.assertEqual(other.read_bytes(), plain.read_bytes())


if __name__ == "__main__":
    GenerateTest.binary = pathlib.Path(sys.argv.pop(1)).resolve()
    unittest.main()
