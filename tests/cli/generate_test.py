"""`spillway generate` as a user meets it: the forms of input and output, defaults, precedence, report.
Standard library only.

  python3 generate_test.py path/to/spillway [unittest arguments]
"""

import json
import os
import shutil
import pathlib
import subprocess
import sys
import threading
import time
import unittest

import harness
from generate_case import GenerateTest

GOLDEN = harness.REPOSITORY / "tests" / "parity" / "golden" / "tales-opt-8m.json"
PROMPTS = ["Once upon a time", "The king said to his daughter, \"", "a", "First line.\nSecond line."]

REPORT_KEYS = {
    "version": None,
    "model": ["name", "num_parameters", "weight_bytes"],
    "policy": [],
    "machine": [],
    "workload": ["num_requests", "prompt_tokens", "generated_tokens"],
    "time_s": ["load", "prefill", "decode", "total"],
    "throughput": ["prefill_tokens_per_s", "decode_tokens_per_s", "generated_tokens_per_s"],
    "tiers": ["gpu", "cpu", "disk"],
    "placement": ["weights", "kv", "activations"],
    "links": ["disk_read", "disk_write", "cpu_to_gpu", "gpu_to_cpu"],
    "kv": ["policy", "heavy", "recent", "slots_per_row", "bytes"],
    "block": ["gpu_batch_size", "num_gpu_batches", "num_blocks", "passes"],
    "predicted": ["prefill_s", "decode_s", "generated_tokens_per_s", "bound_by"],
    "fingerprint": None,
}


