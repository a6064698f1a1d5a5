"""One command for ever: whatever interrupts a run, the same command goes on to the bytes of an undisturbed one.
Standard library only.

  python3 resume_test.py path/to/spillway [unittest arguments]
"""

import contextlib
import fcntl
import json
import os
import pathlib
import random
import re
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import time
import unittest

import harness

BINARY = pathlib.Path()
RECORDS = [
    {"prompt": f"Once upon a time there were {number} goats", "max_tokens": 8 + number % 9, "temperature": 0.7}
    for number in range(60)
]
RECORDS[7] = {"prompt": 5}  # an error line


def text_of(path):
    """Empty where there is no such file (any more)."""
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return ""


class ResumeTest(harness.VerbTest):
    @classmethod
    def setUpClass(cls):
        cls.temporary = tempfile.TemporaryDirectory()
        cls.shared = pathlib.Path(cls.temporary.name)
        cls.source = harness.write_jsonl(cls.shared / "in.jsonl", RECORDS)
        done = harness.run(BINARY, cls.words(cls.shared / "whole.jsonl", "--report", cls.shared / "whole.json"))
        assert done.status == 21, done.stderr
        cls.whole = (cls.shared / "whole.jsonl").read_bytes()

    @classmethod
    def tearDownClass(cls):
        cls.temporary.cleanup()

    def setUp(self):
        super().setUp()
        self.output = self.folder / "out.jsonl"
        self.part = self.folder / "out.jsonl.part"
        self.journal = self.folder / "out.jsonl.journal"
        self.ahead = self.folder / "out.jsonl.ahead"

    @classmethod
    def words(cls, output, *flags):
        """Small blocks, so that a run has many ends of blocks."""
        shape = ["--gpu-batch-size", 4, "--num-gpu-batches", 1, "--quiet"]
        return ["generate", "--input", cls.source, "--output", output, *shape, *flags]

    def resume(self, *flags, status=21):
        result = harness.run(BINARY, self.words(self.output, "--resume", *flags))
        self.assertEqual(result.status, status, result.stderr.decode(errors="replace"))
        return result

    def start(self, *flags):
        """A run in the background."""
        return self.start_words(self.words(self.output, *flags))

    def start_words(self, words):
        return self.background([BINARY, *words])

    def committed(self):
        """How many lines, the first ones of the output, the journal says to be whole."""
        records = [line[17:] for line in text_of(self.journal).split("\n")[1:-1]]
        return json.loads(records[-1])["lines"] if records else 0

    def kept(self):
        """Numbers of the lines that a resumed run need not compute; whole records only."""
        return set(range(1, 1 + self.committed())) | {int(line.split(" ", 2)[1]) for line in text_of(self.ahead).split("\n")[1:-1]}

    def interrupt(self, number=signal.SIGKILL, after_lines=4):
        """A run that got the signal once it had written some lines."""
        def begun():
            return text_of(self.part).count("\n") >= after_lines
        return self.interrupt_when(begun, self.words(self.output), number)

    def interrupt_when(self, begun, words, number=signal.SIGKILL):
        """A run that got the signal once `begun`, and ended of it. On a busy machine a whole run can pass between two
        looks: it is done again then."""
        for _ in range(20):
            run = self.start_words(words)
            while run.poll() is None and not begun():
                time.sleep(0.002)
            run.send_signal(number)
            run.wait(harness.TIMEOUT_S)
            if not self.output.exists():
                self.assertIn(run.returncode, (75, -number))
                return run
            self.output.unlink()
        return self.fail("20 runs finished before they were seen to begin")

    def assert_whole(self):
        self.assertEqual(self.output.read_bytes(), self.whole)
        self.assertEqual(sorted(path.name for path in self.folder.iterdir()), ["out.jsonl"])


