"""Shards of a job: merged, they are byte for byte the single run's, whatever happens to them on the way.
Standard library only.

  python3 shard_test.py path/to/spillway [unittest arguments]
"""

import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time
import unittest

import harness

BINARY = pathlib.Path()
CLUSTER = harness.REPOSITORY / "examples" / "cluster"
NUM_SHARDS = 8
PROMPTS = [
    {"prompt": f"Once upon a time there were {number} goats", "max_tokens": 4 + 5 * number % 13,
     **({"temperature": 0.8} if number % 2 else {}), **({"custom_id": f"goats-{number}"} if number % 3 else {})}
    for number in range(40)
]
PROMPTS[11] = {"prompt": 5}  # an error line
TEXTS = [{"text": f"There were {number} goats and a troll"} for number in range(20)]


def write_with_blanks(path, records):
    """Numbers of lines are not those of requests."""
    lines = [json.dumps(record) + "\n" for record in records]
    path.write_text("".join([lines[0], "\n", *lines[1:9], " \n", *lines[9:]]), encoding="utf-8")
    return path


def wait_for(done, run):
    while run.poll() is None and not done():
        time.sleep(0.002)


class ShardTest(harness.VerbTest):
    @classmethod
    def setUpClass(cls):
        cls.temporary = tempfile.TemporaryDirectory()
        cls.shared = pathlib.Path(cls.temporary.name)
        cls.prompts = write_with_blanks(cls.shared / "prompts.jsonl", PROMPTS)
        done = harness.run(BINARY, [*cls.words(cls.shared / "whole.jsonl"), "--report", cls.shared / "whole.json"])
        assert done.status == 21, done.stderr
        cls.whole = (cls.shared / "whole.jsonl").read_bytes()

    @classmethod
    def tearDownClass(cls):
        cls.temporary.cleanup()

    @classmethod
    def words(cls, output, *flags):
        return ["generate", "--input", cls.prompts, "--output", output, "--quiet", "--seed", 3, "--gpu-batch-size", 2,
                "--num-gpu-batches", 1, *flags]

    def setUp(self):
        super().setUp()
        self.output = self.folder / "out.jsonl"

    def part(self, shard, count=NUM_SHARDS):
        return self.folder / f"out-{shard:05}-of-{count:05}.jsonl"

    def run_shards(self, count=NUM_SHARDS):
        for shard in range(count):
            result = harness.run(BINARY, self.words(self.output, "--shard", f"{shard}/{count}"))
            self.assertIn(result.status, (0, 21), result.stderr)

    def merge(self, *flags, status=21, shards=None):
        files = sorted(self.folder.glob("out-*.jsonl")) if shards is None else shards
        result = harness.run(BINARY, ["merge", *files, "--output", self.output, *flags])
        self.assertEqual(result.status, status, result.stderr)
        return result.stderr.decode()

    def start(self, words, env=None):
        return self.background([BINARY, *words], env)


