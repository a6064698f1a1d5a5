"""`spillway bench` and `spillway plan`: synthetic prompts, measured or planned; `spillway convert` and stores as models.
Standard library only.

  python3 verbs_test.py path/to/spillway [unittest arguments]
"""

import json
import os
import pathlib
import re
import resource
import shutil
import signal
import subprocess
import sys
import time
import unittest

import harness

BINARY = pathlib.Path()
PARITY_MODELS = harness.REPOSITORY / "tests" / "parity" / "models"
SMALL = ["--prompt-len", 20, "--gen-len", 5]
ON_DISK = ["--percent", 0, 0, 0, 100, 0, 100]
MIXED = ["--percent", 0, 40, 0, 50, 0, 50]


class Bench(harness.VerbTest):
    def test_every_row_has_its_length(self):
        report = self.report_of("bench", *SMALL, "--num-requests", 7, "--gpu-batch-size", 3)
        self.assertEqual(report["workload"], {
            "num_requests": 7, "prompt_tokens": 140, "generated_tokens": 35, "num_completions": 7, "num_errors": 0,
            "num_empty_completions": 0, "shared_prompt_tokens": 0})
        self.assertGreater(report["throughput"]["generated_tokens_per_s"], 0)

    def test_one_block_where_no_number_is_given(self):
        report = self.report_of("bench", *SMALL)
        self.assertEqual(report["workload"]["num_requests"], 64)
        given = self.report_of("bench", *SMALL, "--gpu-batch-size", 3, "--num-gpu-batches", 2)
        self.assertEqual(given["workload"]["num_requests"], 6)
        self.assertEqual(given["block"]["num_blocks"], 1)

    def test_weights_on_disk_are_predicted_by_their_own_files_rate(self):
        machine = json.loads((harness.REPOSITORY / "examples" / "machines" / "t4.json").read_text())
        machine["link_bytes_per_s"]["disk_read"] = 1e6
        slow = self.folder / "slow.json"
        slow.write_text(json.dumps(machine))
        words = [*SMALL, "--num-requests", 4, "--gpu-batch-size", 4, "--machine", slow]
        in_memory = self.report_of("bench", *words, "--percent", 0, 100, 0, 100, 0, 100)
        self.assertEqual(in_memory["links"]["disk_read"]["peak_bytes_per_s"], 1e6)
        on_disk = self.report_of("bench", *words, *ON_DISK)
        self.assertEqual(on_disk["links"]["disk_read"]["peak_bytes_per_s"], 1e6)
        self.assertGreater(on_disk["links"]["disk_read"]["store_bytes_per_s"], 5e6)
        self.assertNotIn("store_bytes_per_s", in_memory["links"]["disk_read"])
        self.assertLess(on_disk["predicted"]["decode_s"], 10)  # at that rate, 15 MB in each of four passes: 60
        # what was read to measure the rate is in no count and in no trace
        emulated = ["--emulate-gpu", "256MiB", "--trace", self.folder / "t.json"]
        through_cpu = self.report_of("bench", *words, *ON_DISK, *emulated)
        self.assertGreater(through_cpu["links"]["disk_read"]["store_bytes_per_s"], 5e6)
        unmeasured = self.report_of("bench", *SMALL, "--num-requests", 4, "--gpu-batch-size", 4, *ON_DISK)
        for report in (on_disk, through_cpu):
            self.assertAlmostEqual(report["links"]["disk_read"]["bytes"], unmeasured["links"]["disk_read"]["bytes"],
                                   delta=2e6)  # of the layers that are read ahead at the end

    def test_the_fingerprint_depends_on_seed_and_model_alone(self):
        base = self.report_of("bench", *SMALL, "--num-requests", 9)["fingerprint"]
        for flags in (["--gpu-batch-size", 2], ["--gpu-batch-size", 4, *ON_DISK], ["--gpu-batch-size", 2, *MIXED],
                      ["--emulate-gpu", "256MiB", "--percent", 50, 50, 50, 50, 50, 50, "--gpu-batch-size", 3]):
            self.assertEqual(self.report_of("bench", *SMALL, "--num-requests", 9, *flags)["fingerprint"], base, flags)
        self.assertNotEqual(self.report_of("bench", *SMALL, "--num-requests", 9, "--seed", 1)["fingerprint"], base)

    def test_the_fingerprint_is_that_of_generate(self):
        """One row, one token: the start token alone is what generate can be given too."""
        bench = self.report_of("bench", "--prompt-len", 1, "--gen-len", 12, "--num-requests", 3)
        source = harness.write_jsonl(self.folder / "in.jsonl", [{"token_ids": [2]}] * 3)
        generate = self.report_of("generate", source, "--output", self.folder / "out.jsonl", "--max-new-tokens", 12,
                                  "--ignore-eos")
        self.assertEqual(bench["fingerprint"], generate["fingerprint"])

    def test_dummy_weights_and_no_tokenizer(self):
        words = ["--model", "opt-125m", "--dummy-weights", "--prompt-len", 8, "--gen-len", 2, "--num-requests", 2]
        result = self.run_verb("bench", *words)
        self.assertIn(b"opt-125m", result.stdout)
        self.assertIn(b"2 completions", result.stdout)
        self.assertEqual(result.stderr, b"")

    def test_refusals(self):
        self.assertIn("positions", self.refusal(2, "bench", "--prompt-len", 2040, "--gen-len", 32))
        self.assertIn("--gen-len 0", self.refusal(2, "bench", "--gen-len", 0))
        self.assertIn("--temperature", self.refusal(2, "bench", "--temperature", 1))
        self.assertIn("--input", self.refusal(2, "bench", "--input", "x"))
        self.assertIn("one word too many", self.refusal(2, "bench", "x"))
        self.assertIn("gpu", self.refusal(2, "bench", *SMALL, "--percent", 50, 0, 0, 100, 0, 100))
        self.refusal(31, "bench", *SMALL, "--gpu-batch-size", 64, "--cpu-memory", "1MiB")
        self.refusal(12, "bench", "--model", "opt-1.3b", *SMALL)
        more_than_there_is = ["--cpu-memory", "64TiB", "--prompt-len", 1000, "--gen-len", 24, "--num-requests", 1000000,
                              "--gpu-batch-size", 100000, "--num-gpu-batches", 10]
        line = self.refusal(31, "bench", *more_than_there_is, "--percent", 0, 100, 0, 100, 0, 100)
        self.assertIn("give a smaller --cpu-memory", line)
        self.refusal(60, "bench", *SMALL, "--report", "no/such/folder/r.json")

    def test_help_lists_the_verbs_flags(self):
        text = self.run_verb("bench", "--help").stdout.decode()
        for flag in ("--prompt-len", "--gen-len", "--num-requests", "--percent", "--report", "--dummy-weights"):
            self.assertIn(flag, text)
        for flag in ("--input", "--output", "--temperature", "--tokenizer", "--overwrite"):
            self.assertNotIn(flag, text)

    def test_flags_from_a_file_and_the_environment(self):
        config = self.folder / "c.toml"
        config.write_text('seed = 1\n[bench]\nprompt-len = 20\ngen-len = 5\nnum-requests = 4\n[generate]\ninput = "x"\n')
        self.assertEqual(self.report_of("bench", "--config", config)["fingerprint"],
                         self.report_of("bench", *SMALL, "--num-requests", 4, "--seed", 1)["fingerprint"])
        path = self.folder / "r.json"
        self.run_verb("bench", *SMALL, "--quiet", "--report", path, env={"SPILLWAY_NUM_REQUESTS": "3"})
        self.assertEqual(json.loads(path.read_text())["workload"]["num_requests"], 3)

    def test_what_does_nothing_here_is_warned_of(self):
        path = self.folder / "r.json"
        words = ["bench", *SMALL, "--num-requests", 1, "--quiet", "--report", path]
        for flags, env, warning in (
            ([], {"SPILLWAY_NUM_REQUEST": "3"}, b"SPILLWAY_NUM_REQUEST: nothing reads this variable; did you mean SPILLWAY_NUM_REQUESTS?"),
            (["--threads", 1000], {}, b"--threads 1000: this machine has "),
            (["--gpu-memory", "8G", "--device", "cpu"], {}, b"--gpu-memory: no GPU computes here"),
            (["--gpu-memory", "1G", "--emulate-gpu", "1G"], {"SPILLWAY_UNHEARD_OF": "x"}, b""),
        ):
            result = self.run_verb(*words, *flags, env=env)
            self.assertEqual(len(result.stderr.splitlines()), 1 if warning else 0, result.stderr)
            self.assertIn(warning, result.stderr)

    def test_the_man_page_and_completion_know_all_verbs_and_flags(self):
        page = self.run_verb("help", "man").stdout.decode()
        script = self.folder / "spillway.bash"
        script.write_bytes(self.run_verb("help", "bash").stdout)
        overview = self.run_verb("--help").stdout.decode()
        verbs = re.findall(r"^  ([a-z]+) ", overview, re.MULTILINE)
        self.assertIn("tokenize", verbs)
        for verb in verbs:
            flags = re.findall(r"^  (?:-[a-z],)?--([a-z0-9-]+)", self.run_verb(verb, "--help").stdout.decode(), re.MULTILINE)
            listed = self.completed(script, verb, "--")
            for flag in flags:
                self.assertIn(f"--{flag}", listed)
                if flag not in ("help", "config"):
                    self.assertIn("\\fB\\-\\-" + flag.replace("-", "\\-"), page)
        self.assertEqual(self.completed(script, "generate", "--kv-policy", "h2"), ["h2o", "h2o-flexgen"])
        self.assertEqual(self.completed(script, "tok"), ["tokenize"])

    def completed(self, script, *words):
        """What bash offers for the last word."""
        text = f"source {script}; COMP_WORDS=(spillway {' '.join(words)}); COMP_CWORD={len(words)}; _spillway; echo ${{COMPREPLY[@]}}"
        return subprocess.run(["bash", "-c", text], capture_output=True, check=True, text=True).stdout.split()