class Interruptions(ResumeTest):
    def test_kill_at_random_times_until_done(self):
        generator = random.Random(1)
        status = None
        for attempt in range(40):
            run = self.start()
            try:
                status = run.wait(generator.uniform(0.01, 0.15) if attempt < 39 else 60)
            except subprocess.TimeoutExpired:
                run.kill()
                run.wait()
                continue
            self.assertEqual(status, 21, run.stderr.read())
            break
        self.assertEqual(status, 21)
        self.assert_whole()

    def test_signals_end_with_75_and_go_on(self):
        for number in (signal.SIGTERM, signal.SIGINT):
            with self.subTest(number=number):
                run = self.interrupt(number)
                self.assertEqual(run.returncode, 75)
                self.assertIn(b"; the same command goes on after ", run.stderr.read())
                self.resume()
                self.assert_whole()
                self.output.unlink()

    def test_a_stopped_run_leaves_its_report(self):
        for number in (signal.SIGTERM, signal.SIGINT):
            report = self.folder / "report.json"
            run = self.interrupt_when(lambda: text_of(self.part).count("\n") >= 4,
                                      self.words(self.output, "--report", report), number)
            self.assertEqual(run.returncode, 75)
            self.assertRegex(run.stderr.read(), rb"; the same command goes on after \d+ of them"
                                                rb"(; the next answer was (less than )?\d+ s away)?\n$")
            found = json.loads(report.read_text())
            self.assertIs(found["interrupted"], True)
            self.assertGreaterEqual(found["workload"]["num_completions"] + found["workload"]["num_errors"], 4)
            self.assertGreater(found["time_s"]["prefill"], 0)
            self.assertIsNone(found["predicted"]["prefill_s"])
            result = self.resume("--report", report)
            self.assertNotIn(b"interrupted", result.stderr)
            self.assertNotIn("interrupted", json.loads(report.read_text()))
            report.unlink()
            self.assert_whole()
            self.output.unlink()

    def test_progress_counts_the_rows_of_the_whole_job(self):
        self.interrupt()
        kept = len(self.kept())
        words = [word for word in self.words(self.output, "--resume") if word != "--quiet"]
        leader, follower = os.openpty()
        fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 200, 0, 0))
        run = self.background([BINARY, *words, "--no-overlap"], stdout=follower, stderr=follower)
        os.close(follower)
        text = b""
        with contextlib.suppress(OSError), os.fdopen(leader, "rb", buffering=0) as terminal:
            while some := terminal.read(4096):
                text += some
        self.assertEqual(run.wait(harness.TIMEOUT_S), 21)
        for rows in re.findall(rb"ETA [^\r]*  rows (\d+)/(\d+)  (?:prefill [\d,]+ of [\d,]+ tokens, layer|decode of)", text):
            self.assertGreaterEqual(int(rows[0]), kept - 1)
            self.assertEqual(int(rows[1]), len(RECORDS) - 1)
        self.assertRegex(text, rb"completions \(\d+ from before\)")
        self.assert_whole()

    def test_an_interruption_before_the_first_line_goes_on(self):
        for begun in (self.part, self.journal):
            with self.subTest(begun=begun):
                run = self.start()
                deadline = time.monotonic() + 60 * harness.SLOWDOWN
                while not begun.exists() and run.poll() is None and time.monotonic() < deadline:
                    time.sleep(0.0005)
                run.send_signal(signal.SIGTERM)
                self.assertIn(run.wait(60), (75, 21))
                self.resume()
                self.assert_whole()
                self.output.unlink()

    def test_an_interruption_before_anything_begins_leaves_nothing(self):
        words = ["generate", "--model", harness.BUNDLED_MODEL, "--input", "-", "--output", self.output]
        run = subprocess.Popen([BINARY, *map(str, words)], stdin=subprocess.PIPE, stderr=subprocess.PIPE)
        deadline = time.monotonic() + 60 * harness.SLOWDOWN
        while not self.part.exists() and run.poll() is None and time.monotonic() < deadline:
            time.sleep(0.0005)
        run.send_signal(signal.SIGINT)  # while it waits for the input
        _, said = run.communicate(timeout=60)
        self.assertEqual(run.returncode, 75, said)
        self.assertIn(b"nothing was computed yet", said)
        self.assertEqual([name for name in os.listdir(self.folder) if name.startswith(self.output.name)], [])

    def test_another_block_shape_and_thread_count_go_on(self):
        self.interrupt()
        words = ["generate", "--input", self.source, "--output", self.output, "--quiet", "--resume"]
        result = harness.run(BINARY, [*words, "--gpu-batch-size", 16, "--threads", 1])
        self.assertEqual(result.status, 21, result.stderr)
        self.assert_whole()

    def test_a_model_whose_folder_is_not_utf8_goes_on(self):
        model = self.folder / "models" / os.fsdecode(b"tales-\xff")
        shutil.copytree(harness.BUNDLED_MODEL, model)
        words = self.words(self.output, "--model", model)
        self.interrupt_when(lambda: text_of(self.part).count("\n") >= 4, words)
        result = harness.run(BINARY, [*words, "--resume"])
        self.assertEqual(result.status, 21, result.stderr)
        for line, whole in zip(harness.read_jsonl(self.output), self.whole.splitlines(), strict=True):
            whole = json.loads(whole)
            self.assertEqual(line["error"], whole["error"])
            if line["error"] is None:
                self.assertEqual(harness.choice(line), harness.choice(whole))

    def test_the_report_has_the_fingerprint_of_all_lines(self):
        self.interrupt()
        self.resume("--report", self.folder / "report.json")
        whole = json.loads((self.shared / "whole.json").read_text())["fingerprint"]
        self.assertEqual(json.loads((self.folder / "report.json").read_text())["fingerprint"], whole)

    def test_the_report_counts_what_the_resumed_run_did(self):
        self.assertEqual(self.interrupt(signal.SIGTERM).returncode, 75)
        kept = self.kept()
        self.resume("--report", self.folder / "report.json")
        report = json.loads((self.folder / "report.json").read_text())
        workload, earlier = report["workload"], report["resumed"]
        lines = [json.loads(line) for line in self.output.read_bytes().splitlines()]
        before = earlier["num_completions"] + earlier["num_errors"]
        self.assertGreaterEqual(before, 4)
        self.assertEqual(before, len(kept))
        rest = [line for number, line in enumerate(lines, 1) if number not in kept]
        usage = [line["response"]["body"]["usage"] for line in rest if line["error"] is None]
        self.assertEqual(workload["num_completions"], len(usage))
        self.assertEqual(workload["num_requests"], len(usage))
        self.assertEqual(workload["num_errors"], len(rest) - len(usage))
        self.assertEqual(earlier["num_errors"] + workload["num_errors"], 1)
        self.assertEqual(workload["generated_tokens"], sum(row["completion_tokens"] for row in usage))
        self.assertEqual(workload["prompt_tokens"], sum(row["prompt_tokens"] for row in usage))
        self.assertNotIn("resumed", json.loads((self.shared / "whole.json").read_text()))

    def test_what_waits_for_the_first_line_is_not_computed_again(self):
        # The longest rows run first: the first line comes last.
        records = [{"prompt": "Once", "max_tokens": 2}]
        records += [{"prompt": f"There were {number} goats", "max_tokens": 40 + number} for number in range(40)]
        source = harness.write_jsonl(self.folder / "uneven.jsonl", records)
        words = ["generate", "--input", source, "--gpu-batch-size", 4, "--num-gpu-batches", 3, "--quiet",
                 "--ignore-eos"]
        whole = self.folder / "whole.jsonl"
        self.assertEqual(harness.run(BINARY, [*words, "--output", whole]).status, 0)
        for _ in range(20):
            self.interrupt_when(lambda: len(self.kept()) >= 12, [*words, "--output", self.output])
            if not self.part.read_bytes():
                break
            for path in self.folder.glob("out.jsonl*"):  # the signal came late, on a busy machine
                path.unlink()
        kept = self.kept()
        self.assertGreaterEqual(len(kept), 12)
        self.assertEqual(self.part.read_bytes(), b"")
        report = self.folder / "report.json"
        done = harness.run(BINARY, [*words, "--output", self.output, "--resume", "--report", report])
        self.assertEqual(done.status, 0, done.stderr)
        self.assertEqual(self.output.read_bytes(), whole.read_bytes())
        self.assertEqual(json.loads(report.read_text())["resumed"]["num_completions"], len(kept))
        self.assertEqual(sorted(path.name for path in self.folder.glob("out.jsonl*")), ["out.jsonl"])

    def test_a_copy_of_the_input_elsewhere_goes_on(self):
        self.interrupt()
        copy = self.folder / "copy.jsonl"
        copy.write_bytes(self.source.read_bytes())
        words = ["generate", "--input", copy, "--output", self.output, "--quiet", "--resume"]
        self.assertEqual(harness.run(BINARY, words).status, 21)
        self.assertEqual(self.output.read_bytes(), self.whole)

    def test_standard_input_goes_on(self):
        self.interrupt()
        words = ["generate", "--input", "-", "--output", self.output, "--quiet", "--resume"]
        self.assertEqual(harness.run(BINARY, words, stdin=self.source.read_bytes()).status, 21)
        self.assert_whole()