class Merging(ShardTest):
    def test_eight_tasks_of_a_slurm_array_two_of_them_killed(self):
        words = self.words(self.output, "--shard", "auto", "--report", self.folder / "out.json")
        for task in range(NUM_SHARDS):
            env = {"SLURM_ARRAY_TASK_ID": str(3 + task), "SLURM_ARRAY_TASK_COUNT": str(NUM_SHARDS),
                   "SLURM_ARRAY_TASK_MIN": "3", "SLURM_ARRAY_TASK_MAX": "10", "SLURM_PROCID": "0", "SLURM_NTASKS": "1"}
            if task in (2, 5):
                run = self.start(words, env)
                part = self.part(task).with_name(self.part(task).name + ".part")
                wait_for(lambda part=part: part.exists() and part.stat().st_size > 0, run)
                run.kill()
                run.wait(harness.TIMEOUT_S)
            result = harness.run(BINARY, words, env=env)
            self.assertIn(result.status, (0, 21), result.stderr)
            self.assertEqual(harness.run(BINARY, words, env=env).status, result.status)  # all done
        report = self.folder / "out.json"
        self.merge("--report", report)
        self.assertEqual(self.output.read_bytes(), self.whole)
        found, single = (json.loads(path.read_text()) for path in (report, self.shared / "whole.json"))
        self.assertEqual(found["fingerprint"], single["fingerprint"])
        for key in ("num_completions", "num_errors", "prompt_tokens", "generated_tokens"):
            self.assertEqual(found["workload"][key], single["workload"][key])
        times = [json.loads(path.read_text())["time_s"]["total"] for path in self.folder.glob("out-*.json")]
        self.assertEqual(len(times), NUM_SHARDS)
        self.assertAlmostEqual(found["time_s"]["total"], sum(times))

    def test_the_input_says_what_is_complete(self):
        self.run_shards(3)
        self.merge("--input", self.prompts)
        self.assertEqual(self.output.read_bytes(), self.whole)
        self.part(1, 3).write_bytes(b"".join(self.part(1, 3).read_bytes().splitlines(keepends=True)[:-1]))
        text = self.merge("--input", self.prompts, "--overwrite", status=20)
        self.assertRegex(text, r"out-00001-of-00003.jsonl: has no answer to line \d+ of the input")
        self.assertEqual(self.output.read_bytes(), self.whole)  # of the merge before
        self.assertFalse(self.output.with_name("out.jsonl.part").exists())
        self.output.unlink()
        self.assertRegex(self.merge(), r"no shard has an answer to \d+ lines? of the input, the first line \d+; ")

    def test_shards_counted_from_one(self):
        for shard in (1, 2):
            harness.run(BINARY, self.words(self.output, "--shard", f"{shard}/2"))
        self.merge()
        self.assertEqual(self.output.read_bytes(), self.whole)

    def test_scores(self):
        texts = write_with_blanks(self.folder / "texts.jsonl", TEXTS)
        words = ["score", "--input", texts, "--quiet", "--output"]
        harness.run(BINARY, [*words, self.folder / "whole"])
        for shard in range(3):
            self.assertEqual(harness.run(BINARY, [*words, self.output, "--shard", f"{shard}/3"]).status, 0)
        self.assertIn("give the job's --input", self.merge(status=20))
        self.merge("--input", texts, status=0)
        self.assertEqual(self.output.read_bytes(), (self.folder / "whole").read_bytes())
        other = write_with_blanks(self.folder / "other.jsonl", [{"custom_id": "x", **text} for text in TEXTS])
        self.assertIn("answers custom_id", self.merge("--input", other, "--overwrite", status=20))

    def test_refusals(self):
        self.run_shards(2)
        files = [self.part(shard, 2) for shard in range(2)]
        self.assertIn("shard 1 of 2 is not among the files", self.merge(shards=files[:1], status=20))
        self.assertIn("shard 0 of 2 is not among the files", self.merge(shards=files[1:], status=20))
        files[0].rename(self.folder / "first.jsonl")
        self.assertIn("00002-of-00002.jsonl: shard 2 of 2 is not among the files", self.merge(shards=files[1:], status=20))
        (self.folder / "first.jsonl").rename(files[0])
        self.assertIn("is the same shard as", self.merge(shards=[*files, files[0]], status=20))
        self.assertIn("is no shard's output", self.merge(shards=[self.shared / "whole.jsonl"], status=20))
        self.assertIn("is of 3 shards", self.merge(shards=[files[0], self.part(0, 3)], status=20))
        self.merge()
        self.assertIn("exists", self.merge(status=52))
        self.merge("--overwrite")
        self.assertEqual(self.output.read_bytes(), self.whole)
        self.output.unlink()
        files[0].write_bytes(files[0].read_bytes()[:-5])
        self.assertIn("ends within a line", self.merge(status=20))
        other = write_with_blanks(self.folder / "other.jsonl", PROMPTS[::-1])
        harness.run(BINARY, ["generate", "--input", other, "--output", self.output, "--quiet", "--shard", "0/2",
                             "--overwrite"])
        self.assertIn("is not of the same input", self.merge(status=20))
        for words in (["--output", files[0], "--overwrite"], ["--output", self.output, "--report", files[1]]):
            done = harness.run(BINARY, ["merge", *files, *words])
            self.assertEqual(done.status, 20, done.stderr)
            self.assertIn(b"is one of the outputs to merge", done.stderr)
        files[0].rename(str(files[0]) + ".part")
        self.assertIn("has not ended; its command goes on", self.merge(status=20))

    def test_ids_are_those_of_the_whole_file(self):
        twice = harness.write_jsonl(self.folder / "twice.jsonl",
                                    [{"prompt": "a", "custom_id": "x"}, {"prompt": "a"}, {"prompt": "a", "custom_id": "x"}])
        words = ["generate", "--input", twice, "--output", self.output, "--quiet", "--shard", "0/2"]
        result = harness.run(BINARY, words)
        self.assertEqual(result.status, 20)
        self.assertIn(b'custom_id "x" is that of lines 1 and 3', result.stderr)