def leaves(value, path=()):
    """(path, value) of everything in a report that is not an object."""
    if not isinstance(value, dict):
        return [(path, value)]
    return [leaf for key, below in value.items() for leaf in leaves(below, (*path, key))]


MEASURED = {"time_s", "throughput", "links", "work", "phases", "fingerprint", "predicted", "prediction_error"}
MEASURED_LEAVES = {"peak_bytes", "prompt_tokens", "shared_prompt_tokens", "generated_tokens", "num_completions", "num_errors", "num_empty_completions",
                   "num_blocks", "passes"}


class Plan(harness.VerbTest):
    def check_against_run(self, planned, measured):
        """The same keys; what is measured is null, the rest is what the run reports."""
        self.assertEqual([path for path, _ in leaves(planned)], [path for path, _ in leaves(measured)])
        run = dict(leaves(measured))
        for path, value in leaves(planned):
            if path[0] in MEASURED or path[-1] in MEASURED_LEAVES:
                self.assertIsNone(value, path)
            elif path[-1] != "cap_bytes":
                self.assertEqual(value, run[path], path)

    def check_sums(self, report):
        for tier in report["tiers"].values():
            self.assertEqual(sum(tier["planned_bytes"].values()), tier["planned_peak_bytes"])
            self.assertTrue(all(value >= 0 for value in tier["planned_bytes"].values()), tier)

    def test_is_the_plan_of_the_bench(self):
        emulated = ["--emulate-gpu", "256MiB"]
        for flags in ([], ON_DISK, MIXED, ["--percent", 0, 0, 0, 0, 0, 0],
                      [*emulated, "--percent", 20, 30, 40, 30, 50, 20],
                      [*emulated, "--percent", 0, 0, 0, 0, 0, 0],
                      [*emulated, "--percent", 0, 100, 0, 100, 100, 0, "--cpu-attention"]):
            words = [*SMALL, "--gpu-batch-size", 4, "--num-gpu-batches", 2, *flags]
            planned = self.report_of("plan", *words)
            self.check_sums(planned)
            self.check_against_run(planned, self.report_of("bench", *words))

    def test_is_the_plan_of_generate(self):
        source = harness.write_jsonl(self.folder / "in.jsonl", [{"prompt": "Once upon a time"}] * 5)
        words = ["--input", source, "--output", self.folder / "out.jsonl", "--max-new-tokens", 9, "--ignore-eos"]
        planned = self.report_of("plan", *words)
        self.assertFalse((self.folder / "out.jsonl").exists())
        self.assertEqual(planned["workload"]["num_requests"], 5)
        self.check_against_run(planned, self.report_of("generate", *words))

    def test_lines_that_cannot_run_are_told_of(self):
        source = harness.write_jsonl(self.folder / "in.jsonl", [{"prompt": "Once"}, {"prompt": 5}, {"prompt": "upon"}])
        result = self.run_verb("plan", "--input", source)
        self.assertIn(b"%s: 3 lines, 2 can run: " % str(source).encode(), result.stdout)
        self.assertIn(b"  1 line cannot run: line 2: ", result.stdout)
        self.assertIn(b"requests      2,", result.stdout)

    def test_says_when_it_is_done_and_what_would_help(self):
        words = ["--model", "opt-6.7b", "--machine", harness.REPOSITORY / "examples/machines/rtx-4090.json", "--gpu-memory", "4GiB", "--cpu-memory", "6GiB",
                 "--prompt-len", 32, "--gen-len", 64, "--num-requests", 5000]
        small = ["--gpu-batch-size", 4, "--num-gpu-batches", 2]
        text = self.run_verb("plan", *words, *small).stdout.decode()
        self.assertRegex(text, r"\n5,000 requests, done about [^\n]* \(in \d+ h \d\d min\), [\d,]+ requests/h, "
                               r"passes that read prompts \d+ % of it\n")
        self.assertRegex(text, r"\nbound by reading from the disk; most would help leaving block and placement to the search: "
                               r"[^\n]+ in place of \d+ h \d\d min(; --weight-bits \d \(other answers\): [^\n]+)?\n$")
        text = self.run_verb("plan", *words).stdout.decode()
        self.assertRegex(text, r"\nbound by reading from the disk; most would help [^\n]+\n$")

    def test_what_would_not_help_was_tried(self):
        words = ["--model", "opt-1.3b", "--machine", harness.REPOSITORY / "examples/machines/xeon-2-cores.json", "--prompt-len", 512, "--gen-len", 2,
                 "--num-requests", 5000]
        text = self.run_verb("plan", *words, "--kv-bits", 4, "--weight-bits", 4).stdout.decode()
        self.assertNotRegex(text.splitlines()[-1], "help|weight-bits|kv-bits|disk twice")
        text = self.run_verb("plan", *words).stdout.decode()
        self.assertRegex(text, r"\nbound by [^\n]+--weight-bits 8 \(other answers\), --kv-bits 8,4 \(other answers\), --weight-bits 4 \(other answers\) "
                               r"would each save less than a tenth\n$")

    def test_a_change_that_saves_enough_is_told_behind_one_that_saves_less(self):
        words = ["--model", "opt-6.7b", "--machine", harness.REPOSITORY / "examples/machines/t4.json", "--prompt-len", 512, "--gen-len", 32,
                 "--num-requests", 1000]
        self.assertIn("most would help --kv-bits 8,4 (other answers): ", self.run_verb("plan", *words).stdout.decode())

    def test_inspect_tells_how_texts_are_scored(self):
        source = harness.write_jsonl(self.folder / "texts.jsonl", [{"text": "Once upon a time."}])
        text = self.run_verb("inspect", source).stdout.decode()
        self.assertIn("spillway score --model DIR --input ", text)
        self.assertNotIn("spillway plan", text)

    def test_without_rates_tells_of_weights_that_are_read_again_and_again(self):
        words = ["--model", "opt-125m", "--prompt-len", 16, "--gen-len", 28, "--num-requests", 64]
        text = self.run_verb("plan", *words, "--cpu-memory", "110MiB").stdout.decode()
        self.assertRegex(text, r"\nweights are read from the disk again and again, [\d.]+ GiB in all; "
                               r"with --cpu-memory 220MiB: [\d.]+ GiB; with --weight-bits 4 \(other answers\): none\n$")
        fewer = self.run_verb("plan", *words, "--cpu-memory", "110MiB", "--weight-bits", 4).stdout.decode()
        self.assertNotIn("again and again", fewer)
        self.assertNotIn("again and again", self.run_verb("plan", *words, "--cpu-memory", "8GiB").stdout.decode())

    def test_a_built_in_shape_needs_no_weights(self):
        text = self.run_verb("plan", "--model", "opt-1.3b", "--cpu-memory", "64GiB").stdout.decode()
        self.assertIn("64 rows x 1 batch,", text)
        for word in ("weights", "kv", "activations", "workspace", "planned", "allowed", "realised"):
            self.assertIn(word, text)

    def test_the_kv_line_says_what_stays_where_a_window_and_the_disk_meet(self):
        words = ["--model", "gemma-3-1b", "--prompt-len", 1200, "--gen-len", 100, "--percent", 0, 50, 0, 50, 0, 100,
                 "--gpu-batch-size", 2, "--num-gpu-batches", 2, "--cpu-memory", "8GiB", "--disk-space", "40GiB"]
        windows = "22 of 26 layers see the last 512 tokens"
        for flags, expected in (
            ([], f"full: all tokens of the longest row, 1536 slots; {windows}$"),
            (["--kv-policy", "h2o"], "h2o: 130 heavy \\+ 130 recent tokens of the longest row, 320 slots; "
             f"{windows}; layers with 2 different budgets; rows on disk are written anew every \\d+ passes"),
            (["--kv-policy", "window", "--kv-budget", 300, "--kv-bits", 8],
             f"window: 300 recent tokens of the longest row, 320 slots of 8 bits; {windows}; layers with 2 different budgets$"),
            (["--kv-bits", "8,4"], f"full: all tokens of the longest row, 1536 slots of 8,4 bits; {windows}$"),
        ):
            text = self.run_verb("plan", *words, *flags).stdout.decode()
            self.assertRegex(text, f"(?m)^  KV            {expected}")

    def test_keys_of_four_bits_need_heads_that_can_be_turned(self):
        short = ["plan", "--prompt-len", 8, "--gen-len", 4]
        self.run_verb(*short, "--model", PARITY_MODELS / "llama-grouped-tied", "--kv-bits", 4)
        odd = [*short, "--model", PARITY_MODELS / "qwen3-biased", "--kv-bits"]
        self.run_verb(*odd, "8,4")
        for bits in ("4", "4,16"):
            refused = self.run_verb(*odd, bits, status=2).stderr
            self.assertIn(f"--kv-bits {bits}: keys of 4 bits that positions rotate need heads of a power".encode(), refused)

    def test_planned_bytes_add_up(self):
        report = self.report_of("plan", "--model", "opt-6.7b", "--cpu-memory", "8GiB", "--disk-space", "100GiB")
        self.check_sums(report)
        self.assertGreater(report["tiers"]["disk"]["planned_bytes"]["weights"], 0)
        self.assertGreater(report["tiers"]["cpu"]["planned_bytes"]["staging"], 0)

    def test_a_full_device_loses_no_answer_in_silence(self):
        machine = harness.REPOSITORY / "examples" / "machines" / "t4.json"
        text = self.folder / "text.txt"
        text.write_text("Once upon a time there was a king.\n" * 20)
        for words in (["--help"], ["plan", "--help"], ["--version"], ["plan"], ["inspect", harness.BUNDLED_MODEL],
                      ["bench", "--prompt-len", 4, "--gen-len", 2], ["score", "--perplexity", text, "--quiet"],
                      ["inspect", "--shapes"], ["simulate", "--machine", machine], ["search", "--machine", machine]):
            with self.subTest(words=words), open("/dev/full", "wb") as full:
                done = subprocess.run([BINARY, *map(str, words)], stdout=full, stderr=subprocess.PIPE, check=False,
                                      env=harness.clean_environment())
                self.assertEqual(done.returncode, 40, done.stderr)
                self.assertIn(b"standard output: No space left", done.stderr)

    def test_a_reader_that_goes_away_has_all_it_wanted(self):
        read, write = os.pipe()
        os.close(read)
        done = subprocess.run([BINARY, "inspect", "--shapes"], stdout=write, stderr=subprocess.PIPE, check=False,
                              env=harness.clean_environment())
        os.close(write)
        self.assertEqual((done.returncode, done.stderr), (0, b""))

    def test_what_does_not_fit(self):
        big = ["--model", "opt-30b", "--gpu-batch-size", 32]
        begin = time.monotonic()
        self.refusal(30, "plan", *big, "--emulate-gpu", "1GiB", "--percent", 100, 0, 100, 0, 100, 0)
        self.refusal(31, "plan", *big, "--cpu-memory", "1GiB", "--percent", 0, 100, 0, 100, 0, 100)
        self.refusal(32, "plan", *big, "--cpu-memory", "64GiB", "--disk-space", "1GiB", "--percent", 0, 0, 0, 100, 0, 100)
        self.assertLess(time.monotonic() - begin, 3)

    def test_a_refusal_names_caps_that_are_enough(self):
        """By the flags that make them: --gpu-memory would not make an emulated GPU larger."""
        for caps in (["--cpu-memory", "4MiB", "--disk-space", "1GiB"], ["--emulate-gpu", "1MiB"],
                     ["--emulate-gpu", "1MiB", "--cpu-memory", "1MiB", "--disk-space", "1MiB"],
                     ["--emulate-gpu", "9MiB", "--gpu-memory", "1MiB"]):
            with self.subTest(caps=caps):
                self.check_ways_out("plan", "--device", "cpu", caps=caps)

    def check_ways_out(self, *words, caps):
        """Each way out that the refusal of `words` names does, at the first try. Returns the exit status and the ways."""
        result = harness.run(BINARY, [*words, *caps], cwd=self.folder)
        self.assertIn(result.status, (30, 31, 32), result.stderr)
        ways = result.stderr.decode().split("; give at least ")[1].split(" or ")
        for named in ways:
            enough = dict(zip(caps[::2], caps[1::2]))
            for flag in re.findall("--[a-z-]+", named):
                enough[flag] = re.search(flag + "[^0-9]*([0-9]+MiB)", named)[1]
            self.run_verb(*words, *[word for cap in enough.items() for word in cap], "--quiet")
        return result.status, ways

    def test_a_disk_that_is_too_small_is_named_and_not_the_memory(self):
        status, ways = self.check_ways_out("plan", "--model", "opt-1.3b",
                                           caps=["--cpu-memory", "1GiB", "--disk-space", "100MiB"])
        self.assertEqual(status, 32)
        self.assertEqual([way.split(" ")[0] for way in ways], ["--cpu-memory", "--disk-space"])

    def test_the_first_hint_of_a_run_is_enough(self):
        source = harness.write_jsonl(self.folder / "in.jsonl", [
            {"prompt": "Once upon a time " * (1 + number % 7), "max_tokens": 5 + number} for number in range(9)])
        for words in (["generate", "--input", source, "--output", self.folder / "out.jsonl", "--overwrite"],
                      ["plan", "--input", source]):
            self.check_ways_out(*words, caps=["--cpu-memory", "1MiB", "--disk-space", "100MiB"])

    def test_a_refusal_names_a_block_that_fits(self):
        """The placement is chosen anew for it, where none was given."""
        words = ["--model", "opt-30b", "--emulate-gpu", "16GiB", "--cpu-memory", "32GiB", "--disk-space", "200GiB",
                 "--prompt-len", 512, "--gen-len", 32, "--num-requests", 10000, "--device", "cpu"]
        line = self.refusal(32, "plan", *words, "--gpu-batch-size", 64, "--num-gpu-batches", 8)
        named = line.split("; ")[1].removesuffix(" fits")
        self.assertEqual(named, "--gpu-batch-size 64 --num-gpu-batches 2")
        self.run_verb("plan", *words, *named.split(), "--quiet")

    def test_a_policy_of_bits_alone_is_inspected(self):
        policy = self.folder / "policy.json"
        policy.write_text('{"version":1,"weight_bits":4}')
        self.assertIn("weight bits 4", self.run_verb("inspect", policy).stdout.decode())

    def test_attention_is_on_the_cpu_where_there_is_no_gpu(self):
        policy = self.folder / "policy.json"
        policy.write_text('{"version":1,"cpu_attention":true}')
        self.run_verb("plan", "--policy", policy, "--device", "cpu", "--quiet")
        self.run_verb("plan", "--cpu-attention", "--device", "cpu", "--quiet")

    def test_refusals(self):
        source = harness.write_jsonl(self.folder / "in.jsonl", [{"prompt": "a"}])
        self.assertIn("not a regular file", self.refusal(3, "plan", "--policy", "."))
        self.assertIn("--gen-len", self.refusal(2, "plan", "--input", source, "--gen-len", 3))
        self.assertIn("--gen-len", self.refusal(2, "plan", "--max-new-tokens", 3))
        self.assertIn("positions", self.refusal(2, "plan", "--prompt-len", 4000))
        self.refusal(20, "plan", "--input", "missing.jsonl")

    def test_flags_from_a_file(self):
        config = self.folder / "c.toml"
        config.write_text("[plan]\nprompt-len = 20\ngen-len = 5\npercent = [0, 40, 0, 50, 0, 50]\n")
        caps = ["--cpu-memory", "4GiB", "--disk-space", "4GiB"]
        self.assertEqual(self.report_of("plan", "--config", config, *caps),
                         self.report_of("plan", *SMALL, *MIXED, *caps))

    def test_an_input_that_begins_with_thousands_of_bad_lines(self):
        """None of the lines whose lengths a plan looks at is a request."""
        lines = self.folder / "bad.jsonl"
        lines.write_text('{"prompt":5}\n' * 5000 + '{"prompt":"Once","max_tokens":4}\n')
        machine = harness.REPOSITORY / "examples" / "machines" / "t4.json"
        report = self.report_of("plan", "--model", harness.BUNDLED_MODEL, "--machine", machine, "--input", lines)
        self.assertGreater(report["block"]["gpu_batch_size"], 0)
        path = self.folder / "run.json"
        self.run_verb("generate", "--input", lines, "--output", self.folder / "out.jsonl", "--report", path, status=21)
        self.assertEqual(json.loads(path.read_text())["workload"]["num_completions"], 1)


