"""Engine of the Python package with the bundled model: forms of requests, order, laziness, errors, the program's life.
Standard library only.

  python3 engine_test.py path/to/spillway [unittest arguments]
"""

import json
import os
import pathlib
import pickle
import subprocess
import sys
import tempfile
import threading
import time
import unittest

import package

package.take_binary()

from spillway import Engine, RequestError, SpillwayError  # noqa: E402  # the path is set first

TALES = ["Once upon a time", "The king", "A"]


def is_running(process_id):
    try:
        return "Z" not in pathlib.Path(f"/proc/{process_id}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except OSError:
        return False


class EngineTest(unittest.TestCase):
    def engine(self, *model, **flags):
        engine = Engine(*model, **{"max_new_tokens": 4, **flags})
        self.addCleanup(engine.close)
        return engine

    def run_file(self, verb, records, *words):
        """The lines that a run of a file of these gives."""
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "in.jsonl"
            path.write_text("".join(json.dumps(record) + "\n" for record in records))
            done = subprocess.run([os.environ["SPILLWAY_BINARY"], verb, "--input", path, "--quiet", *words],
                                  capture_output=True, check=True)
        return [json.loads(line) for line in done.stdout.splitlines()]

    def test_answers_are_those_of_a_plain_run_in_order(self):
        prompts = [{"prompt": text, "max_tokens": 3 + index} for index, text in enumerate(TALES * 5)]
        wanted = [line["response"]["body"]["choices"][0]["text"]
                  for line in self.run_file("generate", prompts, "--temperature", "0.7", "--seed", "5")]
        answers = list(self.engine(temperature=0.7, seed=5).generate(prompts))
        self.assertEqual([answer.text for answer in answers], wanted)
        self.assertEqual([len(answer.token_ids) for answer in answers], [prompt["max_tokens"] for prompt in prompts])

    def test_scores_are_those_of_a_plain_run(self):
        texts = [{"text": text + " there was"} for text in TALES] + [{"context": "The king's ", "continuation": "son"}]
        wanted = self.run_file("score", texts)
        with self.engine() as engine:
            scores = list(engine.score([*(text["text"] for text in texts[:3]), ("The king's ", "son")]))
        self.assertEqual([score.token_logprobs for score in scores], [line["token_logprobs"] for line in wanted])
        self.assertEqual([score.logprob_sum for score in scores], [line["logprob_sum"] for line in wanted])
        self.assertEqual([score.greedy_match for score in scores], [line["greedy_match"] for line in wanted])

    def test_forms_of_requests(self):
        engine = self.engine(stop=["zz", "q"], percent=[0, 100, 0, 100, 0, 100], overlap=False)
        body = {"custom_id": "mine", "method": "POST", "url": "/v1/completions", "body": {"prompt": "A", "max_tokens": 1}}
        text, ids, line, whole = engine.generate(["A", (2, 37), {"prompt": "A", "max_tokens": 2}, body], max_tokens=3)
        self.assertEqual((text.prompt_tokens, ids.prompt_tokens), (2, 2))
        self.assertEqual([len(one.token_ids) for one in (text, ids, line, whole)], [3, 3, 2, 1])
        self.assertEqual(text.finish_reason, "length")
        pair, ids = engine.score([([2, 5], [6, 7]), [2, 5, 6]])
        self.assertEqual((pair.num_tokens, ids.num_tokens, ids.token_logprobs[0]), (2, 2, None))
        message = [{"role": "user", "content": "Hi"}]
        template = "{% for message in messages %}{{ message.content }}{% endfor %}"
        with tempfile.NamedTemporaryFile("w", suffix=".jinja") as file:
            file.write(template)
            file.flush()
            answer, = self.engine(chat_template=file.name).generate([message])
        self.assertEqual(answer.body["object"], "chat.completion")

    def test_one_call_is_one_batch_and_the_model_stays(self):
        engine = self.engine()
        for _ in range(2):
            self.assertEqual(len(list(engine.generate(TALES * 10))), 30)
        engine.close()
        self.assertIn("stream: 62 lines, 60 answers, 0 errors; 2 batches, 2 blocks, 8 passes", engine.summaries[-1])

    def test_lazy_iterables_and_early_ends(self):
        engine = self.engine(pause_ms=50)
        asked = threading.Event()

        def prompts():
            yield "A"
            self.assertTrue(asked.wait(60))  # the first answer comes before there is a second prompt
            yield "B"

        answers = engine.generate(prompts())
        next(answers)
        asked.set()
        next(answers)
        endless = engine.generate("A" for _ in iter(int, 1))
        next(endless)
        endless.close()
        with self.assertRaisesRegex(ZeroDivisionError, "division"):
            list(engine.generate(1 // 0 for _ in "A"))
        engine = self.engine()
        self.assertEqual(list(engine.generate([])), [])

    def test_a_request_that_cannot_run(self):
        engine = self.engine()
        prompts = ["A", {"prompt": 3}, "B", {"prompt": "A", "max_token": 2}]
        first, fault, last, misspelt = engine.generate(prompts, on_error="return")
        self.assertEqual((len(first.token_ids), len(last.token_ids)), (4, 4))
        self.assertIsInstance(fault, RequestError)
        self.assertEqual((fault.index, fault.code), (1, "invalid_value"))
        self.assertIn("did you mean \"max_tokens\"", str(misspelt))
        with self.assertRaises(RequestError) as raised:
            list(engine.generate(prompts))
        self.assertEqual(pickle.loads(pickle.dumps(raised.exception)).index, 1)
        self.assertEqual(len(list(engine.generate(["A"]))), 1)  # the engine goes on
        with self.assertRaisesRegex(ValueError, "on_error='skip'"):
            engine.generate([], on_error="skip")

    def test_the_program_s_errors(self):
        for engine, code, status, text in [
                (self.engine("/no/such/model"), "E-MODEL-MISSING", 12, "/no/such/model: No such file"),
                (self.engine(kv_polcy="h2o"), "E-FLAG", 2, "did you mean --kv-policy?"),
                (self.engine(cpu_memory="1MiB"), "E-CPU-MEMORY", 31, "of CPU memory")]:
            with self.assertRaises(SpillwayError) as raised:
                list(engine.generate(["A"]))
            self.assertEqual((raised.exception.code, raised.exception.exit_status), (code, status))
            self.assertIn(text, raised.exception.message)
            self.assertEqual(pickle.loads(pickle.dumps(raised.exception)).exit_status, status)
        with self.assertRaisesRegex(FileNotFoundError, "no-such-program"):
            list(Engine(binary="no-such-program").generate(["A"]))

    def test_a_program_that_is_killed_is_an_error_and_starts_again(self):
        engine = self.engine(max_new_tokens=2000, ignore_eos=True)
        answers = engine.generate(["A"] * 64)
        threading.Timer(0.5, lambda: engine._worker._process.kill()).start()
        with self.assertRaises(SpillwayError) as raised:
            list(answers)
        self.assertEqual(raised.exception.exit_status, -9)
        self.assertEqual(len(list(engine.generate(["A"], max_tokens=1))), 1)

    def test_the_program_ends_with_its_engine(self):
        engine = self.engine()
        list(engine.generate(["A"]))
        first = engine._worker._process.pid
        list(engine.score(["A king"]))  # another verb: the model is loaded once at a time
        second = engine._worker._process.pid
        self.assertFalse(is_running(first))
        engine.close()
        self.assertFalse(is_running(second))
        engine = self.engine(max_new_tokens=2000, ignore_eos=True)
        answers = engine.generate(["A"] * 1000)
        threading.Timer(0.5, engine.close).start()
        with self.assertRaisesRegex(SpillwayError, "the engine is closed"):
            list(answers)
        forgotten = Engine()
        list(forgotten.generate(["A"], max_tokens=1))
        process = forgotten._worker._process
        del forgotten
        process.wait(60)

    def test_it_can_be_pickled_and_asked_from_threads(self):
        engine = pickle.loads(pickle.dumps(self.engine(max_new_tokens=3)))
        self.addCleanup(engine.close)
        lengths = {}

        def ask(index):
            lengths[index] = [len(answer.token_ids) for answer in engine.generate(["A"] * 20, max_tokens=index)]

        threads = [threading.Thread(target=ask, args=(index,)) for index in (1, 2, 3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(lengths, {index: [index] * 20 for index in (1, 2, 3)})

    def test_the_command(self):
        done = subprocess.run([sys.executable, "-m", "spillway", "--version"], capture_output=True, check=True)
        self.assertTrue(done.stdout.startswith(b"spillway "), done.stdout)


if __name__ == "__main__":
    package.main()