class Refusals(ResumeTest):
    def assert_refused(self, result, code, words):
        text = result.stderr.decode()
        self.assertEqual(len(text.splitlines()), 1, text)
        self.assertLessEqual(len(text), 301)
        self.assertIn(f"error[{code}]", text)
        self.assertIn(words, text)

    def test_a_finished_run_is_left_alone(self):
        harness.run(BINARY, self.words(self.output))
        before = self.output.stat()
        try:
            os.getxattr(self.output, "user.spillway.run")
        except OSError:
            self.skipTest("the filesystem has no attributes")
        report, trace = self.shared / "finished.json", self.shared / "trace.json"
        self.resume("--report", report, "--trace", trace)
        self.assertEqual(self.output.stat().st_mtime_ns, before.st_mtime_ns)
        found = json.loads(report.read_text())
        self.assertEqual(found["workload"]["num_requests"], 0)
        self.assertEqual(found["workload"]["generated_tokens"], 0)
        self.assertEqual(found["resumed"], {"num_completions": len(RECORDS) - 1, "num_errors": 1})
        self.assertIsNone(found["fingerprint"])
        self.assertTrue(harness.run(BINARY, ["inspect", report]).stdout.startswith(b"report "))
        self.assertIn("traceEvents", json.loads(trace.read_text()))
        for flags in (["--temperature", "1"], ["--kv-bits", "4"], ["--max-new-tokens", "5"]):
            self.assert_refused(self.resume(*flags, status=51), "E-RESUME", "not known as the output of this run")
        self.assert_whole()

    def test_a_report_of_what_was_done_is_left_alone(self):
        report, trace = self.folder / "report.json", self.folder / "trace.json"
        words = self.words(self.output, "--report", report, "--trace", trace)
        harness.run(BINARY, words)
        before = report.read_bytes(), trace.read_bytes()
        harness.run(BINARY, words)
        self.assertEqual((report.read_bytes(), trace.read_bytes()), before)
        for change in {"workload": {"num_completions": 7, "num_errors": 1}}, {"interrupted": True}:  # of another output, and of a part
            report.write_text(json.dumps(json.loads(before[0]) | change))
            harness.run(BINARY, words)
            self.assertEqual(json.loads(report.read_text())["workload"]["num_requests"], 0)

    def test_records_left_beside_a_finished_output_are_removed(self):
        self.interrupt()
        records = {path: path.read_bytes() for path in (self.journal, self.ahead) if path.exists()}
        self.resume()
        for path, content in records.items():
            path.write_bytes(content)
        self.resume()
        self.assert_whole()
        self.journal.write_text("notes of somebody's\n")
        self.resume()
        self.assertTrue(self.journal.exists())
        self.journal.unlink()
        self.assert_whole()

    def test_another_output_is_not_taken_for_finished(self):
        self.output.write_bytes(self.whole[: self.whole.index(b"\n") + 1])
        self.assert_refused(self.resume(status=51), "E-RESUME", "is whole but not known")

    def test_a_first_run_starts(self):
        """A script gives one command again and again: it starts, goes on, or finds all done."""
        report = self.shared / "first.json"
        self.resume("--report", report)
        self.assert_whole()
        self.assertNotIn("resumed", json.loads(report.read_text()))
        self.resume()
        self.assert_whole()

    def test_a_first_run_leaves_nothing_where_it_cannot_begin(self):
        self.resume("--cpu-memory", "1MiB", status=31)
        self.assertEqual(list(self.folder.iterdir()), [])

    def test_no_resume_refuses_what_a_run_has_left(self):
        self.interrupt()
        before = self.part.read_bytes()
        result = harness.run(BINARY, self.words(self.output, "--no-resume"))
        self.assertEqual(result.status, 52)
        self.assert_refused(result, "E-OUTPUT-EXISTS", "--no-resume")
        self.assertEqual(self.part.read_bytes(), before)
        self.resume()
        result = harness.run(BINARY, self.words(self.output, "--no-resume"))
        self.assertEqual(result.status, 52)
        self.assert_refused(result, "E-OUTPUT-EXISTS", "exists")
        self.assert_whole()

    def test_overwrite_starts_again(self):
        self.interrupt()
        report = self.shared / "anew.json"
        again = harness.run(BINARY, self.words(self.output, "--overwrite", "--report", report))
        self.assertEqual(again.status, 21, again.stderr)
        self.assertNotIn("resumed", json.loads(report.read_text()))
        self.assert_whole()
        again = harness.run(BINARY, self.words(self.output, "--overwrite", "--report", report))
        self.assertEqual(again.status, 21, again.stderr)
        self.assertGreater(json.loads(report.read_text())["workload"]["generated_tokens"], 0)

    def test_what_is_left_of_an_overwriting_run_is_gone_on_with(self):
        harness.run(BINARY, self.words(self.output, "--seed", 5))
        run = self.start("--overwrite")
        while run.poll() is None and text_of(self.part).count("\n") < 4:
            time.sleep(0.002)
        run.kill()
        run.wait(harness.TIMEOUT_S)
        self.resume()
        self.assert_whole()

    def test_without_a_flag_what_is_another_runs_is_an_output_that_exists(self):
        """Exit 52, and with --resume 51; nothing is touched."""
        self.interrupt()
        before = {path.name: path.read_bytes() for path in self.folder.iterdir()}
        other = harness.run(BINARY, self.words(self.output, "--seed", 1))
        self.assertEqual(other.status, 52)
        self.assert_refused(other, "E-OUTPUT-EXISTS", "the interrupted run had another set of sampling flags")
        self.assertEqual({path.name: path.read_bytes() for path in self.folder.iterdir()}, before)
        self.resume()
        other = harness.run(BINARY, self.words(self.output, "--seed", 1))
        self.assertEqual(other.status, 52)
        self.assert_refused(other, "E-OUTPUT-EXISTS", "not known as the output of this run")
        self.assert_whole()
        for name, text in (("out.jsonl", "mine\n"), ("out.jsonl.part", "half mine\n")):
            self.output.unlink(missing_ok=True)
            (self.folder / name).write_text(text)
            other = harness.run(BINARY, self.words(self.output))
            self.assertEqual(other.status, 52, other.stderr)
            self.assertEqual((self.folder / name).read_text(), text)

    def test_an_empty_part_of_a_run_that_never_began_is_no_hindrance(self):
        self.part.touch()
        self.assertEqual(harness.run(BINARY, self.words(self.output)).status, 21)
        self.part.touch()
        self.assertEqual(harness.run(BINARY, self.words(self.output)).status, 21)
        self.assert_whole()

    def test_what_decides_the_output_must_be_the_same(self):
        self.interrupt()
        other = harness.write_jsonl(self.folder / "other.jsonl", RECORDS[:-1])
        cases = [
            (["--input", other], "another input;"),
            (["--seed", "1"], 'another set of sampling flags ({"seed":0}, now {"seed":1})'),
            (["--max-new-tokens", "5", "--stop", "x" * 61], "another set of sampling flags;"),
            (["--kv-policy", "h2o"], 'another KV policy ({"policy":"full"}, now {"policy":"h2o"'),
            (["--kv-dtype", "bf16"], "another KV type (fp16, now bf16)"),
            (["--kv-bits", "8"], "another KV type (fp16, now 8 bits)"),
            (["--kv-bits", "8,4"], "another KV type (fp16, now 8,4 bits)"),
            (["--weight-bits", "8"], "another weight type (16 bits, now 8 bits)"),
            (["--kv-bits", "8", "--weight-bits", "8", "--kv-policy", "window", "--seed", "9"], "weight type"),
        ]
        for flags, words in cases:
            with self.subTest(flags=flags):
                base = self.words(self.output, "--resume")
                if flags[0] == "--input":
                    base[base.index("--input") : base.index("--input") + 2] = flags
                    flags = []
                result = harness.run(BINARY, [*base, *flags])
                self.assertEqual(result.status, 51, result.stderr)
                self.assert_refused(result, "E-RESUME", words)
        self.resume()
        self.assertEqual(self.output.read_bytes(), self.whole)

    def test_an_edited_part_is_refused(self):
        self.interrupt(signal.SIGTERM)
        text = bytearray(self.part.read_bytes())
        text[3] ^= 1
        self.part.write_bytes(text)
        self.assert_refused(self.resume(status=51), "E-RESUME", "are not what the run wrote")
        self.assertEqual(self.part.read_bytes(), text)

    def test_streams_and_contradictions(self):
        for flags, words in [(["--output", "-"], "--resume"), (["--output", "x", "--overwrite"], "--overwrite")]:
            result = harness.run(BINARY, ["generate", "--input", self.source, "--resume", *flags])
            self.assertEqual(result.status, 2)
            self.assert_refused(result, "E-FLAG", words)
        result = harness.run(BINARY, ["generate", "--input", self.source, "--resume", "--output", "/dev/null"])
        self.assertEqual(result.status, 2, result.stderr)


