"""`spillway generate --stream` and `score --stream` as another program meets them: answers as they come, a plain run's
bytes, batches at pauses and flushes, a slow reader, one that leaves, signals, and what is refused. Standard library only.

  python3 stream_test.py path/to/spillway [unittest arguments]
"""

import json
import pathlib
import re
import select
import signal
import subprocess
import sys
import time
import unittest

import harness

BINARY = pathlib.Path()
FLUSH = {"flush": True}
LONG_PAUSE = ["--pause-ms", 600000]
PROMPTS = [
    {"prompt": "Once upon a time", "max_tokens": 9},
    {"prompt": "The king", "max_tokens": 12, "temperature": 0.8, "custom_id": "drawn"},
    FLUSH,
    {"prompt": "A" * 300, "max_tokens": 5, "temperature": 1.0, "seed": 7},
    {"prompt": "x", "top_p": 5},
    {"token_ids": [2, 15, 300], "max_tokens": 12, "logprobs": 2},
    FLUSH,
    {"prompt": "There was a miller who had three sons", "max_tokens": 14, "stop": ["."]},
]
TEXTS = [
    {"text": "Once upon a time there was a king.", "custom_id": "text"},
    {"context": "The king's ", "continuation": "daughter"},
    FLUSH,
    {"token_ids": [2]},
    {"token_ids": [2, 15, 300, 301]},
]
PLACEMENTS = [
    [],
    ["--percent", 0, 0, 0, 0, 0, 0, "--gpu-batch-size", 2],
    ["--percent", 0, 40, 0, 50, 0, 50, "--num-gpu-batches", 2],
    ["--percent", 50, 50, 50, 50, 50, 50, "--emulate-gpu", "256MiB"],
    ["--kv-policy", "h2o", "--kv-budget", 16, "--percent", 0, 0, 0, 0, 0, 0],
]


def without_ids(line):
    """The answer without what is made from the input as a whole, which a stream does not have."""
    return re.sub(r'"(id|request_id)":"(batch_req|req|cmpl)_?-?[0-9a-f]{16}_', r'"\1":"', line)