class Forms(GenerateTest):
    def test_an_input_is_enough(self):
        source = self.write([{"prompt": prompt} for prompt in PROMPTS])
        result = harness.run(self.binary, ["generate", source], cwd=self.folder)
        self.assertEqual(result.status, 0, result.stderr)
        lines = [json.loads(line) for line in result.stdout.splitlines()]
        self.assertEqual(len(lines), len(PROMPTS))
        self.assertEqual({line["response"]["body"]["model"] for line in lines}, {"tales-opt-8m"})
        self.assertEqual({len(harness.choice(line)["token_ids"]) for line in lines}, {64})

    def test_a_pipe_is_read_once(self):
        """Named pipes and /dev/stdin are staged like "-": the scan and the run see the same bytes."""
        pipe = self.folder / "pipe.jsonl"
        os.mkfifo(pipe)
        records = [{"prompt": "Once", "max_tokens": 3}, {"prompt": "The king", "max_tokens": 3}]
        writer = threading.Thread(target=harness.write_jsonl, args=(pipe, records))
        writer.start()
        self.generate(pipe, "--quiet")
        writer.join()
        self.assertEqual(len(harness.read_jsonl(self.output)), 2)

    def test_a_stop_ends_the_wait_for_a_pipes_other_end(self):
        pipe = self.folder / "pipe"
        os.mkfifo(pipe)
        source = self.write([{"prompt": "Once", "max_tokens": 3}])
        for words in (["--input", source, "--output", pipe], ["--input", pipe, "--output", self.output],
                      ["--input", source, "--output", self.output, "--report", pipe]):
            with self.subTest(words=words):
                process = self.background([self.binary, "generate", *words, "--quiet", "--grace", "60"])
                waits_in = pathlib.Path(f"/proc/{process.pid}/wchan")
                latest = time.monotonic() + 5  # where the kernel does not tell
                while waits_in.read_text() != "wait_for_partner" and time.monotonic() < latest:
                    time.sleep(0.01)
                process.terminate()
                _, stderr = process.communicate(timeout=harness.TIMEOUT_S)
                self.assertEqual(process.returncode, 75, stderr)

    def test_runs_that_need_the_same_store_make_it_once(self):
        """X3: one converts, the others wait for it."""
        source = self.write([{"prompt": "Once upon a time", "max_tokens": 4}])
        words = ["generate", "--input", source, "--offload-dir", self.folder, "--percent", *[0] * 6, "--quiet"]
        outputs = [self.folder / f"out{number}.jsonl" for number in range(3)]
        runs = [self.background([self.binary, *words, "--output", output]) for output in outputs]
        for run in runs:
            _, stderr = run.communicate(timeout=harness.TIMEOUT_S)
            self.assertEqual(run.returncode, 0, stderr)
        self.assertEqual(len({output.read_bytes() for output in outputs}), 1)
        self.assertEqual(len(list(self.folder.glob("*.store*"))), 1)

    def test_input_that_grows_during_the_run_ends_it(self):
        """A line that the plan does not hold must not get near the KV of others: exit 51, finished lines stay."""
        source = self.write([{"prompt": "Once upon a time", "max_tokens": 2, "ignore_eos": True}] * 1000)
        words = ["generate", "--input", source, "--output", self.output, "--quiet", "--gpu-batch-size", "1"]
        process = self.background([self.binary, *words])
        part = self.folder / "out.jsonl.part"
        while process.poll() is None and not (part.exists() and part.stat().st_size > 0):
            time.sleep(0.01)
        with open(source, "a", encoding="utf-8") as grown:
            grown.write(3 * (json.dumps({"token_ids": [2] + [5] * 1900, "max_tokens": 100}) + "\n"))
        _, stderr = process.communicate(timeout=harness.TIMEOUT_S)
        self.assertEqual(process.returncode, 51, stderr)
        self.assertEqual(part.read_bytes().count(b"\n"), 1000)

    def test_a_line_that_changes_during_the_run_is_not_answered(self):
        """J16: the run stops before the line, and goes on once it is what it was."""
        records = [{"prompt": f"Once upon a time {number:04d}", "max_tokens": 2, "ignore_eos": True, "user": "x" * 400}
                   for number in range(1000)]
        source = self.write(records)  # more than is read ahead
        words = ["generate", "--input", source, "--output", self.output, "--quiet", "--gpu-batch-size", "1"]
        before = source.read_bytes()
        process = self.background([self.binary, *words])
        part = self.folder / "out.jsonl.part"
        while process.poll() is None and not (part.exists() and part.stat().st_size > 0):
            time.sleep(0.01)
        source.write_bytes(before.replace(b"time 0949", b"place 949"))
        _, stderr = process.communicate(timeout=harness.TIMEOUT_S)
        self.assertEqual(process.returncode, 51, stderr)
        self.assertIn(b"line 950 of ", stderr)
        self.assertRegex(stderr, rb" is not what it was when the run began; put it back; 94\d finished lines are in ")
        source.write_bytes(before)
        self.assertEqual(harness.run(self.binary, words).status, 0)
        answers = self.output.read_bytes()
        self.output.unlink()
        self.assertEqual(harness.run(self.binary, words).status, 0)
        self.assertEqual(answers, self.output.read_bytes())

    def test_one_store_serves_folders_of_two_names(self):
        source = self.write([{"prompt": "Once upon a time", "max_tokens": 4}])
        for name in ("alpha", "beta", "alpha"):
            folder = self.folder / name
            if not folder.exists():
                shutil.copytree(harness.BUNDLED_MODEL, folder)
            words = ["generate", "--model", folder, "--input", source, "--output", self.output, "--overwrite", "--quiet",
                     "--offload-dir", self.folder, "--percent", *[0] * 6]
            done = harness.run(self.binary, words)
            self.assertEqual(done.status, 0, done.stderr)
        self.assertEqual(len(list(self.folder.glob("*.store"))), 1)

    def test_of_two_that_start_at_once_one_is_told_of_the_other(self):
        source = self.write([{"prompt": "Once upon a time", "max_tokens": 4}])
        for number in range(8):
            output = self.folder / f"out{number}.jsonl"
            words = ["generate", "--input", source, "--output", output, "--quiet"]
            runs = [self.background([self.binary, *words]) for _ in range(2)]
            ends = [(run.communicate(timeout=harness.TIMEOUT_S)[1], run.returncode) for run in runs]
            self.assertLessEqual({status for _, status in ends}, {0, 50}, ends)
            self.assertTrue(output.exists())

    def test_memory_does_not_grow_with_bad_lines(self):
        """A long tail of bad lines behind a row that still runs is not held in memory."""
        self.skip_with_large_library()
        source = self.folder / "in.jsonl"
        with open(source, "w", encoding="utf-8") as file:
            file.write('{"prompt":"Once","max_tokens":400,"ignore_eos":true}\n')
            file.write('{"promt":1}\n' * 200_000)
        report = self.folder / "report.json"
        self.generate(source, "--quiet", "--report", report, status=21)
        peak = json.loads(report.read_text())["tiers"]["cpu"]["peak_bytes"]
        self.assertLess(peak, 64 << 20)

    def test_without_a_tokenizer_prompts_are_token_ids(self):
        """Text for a model that comes without a tokenizer is an error of its line, not silently the start token."""
        records = [{"prompt": "Once"}, {"token_ids": [2, 15], "max_tokens": 3}]
        text, ids = self.lines(records, "--tokenizer", "none", status=21)
        self.assertEqual(text["error"]["code"], "no_tokenizer")
        self.assertEqual(harness.choice(ids)["text"], "")
        self.assertEqual(len(harness.choice(ids)["token_ids"]), 3)

    def test_the_output_line_is_openai_batch(self):
        (line,) = self.lines([{"prompt": "Once upon a time", "max_tokens": 5}])
        self.assertEqual(set(line), {"id", "custom_id", "response", "error"})
        self.assertEqual(set(line["response"]), {"status_code", "request_id", "body"})
        self.assertEqual(line["response"]["status_code"], 200)
        body = line["response"]["body"]
        self.assertEqual(set(body), {"id", "object", "created", "model", "choices", "usage"})
        self.assertRegex(body["id"], r"^cmpl-[0-9a-f]{16}_1$")
        self.assertEqual(body["created"], 0)
        self.assertEqual(body["object"], "text_completion")
        self.assertEqual(set(body["choices"][0]), {"index", "text", "token_ids", "finish_reason", "logprobs"})
        self.assertEqual(body["usage"], {"prompt_tokens": 5, "completion_tokens": 5, "total_tokens": 10})
        self.assertEqual((line["error"], body["choices"][0]["logprobs"]), (None, None))
        self.assertEqual(body["choices"][0]["finish_reason"], "length")

    def test_standard_input_and_output_give_the_same_bytes(self):
        source = self.write([{"prompt": prompt, "max_tokens": 8} for prompt in PROMPTS])
        self.generate(source, "--quiet")
        result = harness.run(
            self.binary, ["generate", "--input", "-", "--output", "-", "--quiet"], stdin=source.read_bytes()
        )
        self.assertEqual((result.status, result.stderr), (0, b""))
        self.assertEqual(result.stdout, self.output.read_bytes())

    def test_a_txt_file_holds_one_prompt_a_line(self):
        prompts = [prompt for prompt in PROMPTS if "\n" not in prompt]
        expected = self.choices([{"prompt": prompt, "max_tokens": 6} for prompt in prompts])
        self.output.unlink()
        text = self.folder / "in.txt"
        text.write_text("".join(prompt + "\n" for prompt in prompts))
        self.generate(text, "--max-new-tokens", "6", "--quiet")
        self.assertEqual([harness.choice(line) for line in harness.read_jsonl(self.output)], expected)

    def test_all_forms_of_one_prompt_agree(self):
        row = json.loads(GOLDEN.read_text(encoding="utf-8"))["rows"][0]
        body = {"prompt": row["text"], "max_tokens": 9}
        batch = {"method": "POST", "url": "/v1/completions"}
        choices = self.choices([
            {"prompt": row["text"], "max_tokens": 9},
            {"token_ids": row["prompt"], "max_tokens": 9},
            batch | {"custom_id": "x", "body": body},
            batch | {"body": body | {"prompt": row["prompt"]}},
            batch | {"body": body | {"n": 1, "best_of": 1, "echo": False, "stream": False, "presence_penalty": 0,
                                     "suffix": None, "user": "u", "model": "m", "top_p": 1, "temperature": 0}},
        ])
        self.assertEqual([choice["token_ids"] for choice in choices], [row["tokens"][:9]] * 5)
        self.assertEqual(len({choice["text"] for choice in choices}), 1)

    def test_lines_keep_their_order_and_names(self):
        records = [{"prompt": "word " * (1 + 7 * i % 11), "max_tokens": 1 + 5 * i % 13} for i in range(40)]
        records[5]["custom_id"] = "five \u20ac \x1b"
        lines = self.lines(records, "--gpu-batch-size", "3")
        names = [str(i + 1) for i in range(40)]
        names[5] = "five \u20ac \x1b"
        self.assertEqual([line["custom_id"] for line in lines], names)
        self.assertEqual(len({line["id"] for line in lines}), 40)
        for record, line in zip(records, lines):
            self.assertLessEqual(len(harness.choice(line)["token_ids"]), record["max_tokens"])

    def test_blank_lines_bom_and_line_ends(self):
        source = self.folder / "in.jsonl"
        source.write_bytes(b'\xef\xbb\xbf{"prompt":"a"}\r\n\r\n\n  \n{"prompt":"b"}')
        self.generate(source, "--max-new-tokens", "2", "--quiet")
        self.assertEqual([line["custom_id"] for line in harness.read_jsonl(self.output)], ["1", "5"])

    def test_an_empty_input_gives_an_empty_output(self):
        for text in (b"", b"\n \n", b"\xef\xbb\xbf"):
            source = self.folder / "in.jsonl"
            source.write_bytes(text)
            result = self.generate(source, "--quiet", "--overwrite")
            self.assertEqual(self.output.read_bytes(), b"")
            self.assertRegex(result.stderr, rb"^spillway: warning: .*in\.jsonl: no prompts were read, .*\n$")
            piped = harness.run(self.binary, ["generate", "--input", "-", "--output", "-", "--quiet"], stdin=text)
            self.assertEqual((piped.status, piped.stdout), (0, b""))
            self.assertRegex(piped.stderr, rb"^spillway: warning: standard input: no prompts were read, .*\n$")

    def test_texts_far_too_long_are_refused_before_they_are_encoded(self):
        long = "Once upon a time " * 200000
        prompt, near, short = self.lines(
            [{"prompt": long}, {"prompt": long[:40000]}, {"prompt": "a", "max_tokens": 1}], status=21)
        for line, number in ((prompt, 1), (near, 2)):
            self.assertEqual(line["error"]["code"], "context_length_exceeded")
            self.assertIn(f"line {number}: prompt of ", line["error"]["message"])
        self.assertRegex(prompt["error"]["message"], r"prompt of at least \d{5,} tokens \(3400000 bytes\) is over the model's 2048 positions")
        self.assertIsNone(short["error"])

    def test_prompts_that_are_too_long_are_cut_where_asked(self):
        ids = [2, *(4 + n % 300 for n in range(2100))]
        kept = {"left": [2, *ids[-2015:]], "right": ids[:2016], "middle": [2, *ids[1:1009], *ids[-1007:]]}
        for side, prompt in kept.items():
            with self.subTest(side):
                cut, = self.lines([{"token_ids": ids, "max_tokens": 32}], "--truncate", side, "--overwrite")
                given, = self.lines([{"token_ids": prompt, "max_tokens": 32}], "--overwrite")
                body, wanted = cut["response"]["body"], given["response"]["body"]
                self.assertEqual(body["choices"], wanted["choices"])
                self.assertEqual(body["usage"], wanted["usage"] | {"prompt_tokens_cut": 85})

    def test_plain_text_is_told_what_is_expected(self):
        result = harness.run(self.binary, ["generate", "--input", "-", "--output", "-", "--quiet"],
                             stdin=b'{"prompt":"a","max_tokens":1}\nOnce upon a time\n')
        self.assertEqual(result.status, 21)
        error = json.loads(result.stdout.splitlines()[1])["error"]
        self.assertEqual(error["code"], "invalid_json")
        self.assertRegex(error["message"], r'^line 2: must be a JSON object, one on each line, like \{"prompt":"..."\}')

    def test_an_empty_prompt_is_the_start_token(self):
        (line,) = self.lines([{"prompt": "", "max_tokens": 3}])
        self.assertEqual(line["response"]["body"]["usage"]["prompt_tokens"], 1)

    def test_special_tokens_in_text(self):
        records = [{"prompt": "the end</s>", "max_tokens": 1}]
        (parsed,), (plain,) = self.lines(records), self.lines(records, "--no-parse-special")
        counts = [line["response"]["body"]["usage"]["prompt_tokens"] for line in (parsed, plain)]
        self.assertLess(counts[0], counts[1])