class Inspection(ResumeTest):
    def inspect(self, path):
        result = harness.run(BINARY, ["inspect", path])
        self.assertEqual(result.status, 0, result.stderr)
        return result.stdout.decode()

    def test_a_finished_output_is_counted(self):
        text = self.inspect(self.shared / "whole.jsonl")
        self.assertIn("60 lines: 59 completions, 1 errors", text)
        self.assertIn("error       invalid_value: line 8\n", text)
        usage = [json.loads(line)["response"]["body"]["usage"] for number, line in enumerate(self.whole.splitlines())
                 if number != 7]
        for row, key in ("prompts", "prompt_tokens"), ("new", "completion_tokens"):
            counts = [row[key] for row in usage]
            self.assertIn(f"{row:<11} {sum(counts)} tokens, the longest {max(counts)}\n", text)
        self.assertIn("nothing is left to do", text)

    def test_an_output_without_answers_yet_is_of_no_kind(self):
        part = self.folder / "begun.jsonl.part"
        part.touch()
        self.assertEqual(self.inspect(part).splitlines()[0], "output      0 lines: 0 errors")
        part.with_suffix("").touch()
        part.write_text('{"custom_id":"a","error":{"code":"invalid_value","message":"m"}}\n')
        self.assertEqual(self.inspect(part).splitlines()[0], "output      1 lines: 1 errors")
        self.assertIn("beside it   a run that has not ended", self.inspect(part.with_suffix("")))
        empty = self.folder / "empty.json"
        empty.touch()
        refusal = harness.run(BINARY, ["inspect", empty])
        self.assertEqual(refusal.status, 20)
        self.assertIn(b"empty.json: is empty", refusal.stderr)

    def test_an_interrupted_run_tells_the_command_that_goes_on(self):
        words = self.words(self.output, "--temperature", "0.5", "--stop", "it's $5", "--overwrite")
        run = self.interrupt_when(lambda: self.committed() >= 4, words, signal.SIGTERM)
        self.assertEqual(run.returncode, 75)
        kept = self.kept()
        for path in (self.part, self.journal, self.ahead):
            if not path.exists():
                continue
            text = self.inspect(path)
            self.assertRegex(text, r"committed   the first [1-9][0-9]* lines, ")
            command = text[text.index("next        spillway") + len("next        spillway"):].strip()
            self.assertNotIn("--overwrite", command)
        done = subprocess.run(f"{BINARY} {command} --report {self.shared}/on.json", shell=True, check=False,
                              env=harness.clean_environment(), capture_output=True)
        self.assertEqual(done.returncode, 21, done.stderr)
        resumed = json.loads((self.shared / "on.json").read_text())["resumed"]
        self.assertEqual(resumed["num_completions"] + resumed["num_errors"], len(kept))

    def test_a_run_that_goes_on_is_not_disturbed(self):
        run = self.start()
        while run.poll() is None and len(self.kept()) < 1:
            time.sleep(0.002)
        run.send_signal(signal.SIGSTOP)
        if run.poll() is None and self.part.exists():
            self.assertIn("a run is writing it now", self.inspect(self.part))
        run.send_signal(signal.SIGCONT)
        self.assertEqual(run.wait(harness.TIMEOUT_S), 21)
        self.assert_whole()

    def test_requests_are_counted(self):
        records = [{"prompt": "Höhe"}, {"token_ids": [2, 3, 4]}, {"messages": [{"role": "user", "content": "Hi"}]},
                   {"body": {"prompt": "abc"}, "custom_id": "x"}, {"custom_id": "y"},
                   {"context_token_ids": [2, 3], "continuation_token_ids": [4]}]
        path = harness.write_jsonl(self.folder / "prompts.jsonl", records)
        path.write_text(path.read_text() + "\n{]\n")
        text = self.inspect(path)
        self.assertIn("7 lines: 3 prompts, 1 chats, 1 texts to score", text)
        self.assertIn("characters  9 in all, the longest 4 ", text)
        self.assertIn("token ids   6 in all, the longest 3\n", text)
        self.assertIn("error       invalid_json: line 8\n", text)
        self.assertIn("error       no_prompt: line 5\n", text)
        self.assertIn(f"spillway generate --model DIR --input {path}", text)

    def test_scores_are_counted(self):
        source = harness.write_jsonl(self.folder / "texts.jsonl", [{"text": "Once upon"}, {"text": 5}])
        self.assertIn("2 texts to score", self.inspect(source))
        harness.run(BINARY, ["score", "--input", source, "--output", self.output, "--quiet"])
        self.assertIn("2 lines: 1 scores, 1 errors", self.inspect(self.output))