class Worker:
    """A stream that runs, with pipes on all sides."""

    def __init__(self, folder, verb, *words):
        self.process = subprocess.Popen(
            [str(BINARY), verb, "--stream", "--offload-dir", str(folder), *map(str, words)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=harness.clean_environment())

    def write(self, *records):
        self.process.stdin.write("".join(json.dumps(record) + "\n" for record in records).encode())
        self.process.stdin.flush()

    def read(self):
        return json.loads(self.process.stdout.readline())

    def close(self):
        """Ends the input; the exit status, the rest of the answers, and stderr."""
        stdout, stderr = self.process.communicate(timeout=harness.TIMEOUT_S)
        return self.process.returncode, stdout.decode().splitlines(), stderr.decode()

    def stop(self, with_signal=signal.SIGTERM):
        self.process.send_signal(with_signal)
        return self.process.wait(timeout=harness.TIMEOUT_S)


class StreamTest(harness.VerbTest):
    def setUp(self):
        super().setUp()
        self.binary = BINARY

    def start(self, verb, *words):
        worker = Worker(self.folder, verb, *words)
        self.addCleanup(worker.process.communicate)
        self.addCleanup(worker.process.kill)
        return worker

    def check_same_as_a_file(self, verb, records, words):
        """A stream's answers are those of a file with the same lines, but for their order."""
        harness.write_jsonl(self.folder / "in.jsonl", [{} if record == FLUSH else record for record in records])
        self.run_verb(verb, "--input", "in.jsonl", "--output", "out.jsonl", "--overwrite", "--quiet", "--offload-dir",
                      self.folder, *words, status=21)
        wanted = [without_ids(line) for line in (self.folder / "out.jsonl").read_text().splitlines()]
        flushes = [str(place + 1) for place, record in enumerate(records) if record == FLUSH]
        wanted = [line for line in wanted if json.loads(line)["custom_id"] not in flushes]
        worker = self.start(verb, *LONG_PAUSE, *words)
        worker.write(*records)
        status, lines, _ = worker.close()
        self.assertEqual(status, 21 if verb == "generate" else 0)
        self.assertEqual(sorted(map(without_ids, lines)), sorted(wanted))

    def test_answers_are_those_of_a_plain_run(self):
        for words in PLACEMENTS:
            with self.subTest(words):
                self.check_same_as_a_file("generate", PROMPTS, ["--temperature", 0.5, "--seed", 3, *words])

    def test_scores_are_those_of_a_plain_run(self):
        for words in PLACEMENTS[:3]:
            with self.subTest(words):
                self.check_same_as_a_file("score", TEXTS, words)

    def test_a_pause_and_a_flush_begin_a_batch(self):
        worker = self.start("generate", "--max-new-tokens", 3)
        for prompt in "AB":
            worker.write({"prompt": prompt, "custom_id": prompt})
            self.assertEqual(worker.read()["custom_id"], prompt)
        status, lines, stderr = worker.close()
        self.assertEqual((status, lines), (0, []))
        self.assertIn("stream: 2 lines, 2 answers, 0 errors; 2 batches, 2 blocks, 6 passes", stderr)
        worker = self.start("generate", "--max-new-tokens", 3, *LONG_PAUSE)
        worker.write({"prompt": "A"}, {"prompt": "B"}, FLUSH, FLUSH, {"prompt": "C"})
        self.assertEqual({worker.read()["custom_id"] for _ in "AB"}, {"1", "2"})
        self.assertEqual(select.select([worker.process.stdout], [], [], 0.3)[0], [])
        status, lines, stderr = worker.close()
        self.assertEqual([json.loads(line)["custom_id"] for line in lines], ["5"])
        self.assertIn("; 2 batches, 2 blocks, 6 passes;", stderr)

    def test_many_lines_take_few_passes(self):
        worker = self.start("score", *LONG_PAUSE, "--percent", 0, 0, 0, 100, 0, 100)
        worker.write(*({"text": f"The king had {count} sons.", "custom_id": str(count)} for count in range(1000)))
        status, lines, stderr = worker.close()
        self.assertEqual((status, len(lines)), (0, 1000))
        self.assertIn("; 1 batches, 2 blocks, ", stderr)

    def test_input_without_an_end_or_without_lines(self):
        worker = self.start("generate", "--max-new-tokens", 2)
        worker.process.stdin.write(b'\xef\xbb\xbf{"prompt":"A"}\r\n\n  \n{"prompt":"B"}')
        status, lines, _ = worker.close()
        self.assertEqual((status, sorted(json.loads(line)["custom_id"] for line in lines)), (0, ["1", "4"]))
        status, lines, stderr = self.start("generate").close()
        self.assertEqual((status, lines), (0, []))
        self.assertIn("stream: 0 lines, 0 answers, 0 errors; 0 batches", stderr)

    def test_a_line_too_long_fails_alone(self):
        worker = self.start("generate", "--max-new-tokens", 2)
        worker.process.stdin.write(b'{"prompt":"' + b"a" * (17 << 20) + b'"}\n{"prompt":"B"}\n')
        status, lines, _ = worker.close()
        self.assertEqual((status, len(lines)), (21, 2))
        self.assertEqual(json.loads(lines[0])["error"]["code"], "line_too_long")

    def test_keys_are_warned_of_once(self):
        worker = self.start("generate", "--max-new-tokens", 2, *LONG_PAUSE)
        worker.write({"prompt": "A", "colour": 1}, FLUSH, {"prompt": "B", "colour": 2})
        self.assertEqual(worker.close()[2].count('"colour"'), 1)

    def test_rows_too_long_for_memory_fail_alone(self):
        """Memory is laid out for the first batch; a later row that it cannot hold is an error of its line."""
        worker = self.start("generate", *LONG_PAUSE, "--cpu-memory", "26MiB", "--percent", 0, 100, 0, 100, 0, 100)
        worker.write({"prompt": "A", "max_tokens": 4}, FLUSH, {"token_ids": [2] * 1900, "max_tokens": 100},
                     {"prompt": "B", "max_tokens": 4}, FLUSH, {"token_ids": [2] * 1900, "max_tokens": 100})
        status, lines, _ = worker.close()
        answers = {line["custom_id"]: line for line in map(json.loads, lines)}
        self.assertEqual((status, sorted(answers)), (21, ["1", "3", "4", "6"]))
        for line in "36":
            self.assertEqual(answers[line]["error"]["code"], "E-CPU-MEMORY")
            self.assertIn(f"line {line}: a row of 2000 tokens needs ", answers[line]["error"]["message"])
        harness.choice(answers["1"])
        harness.choice(answers["4"])

    def test_a_model_too_large_is_refused_once(self):
        worker = self.start("generate", "--cpu-memory", "4MiB", "--percent", 0, 100, 0, 100, 0, 100)
        worker.write({"prompt": "A"})
        status, lines, stderr = worker.close()
        self.assertEqual((status, lines), (31, []))
        self.assertEqual(len(stderr.splitlines()), 1, stderr)

    def test_a_writer_that_reads_late_is_not_held_up(self):
        """Lines are read while a block computes and while answers wait for their reader."""
        worker = self.start("generate", "--ignore-eos", "--max-new-tokens", 16, "--logprobs", 20, "--pause-ms", 0)
        num_lines = 60  # lines of 1.2 MB and answers of 200 KB: more than the pipes hold
        worker.write(*({"prompt": "A", "note": "b" * 20000, "custom_id": str(line)} for line in range(num_lines)))
        time.sleep(0.5)
        status, lines, _ = worker.close()
        self.assertEqual(status, 0)
        self.assertEqual({json.loads(line)["custom_id"] for line in lines}, {str(line) for line in range(num_lines)})
        self.assertGreater(sum(map(len, lines)), 200_000)

    def test_a_reader_that_leaves_ends_it(self):
        worker = self.start("generate", "--max-new-tokens", 2)
        worker.process.stdout.close()
        worker.write({"prompt": "A"})
        self.assertEqual(worker.process.wait(timeout=harness.TIMEOUT_S), 40)
        stderr = worker.process.stderr.read().decode()
        self.assertIn("standard output: cannot be written: Broken pipe; the reader of the output went away", stderr)
        worker.process.stdout = None

    def test_a_signal_ends_it_idle_and_blocked(self):
        worker = self.start("generate", "--max-new-tokens", 2, "--exit-interrupted", 9)
        worker.write({"prompt": "A"})
        worker.read()
        self.assertEqual(worker.stop(), 9)
        self.assertIn(b"stopped by a signal; 1 answer went out, the other lines have none",
                      worker.process.stderr.read())
        worker = self.start("generate", "--max-new-tokens", 2, *LONG_PAUSE)
        worker.write(*({"prompt": "A", "logprobs": 20} for _ in range(400)), FLUSH)
        select.select([worker.process.stdout], [], [])
        time.sleep(0.5)  # the pipe is full by now
        self.assertEqual(worker.stop(), 75)

    def test_what_makes_no_sense_is_refused(self):
        for verb, words, reason in [
                ("generate", ["--input", "in.jsonl"], "--stream: reads standard input"),
                ("generate", ["--output", "out.jsonl"], "--stream: writes to standard output"),
                ("generate", ["--resume"], "--resume with --stream: a stream keeps nothing"),
                ("generate", ["--no-resume"], "--no-resume with --stream: a stream keeps nothing"),
                ("score", ["--overwrite"], "--overwrite with --stream: a stream keeps nothing"),
                ("score", ["--shard", "0/2"], "--shard with --stream: whoever writes to a stream"),
                ("generate", ["--report", "r.json"], "--report with --stream: tells of one plan"),
                ("generate", ["--trace", "t.json"], "--trace with --stream: tells of one plan"),
                ("score", ["--perplexity", "t.txt"], "--perplexity with --stream: is of one text"),
                ("score", ["--pause-ms", -1], "--pause-ms -1")]:
            with self.subTest(words):
                self.assertIn(reason, self.refusal(2, verb, "--stream", *words))
        self.assertIn("--pause-ms: belongs to --stream", self.refusal(2, "generate", "--input", "-", "--pause-ms", 5))


if __name__ == "__main__":
    BINARY = pathlib.Path(sys.argv[1]).resolve()
    unittest.main(argv=sys.argv[:1] + sys.argv[2:])