class Stops(ShardTest):
    def test_a_second_task_of_one_shard_is_refused(self):
        """The first has work for minutes, so that it is the one that is stopped, and not its end."""
        source = harness.write_jsonl(self.folder / "in.jsonl", [{"prompt": "Once", "max_tokens": 480}] * 1000)
        words = ["generate", "--input", source, "--output", self.output, "--shard", "1/2", "--ignore-eos",
                 "--allow-duplicate-ids", "--quiet"]
        run = self.start(words)
        journal = self.folder / "out-00001-of-00002.jsonl.journal"
        wait_for(journal.exists, run)
        run.send_signal(signal.SIGSTOP)
        self.assertEqual(harness.run(BINARY, words).status, 50)
        self.assertIsNone(run.poll())

    def test_a_scheduler_chooses_the_exit_status(self):
        for number in (signal.SIGTERM, signal.SIGUSR1):
            run = self.start(self.words(self.output, "--exit-interrupted", 99))
            part = self.folder / "out.jsonl.part"
            wait_for(lambda: part.exists() and part.stat().st_size > 0, run)
            run.send_signal(number)
            status = run.wait(harness.TIMEOUT_S)
            self.assertIn(status, (99, 21))
            self.assertEqual(b"E-INTERRUPTED" in run.stderr.read(), status == 99)
            for path in self.folder.glob("out.jsonl*"):
                path.unlink()
        self.assertEqual(harness.run(BINARY, self.words(self.output)).status, 21)
        self.assertEqual(self.output.read_bytes(), self.whole)

    def test_grace_lets_the_block_end_and_begins_no_other(self):
        """One block of two rows has answers of 60 tokens; with a grace the signal waits for both."""
        source = harness.write_jsonl(self.folder / "in.jsonl", [{"prompt": "Once", "max_tokens": 60}] * 32)
        words = ["generate", "--input", source, "--output", self.output, "--gpu-batch-size", 2, "--num-gpu-batches", 1,
                 "--ignore-eos", "--allow-duplicate-ids", "--quiet"]
        run = self.start([*words, "--grace", 120])
        journal = self.folder / "out.jsonl.journal"
        wait_for(lambda: journal.exists() and journal.stat().st_size > 0, run)
        run.send_signal(signal.SIGUSR1)
        self.assertEqual(run.wait(harness.TIMEOUT_S), 75)
        lines = (self.folder / "out.jsonl.part").read_bytes().count(b"\n")
        self.assertEqual(lines % 2, 0)  # whole blocks
        self.assertLess(lines, 32)
        self.assertEqual(harness.run(BINARY, words).status, 0)
        self.assertEqual(len(harness.read_jsonl(self.output)), 32)

    def test_a_grace_that_is_too_short_is_kept(self):
        source = harness.write_jsonl(self.folder / "in.jsonl", [{"prompt": "Once", "max_tokens": 480}] * 64)
        words = ["generate", "--input", source, "--output", self.output, "--ignore-eos", "--allow-duplicate-ids", "--quiet"]
        run = self.start([*words, "--grace", 1])
        journal = self.folder / "out.jsonl.journal"
        wait_for(lambda: journal.exists() and journal.stat().st_size > 0, run)
        began = time.monotonic()
        run.send_signal(signal.SIGTERM)
        self.assertEqual(run.wait(harness.TIMEOUT_S), 75)
        self.assertLess(time.monotonic() - began, 6 * harness.SLOWDOWN)