class Decoding(GenerateTest):
    def test_a_stop_string_ends_the_text_before_it(self):
        # Greedy: ", and the King was very much surprised ..."
        record = {"prompt": "Once upon a time", "max_tokens": 20}
        free, stopped, across = self.choices([record, record | {"stop": " King"}, record | {"stop": ["g was v"]}])
        self.assertEqual((stopped["text"], stopped["finish_reason"]), (", and the", "stop"))
        self.assertEqual((across["text"], across["finish_reason"]), (", and the Kin", "stop"))
        self.assertEqual(stopped["token_ids"], free["token_ids"][: len(stopped["token_ids"])])
        self.assertLess(len(stopped["token_ids"]), len(across["token_ids"]))

    def test_the_end_token_ends_a_row_unless_ignored(self):
        model = harness.REPOSITORY / "tests" / "parity" / "models" / "flexgen-np"
        golden = json.loads((GOLDEN.parent / "flexgen-np.json").read_text(encoding="utf-8"))
        row = next(row for row in golden["rows"] if not row["ignore_eos"])
        record = {"token_ids": row["prompt"], "max_tokens": 32}
        records = [record, record | {"ignore_eos": True}, record | {"min_tokens": len(row["tokens"])}]
        ended, ignored, later = self.choices(records, "--model", model)
        self.assertEqual((ended["token_ids"], ended["finish_reason"]), (row["tokens"], "stop"))
        self.assertEqual((len(ignored["token_ids"]), ignored["finish_reason"]), (32, "length"))
        self.assertEqual(ignored["token_ids"][: len(row["tokens"])], row["tokens"])
        self.assertGreaterEqual(len(later["token_ids"]), len(row["tokens"]))

    def test_logprobs_are_shaped_as_openai_has_them(self):
        (greedy, sampled) = self.choices([
            {"prompt": "Once upon a time", "max_tokens": 6, "logprobs": 3},
            {"prompt": "Once upon a time", "max_tokens": 6, "logprobs": 0, "temperature": 1.5},
        ])
        for choice, fewest in ((greedy, 3), (sampled, 0)):
            logprobs = choice["logprobs"]
            sizes = {len(logprobs[key]) for key in ("tokens", "token_logprobs", "top_logprobs")}
            self.assertEqual(sizes, {len(choice["token_ids"])})
            for chosen, best in zip(logprobs["token_logprobs"], logprobs["top_logprobs"]):
                self.assertLessEqual(chosen, 0.0)
                self.assertIn(len(best), (fewest, fewest + 1))
        self.assertEqual([max(best.values()) for best in greedy["logprobs"]["top_logprobs"]],
                         greedy["logprobs"]["token_logprobs"])

    def test_seeds_decide_what_is_drawn(self):
        records = [{"prompt": "Once upon a time", "max_tokens": 16, "temperature": 1.0}] * 3
        records = records + [records[0] | {"seed": 5}, records[0] | {"seed": 5}]
        first = [choice["token_ids"] for choice in self.choices(records)]
        again = [choice["token_ids"] for choice in self.choices(records)]
        other = [choice["token_ids"] for choice in self.choices(records, "--seed", "1")]
        self.assertEqual(first, again)
        self.assertEqual(len({tuple(ids) for ids in first[:3]}), 3)
        self.assertEqual(first[3], first[4])
        self.assertNotEqual(first[:3], other[:3])
        self.assertEqual(first[3:], other[3:])

    def test_a_line_beats_the_flag(self):
        records = [{"prompt": "a", "max_tokens": 2}, {"prompt": "a"}]
        lengths = [len(choice["token_ids"]) for choice in self.choices(records, "--max-new-tokens", "5")]
        self.assertEqual(lengths, [2, 5])