class Convert(harness.VerbTest):
    PLACEMENTS = [[], ON_DISK, MIXED, ["--emulate-gpu", "256MiB", "--percent", 30, 30, 30, 30, 30, 30]]

    def convert(self, *model, name="model.store"):
        store = self.folder / name
        self.run_verb("convert", *model, "--seed", 3, "--output", store, "--quiet")
        return store

    def completions(self, *words):
        """The bytes of a run of generate, with nothing of a store left in the offload folder."""
        offload = self.folder / "offload"
        offload.mkdir(exist_ok=True)
        output = self.folder / "out.jsonl"
        self.run_verb("generate", *words, "--output", output, "--overwrite", "--quiet", "--offload-dir", offload)
        return output.read_bytes(), sorted(path.name for path in offload.iterdir())

    def test_a_full_disk_is_told_with_a_flag_of_its_own(self):
        store = self.folder / "model.store"
        done = subprocess.run(
            [BINARY, "convert", "--output", store, "--quiet"], capture_output=True, env=harness.clean_environment(), check=False,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096)))
        self.assertEqual(done.returncode, 32, done.stderr)
        self.assertIn(b"; raise the limit on file sizes (ulimit -f) or give another --output\n", done.stderr)
        self.assertFalse(store.exists())

    def check_same_outputs(self, *model, source):
        store = self.convert(*model)
        tail = ["--input", source, "--gpu-batch-size", 3, "--seed", 3]
        expected, _ = self.completions(*model, *tail)
        for flags in self.PLACEMENTS:
            found, left = self.completions("--model", store, *tail, *flags)
            self.assertEqual(found, expected, flags)
            self.assertEqual(left, [], "weights are read from the store itself")
        return store

    def requests(self):
        return harness.write_jsonl(self.folder / "in.jsonl", [
            {"prompt": "Once upon a time there was a king", "max_tokens": 9},
            {"prompt": "The", "max_tokens": 14, "temperature": 0.9},
            {"token_ids": [2, 7, 9], "max_tokens": 5, "logprobs": 2},
            {"prompt": "a b c", "max_tokens": 3}])

    def test_the_same_bytes_as_from_the_folder(self):
        for model in (harness.BUNDLED_MODEL, PARITY_MODELS / "prenorm-head64", PARITY_MODELS / "fp32-plain",
                      PARITY_MODELS / "gelu-head80-untied", PARITY_MODELS / "flexgen-np"):
            with self.subTest(model=model.name):
                store = self.check_same_outputs("--model", model, source=self.requests())
                shutil.rmtree(store)

    def test_the_folder_needs_no_other(self):
        model = self.folder / "original"
        shutil.copytree(PARITY_MODELS / "postnorm-projected", model)
        tail = ["--input", self.requests(), "--seed", 3]
        expected, _ = self.completions("--model", model, *tail)
        store = self.convert("--model", model)
        for path in sorted(model.iterdir()):
            if path.suffix != ".safetensors":
                self.assertEqual((store / path.name).read_bytes(), path.read_bytes(), path.name)
        shutil.rmtree(model)
        moved = store.rename(self.folder / "elsewhere")
        self.assertEqual(self.completions("--model", moved, *tail, *MIXED)[0], expected)

    def test_what_lies_beside_the_weights_is_sealed(self):
        store = self.convert("--model", harness.BUNDLED_MODEL)
        words = ["generate", "--model", store, "--input", self.requests(), "--output", self.folder / "out.jsonl"]
        for name in ("merges.txt", "config.json", "generation_config.json"):
            before = (store / name).read_bytes()
            (store / name).write_bytes(before.replace(b" ", b"  ", 1) + b"\n")
            self.assertIn(f"{name}: is not what it was", self.refusal(41, *words))
            self.assertIn(f"{name}: is not what it was", self.refusal(41, "inspect", store))
            (store / name).unlink()
            self.assertIn(name, self.refusal(12, *words))
            (store / name).write_bytes(before)
        self.run_verb(*words, "--quiet")

    def test_dummy_weights(self):
        source = harness.write_jsonl(self.folder / "in.jsonl", [{"prompt": "a b c", "max_tokens": 3}] * 2)
        store = self.check_same_outputs("--model", "opt-125m", "--dummy-weights", source=source)
        self.assertFalse((store / "config.json").exists())

    def test_bench_plan_and_inspect_take_a_store(self):
        store = self.convert("--model", harness.BUNDLED_MODEL)
        words = [*SMALL, "--num-requests", 4]
        self.assertEqual(self.report_of("bench", "--model", store, *words, *MIXED)["fingerprint"],
                         self.report_of("bench", *words)["fingerprint"])
        planned = self.report_of("plan", "--model", store, *words, *ON_DISK)
        self.assertEqual(planned["model"]["name"], "tales-opt-8m")
        text = self.run_verb("inspect", store).stdout.decode()
        for part in ("store", "tiles", "tales-opt-8m", "every tensor of the model is there", "first tensors"):
            self.assertIn(part, text)

    def test_a_store_of_a_store_is_the_same(self):
        first = self.convert("--model", PARITY_MODELS / "bf16-head128", name="first")
        second = self.convert("--model", first, name="second")
        self.assertEqual((first / "weights.bin").read_bytes(), (second / "weights.bin").read_bytes())

    def test_an_existing_output(self):
        store = self.convert("--model", PARITY_MODELS / "bf16-head128")
        words = ["convert", "--model", PARITY_MODELS / "prenorm-head64", "--output"]
        self.assertIn("--overwrite", self.refusal(52, *words, store))
        self.run_verb(*words, store, "--overwrite", "--quiet")
        self.assertIn("prenorm-head64", self.run_verb("inspect", store).stdout.decode())
        self.assertFalse((store / "vocab.json").exists(), "the old store's files are gone")
        self.assertEqual([path.name for path in self.folder.iterdir()], ["model.store"])
        other = self.folder / "mine"
        other.mkdir()
        (other / "notes.txt").write_text("kept")
        self.refusal(52, *words, other)
        self.refusal(52, *words, other, "--overwrite")
        self.assertEqual((other / "notes.txt").read_text(), "kept")
        shutil.copytree(PARITY_MODELS / "bf16-head128", self.folder / "model")
        (self.folder / "model" / "weights.bin").write_bytes(b"of somebody else")
        self.refusal(52, *words, self.folder / "model", "--overwrite")
        self.assertTrue((self.folder / "model" / "config.json").exists())

    def test_refusals_leave_nothing(self):
        model = ["--model", PARITY_MODELS / "bf16-head128"]
        self.assertIn("--output", self.refusal(2, "convert", *model))
        self.assertIn("--percent", self.refusal(2, "convert", *model, "--output", "s", "--percent", 0))
        self.refusal(60, "convert", *model, "--output", self.folder / "no" / "s")
        self.refusal(12, "convert", "--model", self.folder / "missing", "--output", "s")
        self.assertEqual(list(self.folder.iterdir()), [])

    def test_an_interruption_leaves_nothing(self):
        words = ["convert", "--model", "opt-1.3b", "--dummy-weights", "--output", "s", "--quiet"]
        process = self.background([BINARY, *words])
        while process.poll() is None and not (self.folder / "s.part" / "weights.bin").exists():
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        self.assertIn(b"E-INTERRUPTED", process.communicate()[1])
        self.assertEqual(process.returncode, 75)
        self.assertEqual(list(self.folder.iterdir()), [])

    def test_a_damaged_store(self):
        store = self.convert("--model", harness.BUNDLED_MODEL)
        weights = store / "weights.bin"
        good = weights.read_bytes()
        weights.write_bytes(good[:5000] + bytes([good[5000] ^ 1]) + good[5001:])
        self.assertIn("tile 0", self.refusal(41, "bench", "--model", store, *SMALL))
        self.refusal(41, "bench", "--model", store, *SMALL, *ON_DISK, "--offload-dir", self.folder)
        weights.write_bytes(good[:-4096])
        self.refusal(10, "bench", "--model", store, *SMALL)
        (store / "store.json").unlink()
        self.refusal(10, "inspect", store)

    def test_unchecked_weights_are_asked_for_again(self):
        model = self.folder / "bad"
        shutil.copytree(PARITY_MODELS / "bf16-head128", model)
        weights = model / "model.safetensors"
        content = bytearray(weights.read_bytes())
        content[-2:] = b"\xc0\x7f"  # NaN in bf16
        weights.write_bytes(content)
        self.refusal(44, "convert", "--model", model, "--output", self.folder / "s")
        self.run_verb("convert", "--model", model, "--output", self.folder / "s", "--allow-nonfinite-weights", "--quiet")
        self.assertIn("--allow-nonfinite-weights", self.refusal(44, "bench", "--model", self.folder / "s", *SMALL))

    def test_help_and_file(self):
        text = self.run_verb("convert", "--help").stdout.decode()
        for flag in ("--output", "--overwrite", "--model", "--threads"):
            self.assertIn(flag, text)
        for flag in ("--percent", "--prompt-len", "--temperature", "--report"):
            self.assertNotIn(flag, text)
        config = self.folder / "c.toml"
        config.write_text(f'[convert]\nmodel = "{PARITY_MODELS / "bf16-head128"}"\noutput = "{self.folder / "s"}"\n')
        self.assertIn(b"bf16-head128", self.run_verb("convert", "--config", config).stdout)
        self.assertTrue((self.folder / "s" / "store.json").exists())


if __name__ == "__main__":
    harness.VerbTest.binary = BINARY = pathlib.Path(sys.argv.pop(1)).resolve()
    unittest.main()