class ClusterExamples(ShardTest):
    """Files that users start from, run with the variables that their schedulers set."""

    def setUp(self):
        super().setUp()
        self.tools = self.folder / "tools"
        self.tools.mkdir()
        (self.tools / "spillway").symlink_to(BINARY)
        self.output = self.folder / "answers.jsonl"
        (self.folder / "model").symlink_to(harness.BUNDLED_MODEL)
        (self.folder / "prompts.jsonl").write_bytes(self.prompts.read_bytes())
        done = harness.run(BINARY, ["generate", "--model", self.folder / "model", "--input", self.prompts, "--output",
                                    self.folder / "single", "--quiet"])
        self.assertEqual(done.status, 21, done.stderr)

    def tool(self, name, text):
        path = self.tools / name
        path.write_text(text)
        path.chmod(0o755)

    def run_script(self, words, env):
        paths = {"DATA": str(self.folder), "MODEL": str(self.folder / "model"), "INPUT": str(self.prompts),
                 "OUTPUT": str(self.output), "PATH": f"{self.tools}:{os.environ['PATH']}"}
        return subprocess.run(words, env=harness.clean_environment(paths | env), capture_output=True, check=False,
                              timeout=harness.TIMEOUT_S)

    def assert_merged(self, count):
        if not self.output.exists():
            done = harness.run(BINARY, ["merge", *self.folder.glob(f"answers-*-of-{count:05}.jsonl"), "--output",
                                        self.output])
            self.assertEqual(done.status, 21, done.stderr)
        self.assertEqual(self.output.read_bytes(), (self.folder / "single").read_bytes())

    @staticmethod
    def block_of(path, key):
        """Lines of the YAML block that `key: |` opens."""
        lines = path.read_text().splitlines()
        at = next(index for index, line in enumerate(lines) if re.fullmatch(rf"\s*{key} \|", line))
        indent = re.match(r"\s*", lines[at + 1]).group()
        block = []
        for line in lines[at + 1:]:
            if not line.startswith(indent):
                break
            block.append(line[len(indent):])
        return "\n".join(block)

    def test_slurm(self):
        self.tool("scontrol", f"#!/bin/sh\necho \"$@\" >> {self.folder}/requeued\n")
        script = CLUSTER / "slurm.sh"
        self.assertIn("--array=0-31", script.read_text())
        for task in range(4):
            done = self.run_script(["bash", script], {
                "SLURM_ARRAY_TASK_ID": str(task), "SLURM_ARRAY_TASK_COUNT": "4", "SLURM_ARRAY_TASK_MIN": "0",
                "SLURM_ARRAY_JOB_ID": "77"})
            self.assertEqual(done.returncode, 0, done.stderr)
        self.assertFalse((self.folder / "requeued").exists())
        self.assert_merged(4)

    def test_slurm_requeues_what_is_interrupted(self):
        self.tool("scontrol", f"#!/bin/sh\necho \"$@\" >> {self.folder}/requeued\n")
        self.tool("faked", "#!/bin/sh\ntrap 'exit 75' USR1\nsleep 1\nkill -USR1 $PPID\n"
                           "for _ in $(seq 400); do sleep 0.05; done\n")
        (self.tools / "spillway").unlink()
        (self.tools / "faked").rename(self.tools / "spillway")
        done = self.run_script(["bash", CLUSTER / "slurm.sh"], {"SLURM_ARRAY_TASK_ID": "5", "SLURM_ARRAY_JOB_ID": "77"})
        self.assertEqual(done.returncode, 75, done.stderr)
        self.assertEqual((self.folder / "requeued").read_text(), "requeue 77_5\n")

    def test_kubernetes(self):
        script = self.block_of(CLUSTER / "kubernetes.yaml", "-")
        for index in range(8):
            done = self.run_script(["/bin/sh", "-c", script], {"JOB_COMPLETION_INDEX": str(index)})
            self.assertEqual(done.returncode, 0, done.stderr)
        self.assert_merged(8)

    def test_htcondor(self):
        text = (CLUSTER / "htcondor.sub").read_text()
        arguments = re.search(r"^arguments = (.*)$", text, re.MULTILINE).group(1)
        for process in range(8):
            words = arguments.replace("$(data)", str(self.folder)).replace("$(Process)", str(process))
            done = self.run_script([BINARY, *words.replace("$(shards)", "8").split()], {})
            self.assertIn(done.returncode, (0, 21), done.stderr)
        self.assert_merged(8)

    def test_skypilot(self):
        script = self.block_of(CLUSTER / "skypilot.yaml", "run:")
        for rank in range(4):
            env = {"SKYPILOT_NODE_RANK": str(rank), "SKYPILOT_NUM_NODES": "4"}
            done = self.run_script(["bash", "-c", script], env)
            self.assertEqual(done.returncode, 0, done.stderr)
        self.assert_merged(4)

    def test_gnu_parallel(self):
        # In its place: the words after the flags up to ":::", once for each value behind it.
        self.tool("parallel", f"#!{sys.executable}\nimport subprocess, sys\nwords = sys.argv[1:]\n"
                              "at = words.index(':::')\nbegin = words.index('spillway')\n"
                              "for value in words[at + 1:]:\n"
                              "    subprocess.run([word.replace('{}', value) for word in words[begin:at]])\n")
        done = self.run_script(["bash", CLUSTER / "parallel.sh"], {})
        self.assertEqual(done.returncode, 21, done.stderr)
        self.assert_merged(8)

    def test_exit_codes_of_the_examples_are_those_of_the_table(self):
        table = (harness.REPOSITORY / "docs" / "cluster.md").read_text()
        never = sorted(int(code) for code in re.search(r"\| never \| ([0-9, ]+) \|", table).group(1).split(","))
        for name, form in (("kubernetes.yaml", r"action: FailJob.*?values: \[([0-9, ]+)\]"),
                           ("htcondor.sub", r"on_exit_hold = .*?\{([0-9, ]+)\}")):
            text = (CLUSTER / name).read_text()
            found = re.search(form, text, re.DOTALL).group(1)
            self.assertEqual(sorted(int(code) for code in found.split(",")), never, name)


if __name__ == "__main__":
    BINARY = pathlib.Path(sys.argv.pop(1)).resolve()
    unittest.main()