class Settings(GenerateTest):
    def length(self, *flags, env=None):
        """The number of tokens generated for one line that says nothing itself."""
        (choice,) = self.choices([{"prompt": "Once upon a time"}], *flags, env=env)
        return len(choice["token_ids"])

    def test_flag_beats_environment_beats_file(self):
        config = self.folder / "c.toml"
        config.write_text("max-new-tokens = 3\n[generate]\nignore-eos = true\n[bench]\nx = 1\n")
        environment = {"SPILLWAY_MAX_NEW_TOKENS": "5"}
        self.assertEqual(self.length("--config", config), 3)
        self.assertEqual(self.length("--config", config, env=environment), 5)
        self.assertEqual(self.length("--config", config, "--max-new-tokens", "7", env=environment), 7)
        self.assertEqual(self.length(env={"SPILLWAY_CONFIG": str(config)}), 3)

    def test_an_existing_output_is_kept_unless_told(self):
        source = self.write([{"prompt": "a", "max_tokens": 2}])
        self.output.write_text("precious")
        self.generate(source, status=52)
        self.assertEqual(self.output.read_text(), "precious")
        self.generate(source, "--overwrite", "--quiet")
        self.assertEqual(len(harness.read_jsonl(self.output)), 1)
        self.assertEqual(sorted(path.name for path in self.folder.iterdir()), ["in.jsonl", "out.jsonl"])

    def test_the_same_run_gives_the_same_bytes(self):
        source = self.write([{"prompt": prompt, "max_tokens": 8, "temperature": 0.9} for prompt in PROMPTS])
        self.generate(source, "--quiet")
        first = self.output.read_bytes()
        self.generate(source, "--quiet", "--overwrite")
        self.assertEqual(self.output.read_bytes(), first)

    def test_quiet_prints_nothing(self):
        result = self.generate(self.write([{"prompt": "a", "max_tokens": 2}]), "--quiet")
        self.assertEqual((result.stdout, result.stderr), (b"", b""))

    def test_completions_on_standard_output_are_all_there_is_on_it(self):
        source = self.write([{"prompt": "a", "max_tokens": 2}])
        result = harness.run(self.binary, ["generate", "--input", source], cwd=self.folder)
        self.assertEqual([len(harness.choice(json.loads(line))["token_ids"]) for line in result.stdout.splitlines()], [2])

    def test_the_final_table_stays_without_progress(self):
        result = self.generate(self.write([{"prompt": "a", "max_tokens": 2}]), "--no-progress")
        self.assertIn(b"tokens/s", result.stdout)
        self.assertNotIn(b"\r", result.stdout + result.stderr)

    def run_redirected(self, redirection, output, source=None):
        """A run over a good and a bad line, with the shell's `redirection`."""
        source = source or self.write([{"prompt": "a", "max_tokens": 2}, {"prompt": 5}])
        words = ["generate", "--input", source, "--output", output, "--model", harness.BUNDLED_MODEL]
        command = ["sh", "-c", f'exec "$@" {redirection}', "sh", self.binary, *words]
        return subprocess.run(command, capture_output=True, env=harness.clean_environment(), check=False)

    def test_nobody_needs_to_listen(self):
        """A closed or full stream loses what is said there, never the run or its exit status."""
        for redirection in ("2>&-", "2>/dev/full", ">&-", ">/dev/full", "<&- >&- 2>&-"):
            self.output.unlink(missing_ok=True)
            done = self.run_redirected(redirection, self.output)
            self.assertEqual(done.returncode, 21, redirection)
            self.assertEqual(len(self.output.read_bytes().splitlines()), 2, redirection)
            bad = harness.run("sh", ["-c", f'exec "$0" --nonsense {redirection}', self.binary])
            self.assertEqual(bad.status, 2, redirection)

    def test_prompts_and_completions_need_open_streams(self):
        done = self.run_redirected(">&-", "-")
        self.assertEqual(done.returncode, 40, done.stderr)
        self.assertIn(b"standard output is closed", done.stderr)
        done = self.run_redirected("<&-", self.output, source="-")
        self.assertEqual(done.returncode, 20, done.stderr)
        self.assertIn(b"standard input: is closed", done.stderr)

    def test_help_and_version(self):
        for words in (["--help"], ["--version"], ["generate", "--help"]):
            result = harness.run(self.binary, words)
            self.assertEqual((result.status, result.stderr), (0, b""), words)
            self.assertIn(b"spillway", result.stdout.lower())