class Scores(ResumeTest):
    RECORDS = [{"text": f"Once upon a time there were {number} goats"} for number in range(40)] + [{"text": 5}]

    @classmethod
    def words(cls, output, *flags):
        source = harness.write_jsonl(cls.shared / "texts.jsonl", cls.RECORDS)
        return ["score", "--input", source, "--output", output, "--gpu-batch-size", 4, "--num-gpu-batches", 1,
                "--quiet", *flags]

    def test_the_same_command_goes_on_and_finds_all_done(self):
        whole, report = self.folder / "whole.jsonl", self.folder / "report.json"
        result = harness.run(BINARY, self.words(whole, "--report", report))
        self.assertEqual(result.status, 21, result.stderr)
        undisturbed = json.loads(report.read_text())
        for number in (signal.SIGTERM, signal.SIGKILL):
            self.interrupt(number)
            result = harness.run(BINARY, self.words(self.output, "--report", report))
            self.assertEqual(result.status, 21, result.stderr)
            self.assertEqual(self.output.read_bytes(), whole.read_bytes())
            found = json.loads(report.read_text())
            for key in ("num_tokens", "logprob_sum", "perplexity"):
                self.assertEqual(found["score"][key], undisturbed["score"][key])
            self.assertGreaterEqual(found["resumed"]["num_completions"], 1)
            again = harness.run(BINARY, self.words(self.output, "--resume"))
            self.assertEqual(again.status, 21, again.stderr)
            self.output.unlink()

    def test_another_prefill_or_verb_is_refused(self):
        self.interrupt()
        for flags, status in (["--prefill", 2], 52), (["--prefill", 2, "--resume"], 51):
            self.assertEqual(harness.run(BINARY, self.words(self.output, *flags)).status, status)
        words = self.words(self.output)
        words[0] = "generate"
        self.assertEqual(harness.run(BINARY, words).status, 52)


if __name__ == "__main__":
    BINARY = pathlib.Path(sys.argv.pop(1)).resolve()
    unittest.main()