class Reports(GenerateTest):
    def report(self, *flags):
        path = self.folder / "r.json"
        records = [{"prompt": prompt, "max_tokens": 8, "ignore_eos": True} for prompt in PROMPTS]
        lines = self.lines(records, "--report", path, "--overwrite", *flags)
        return json.loads(path.read_text()), lines

    def test_all_keys_are_there(self):
        report, _ = self.report()
        self.assertEqual(report["version"], 1)
        for key, inner in REPORT_KEYS.items():
            self.assertIn(key, report)
            for name in inner or []:
                self.assertIn(name, report[key], key)
        for tier in report["tiers"].values():
            self.assertLessEqual({"cap_bytes", "planned_peak_bytes", "peak_bytes"}, set(tier))
        for link in report["links"].values():
            self.assertLessEqual({"bytes", "busy_s", "bytes_per_s", "peak_bytes_per_s"}, set(link))
        for what in report["placement"].values():
            for share in ("requested", "realised"):
                self.assertAlmostEqual(sum(what[share][tier] for tier in ("gpu", "cpu", "disk")), 1.0)
        self.assertIn("tile_bytes", report["placement"]["weights"])

    def test_counts_add_up(self):
        report, lines = self.report("--gpu-batch-size", "2")
        usages = [line["response"]["body"]["usage"] for line in lines]
        workload = report["workload"]
        self.assertEqual(workload["num_requests"], len(lines))
        self.assertEqual(workload["prompt_tokens"], sum(usage["prompt_tokens"] for usage in usages))
        self.assertEqual(workload["generated_tokens"], sum(usage["completion_tokens"] for usage in usages))
        self.assertEqual(report["block"]["gpu_batch_size"], 2)
        self.assertEqual(report["model"]["name"], "tales-opt-8m")
        time_s = report["time_s"]
        rate = workload["generated_tokens"] / (time_s["prefill"] + time_s["decode"])
        self.assertAlmostEqual(report["throughput"]["generated_tokens_per_s"], rate, delta=rate / 100)
        self.assertLessEqual(time_s["prefill"] + time_s["decode"], time_s["total"])

    def test_the_fingerprint_is_of_the_generated_tokens(self):
        first, _ = self.report("--gpu-batch-size", "1")
        second, _ = self.report("--gpu-batch-size", "4")
        drawn, _ = self.report("--temperature", "1.5")
        self.assertRegex(first["fingerprint"], "^[0-9a-f]{16}$")
        self.assertEqual(first["fingerprint"], second["fingerprint"])
        self.assertNotEqual(first["fingerprint"], drawn["fingerprint"])


    def test_a_report_never_replaces_the_input_or_the_output(self):
        source = self.write([{"prompt": "a", "max_tokens": 2}])
        before = source.read_bytes()
        self.generate(source, "--report", source, status=20)
        self.generate(source, "--report", self.output, status=60)
        self.generate(source, "--report", f"{self.output}.part", status=60)
        result = self.generate(source, "--report", "-", status=60)
        self.assertIn(b"/dev/stdout", result.stderr)
        self.assertEqual(source.read_bytes(), before)
        self.assertEqual([path.name for path in self.folder.iterdir()], ["in.jsonl"])


if __name__ == "__main__":
    GenerateTest.binary = pathlib.Path(sys.argv.pop(1)).resolve()
    unittest.main()
