"""`spillway search` and `spillway simulate`, --policy and --machine: what is predicted against what runs, and what is
refused. Standard library only.

  python3 simulate_test.py path/to/spillway [unittest arguments]
"""

import itertools
import json
import pathlib
import re
import resource
import subprocess
import sys
import unittest

import harness

T4 = harness.REPOSITORY / "examples" / "machines" / "t4.json"
XEON = T4.with_name("xeon-2-cores.json")
OPT_30B = ["--model", "opt-30b", "--machine", T4, "--prompt-len", 512, "--gen-len", 32]
LONG_ANSWERS = [*OPT_30B[:-1], 1024]  # where bits matter
POLICIES = harness.REPOSITORY / "examples" / "policies"
LINKS = ["disk_read", "disk_write", "cpu_to_gpu", "gpu_to_cpu"]


class PlanningTest(harness.VerbTest):
    def machine_like(self, **changes):
        """The T4's file with other values."""
        document = json.loads(T4.read_text()) | changes
        path = self.folder / "machine.json"
        path.write_text(json.dumps(document))
        return path


class Search(PlanningTest):
    def test_more_memory_never_leaves_no_policy(self):
        """What the linear program places in two tiers takes more staging than it counts."""
        for machine in ("rtx-4090", "t4"):
            for cpu in (4100, 4200, 5000, 7000, 8000):
                self.report_of("search", "--model", "opt-30b", "--machine", machine, "--kv-bits", "8,4", "--disk-space",
                               "57188MiB", "--gpu-memory", "2887MiB", "--prompt-len", 512, "--gen-len", 32,
                               "--num-requests", 64, "--cpu-memory", f"{cpu}MiB")

    def test_what_it_finds_is_what_is_simulated(self):
        best = self.report_of("search", *OPT_30B, "--output", self.folder / "policy.json")
        policy = json.loads((self.folder / "policy.json").read_text())
        self.assertEqual(policy["version"], 1)
        self.assertEqual(best["policy"]["gpu_batch_size"], policy["gpu_batch_size"])
        run = self.report_of("simulate", *OPT_30B, "--policy", self.folder / "policy.json")
        self.assertEqual(run["block"]["num_blocks"], 1)
        rate = run["throughput"]["generated_tokens_per_s"]
        self.assertAlmostEqual(run["predicted"]["generated_tokens_per_s"], rate, delta=1e-6 * rate)
        # The search takes neighbouring passes together.
        self.assertAlmostEqual(best["predicted"]["generated_tokens_per_s"], rate, delta=0.01 * rate)
        plan = self.report_of("plan", *OPT_30B, "--policy", self.folder / "policy.json")
        self.assertEqual(plan["predicted"], run["predicted"])
        for tier in plan["tiers"].values():
            self.assertLessEqual(tier["planned_peak_bytes"], tier["cap_bytes"])

    def test_it_beats_policies_written_by_hand(self):
        """Weights and KV in round shares of the memories, attended to by either processor."""
        rates = []
        words = ["simulate", *OPT_30B, "--num-requests", 512, "--quiet", "--report", "hand.json"]
        for weights, kv, hidden, (rows, batches), attention in itertools.product(
                ([0, 50], [20, 40]), ([0, 100], [0, 25]), ([100, 0], [0, 100]), ((32, 8), (64, 4)),
                ("--cpu-attention", "--no-cpu-attention")):
            done = harness.run(self.binary, [*words, "--percent", *weights, *kv, *hidden, "--gpu-batch-size", rows,
                                             "--num-gpu-batches", batches, attention], cwd=self.folder)
            if done.status == 0:
                rates.append(json.loads((self.folder / "hand.json").read_text())["throughput"]["generated_tokens_per_s"])
        self.assertGreater(len(rates), 10)
        found = self.report_of("search", *OPT_30B, "--num-requests", 512)["predicted"]["generated_tokens_per_s"]
        self.assertGreater(found, 1.1 * max(rates))

    def test_fewer_bits_are_found_and_run(self):
        best = self.report_of("search", *LONG_ANSWERS, "--allow-4bit", "--output", self.folder / "policy.json")
        policy = json.loads((self.folder / "policy.json").read_text())
        self.assertLess(policy["weight_bits"], 16)
        self.assertEqual(best["policy"]["weight_bits"], policy["weight_bits"])
        run = self.report_of("simulate", *LONG_ANSWERS, "--policy", self.folder / "policy.json")
        self.assertEqual(run["policy"]["kv_bits"], policy["kv_bits"])
        rate = run["throughput"]["generated_tokens_per_s"]
        self.assertAlmostEqual(best["predicted"]["generated_tokens_per_s"], rate, delta=0.01 * rate)
        sixteen = self.report_of("search", *LONG_ANSWERS, "--allow-4bit", "--weight-bits", 16, "--kv-bits", 16)
        self.assertLess(sixteen["predicted"]["generated_tokens_per_s"], rate)

    def test_codes_on_a_gpu_are_planned_for(self):
        """Its kernels take them: no warning."""
        self.assertEqual(self.run_verb("search", "--allow-4bit", *OPT_30B).stderr, b"")
        self.assertEqual(self.run_verb("simulate", *OPT_30B, "--kv-bits", 4, "--weight-bits", 4).stderr, b"")

    def test_the_table_has_ten_lines_and_what_more_would_give(self):
        text = self.run_verb("search", *OPT_30B).stdout.decode()
        self.assertEqual(len(text.split("with more,")[0].splitlines()), 11)
        self.assertIn("one more GiB of gpu", text)
        self.assertRegex(text.splitlines()[-1], r"^the first line's policy \(keep it with --output\): weights are read once for \d+ rows ")
        by_link = self.run_verb("search", *OPT_30B, "--no-cpu-attention").stdout.decode()
        self.assertIn("one more GB/s of cpu_to_gpu", by_link)

    def test_what_more_memory_gives_is_what_a_search_with_it_finds(self):
        rates = [self.report_of("search", *OPT_30B, "--gpu-memory", f"{size}GiB")["predicted"]["generated_tokens_per_s"] for size in (6, 7)]
        text = self.run_verb("search", *OPT_30B, "--gpu-memory", "6GiB").stdout.decode()
        told = re.search(r"one more GiB of gpu +\+([0-9.e+]+) tokens/s", text)
        self.assertAlmostEqual(float(told[1]), rates[1] - rates[0], delta=0.01 * (rates[1] - rates[0]))

    def test_lengths_of_a_file_are_searched_for(self):
        harness.write_jsonl(self.folder / "in.jsonl",
                            [{"token_ids": [2] * (10 + 50 * (row % 5)), "max_tokens": 4 + row % 9} for row in range(40)])
        report = self.report_of("search", "--model", "opt-6.7b", "--tokenizer", "none", "--machine", T4, "--input",
                                self.folder / "in.jsonl", "--output", self.folder / "policy.json")
        self.assertEqual(report["workload"]["num_requests"], 40)
        self.assertLessEqual(report["policy"]["gpu_batch_size"], 40)
        self.assertGreater(report["predicted"]["generated_tokens_per_s"], 0)

    def test_what_it_says_is_missing_is_enough(self):
        xeon = harness.REPOSITORY / "examples" / "machines" / "xeon-2-cores.json"
        rtx = harness.REPOSITORY / "examples" / "machines" / "rtx-4090.json"
        sizes = ["--prompt-len", 512, "--gen-len", 32]
        for model, machine, caps in (
                ("opt-6.7b", xeon, {"--cpu-memory": "500MiB"}),
                ("opt-6.7b", xeon, {"--cpu-memory": "500MiB", "--disk-space": "1GiB"}),
                ("opt-30b", T4, {"--gpu-memory": "300MiB", "--cpu-memory": "2GiB"}),
                ("gpt-oss-120b", T4, {"--gpu-memory": "1GiB", "--cpu-memory": "1GiB"}),
                ("llama-3.1-70b", rtx, {"--gpu-memory": "1GiB", "--cpu-memory": "3GiB", "--disk-space": "20GiB"})):
            with self.subTest(model=model, caps=caps):
                base = ["search", "--model", model, "--machine", machine, *sizes]
                result = harness.run(self.binary, [*base, *itertools.chain(*caps.items())])
                self.assertIn(result.status, (30, 31, 32), result.stderr)
                said = result.stderr.decode().split("give at least ")[1].split(", or more")[0].replace(" and ", " ").split()
                caps |= dict(zip(said[::2], said[1::2]))
                self.run_verb(*base, *itertools.chain(*caps.items()))

    def test_names_what_is_missing(self):
        line = self.refusal(32, "search", *OPT_30B, "--cpu-memory", "1GiB", "--disk-space", "10GiB")
        self.assertIn("no policy fits", line)
        self.assertIn("of disk; give at least --disk-space", line)
        for verb in ("search", "simulate"):
            refusal = self.refusal(3, verb, "--model", "opt-125m")
            for part in ("rates are not known", "spillway profile", "--machine FILE", "examples/machines"):
                self.assertIn(part, refusal)


# Published generated tokens/s, one T4 of 16 GB, 512 + 32 tokens: (model, policy) -> what FlexGen's paper (arXiv 2303.06865)
# and H2O's (2306.14048) give for it.
PUBLISHED = {
    ("opt-6.7b", "flexgen-opt-6.7b-512-32"): [25.3, 20.2],
    ("opt-6.7b", "h2o-opt-6.7b-512-32"): [35.1],
    ("opt-30b", "flexgen-opt-30b-512-32"): [7.32, 8.1],
    ("opt-30b", "h2o-opt-30b-512-32"): [12.66],
    ("opt-175b", "flexgen-opt-175b-512-32"): [0.69],
}


class Simulate(PlanningTest):
    def test_as_flexgen_predicts_what_was_published(self):
        for (model, policy), published in PUBLISHED.items():
            report = self.report_of("simulate", "--model", model, "--machine", T4, "--prompt-len", 512, "--gen-len", 32,
                                    "--policy", POLICIES / f"{policy}.json", "--as-flexgen")
            for rate in published:
                with self.subTest(policy=policy, published=rate):
                    self.assertAlmostEqual(report["throughput"]["generated_tokens_per_s"] / rate, 1, delta=0.15)

    def test_as_flexgen_is_slower(self):
        flags = [*OPT_30B, "--policy", POLICIES / "flexgen-opt-30b-512-32.json", "--cpu-memory", "300GiB"]
        rates = [self.report_of("simulate", *flags, *more)["throughput"]["generated_tokens_per_s"]
                 for more in ([], ["--as-flexgen"], ["--no-overlap"])]
        self.assertGreater(rates[0], 1.2 * rates[1])
        self.assertGreater(rates[0], 1.02 * rates[2])
        without = json.loads(T4.read_text())
        del without["flexgen"]
        (self.folder / "machine.json").write_text(json.dumps(without))
        line = self.refusal(3, "simulate", "--model", "opt-125m", "--machine", self.folder / "machine.json",
                            "--as-flexgen")
        self.assertIn("no flexgen section", line)

    def test_a_trace_shows_what_the_report_counts(self):
        path = self.folder / "trace.json"
        report = self.report_of("simulate", "--model", "opt-1.3b", "--machine", T4, "--prompt-len", 64, "--gen-len", 3,
                                "--percent", 0, 50, 0, 50, 0, 100, "--gpu-batch-size", 4, "--num-gpu-batches", 2,
                                "--trace", path)
        events = [event for event in json.loads(path.read_text())["traceEvents"] if event["ph"] == "X"]
        tracks = {event["tid"]: event["args"]["name"] for event in json.loads(path.read_text())["traceEvents"]
                  if event["name"] == "thread_name"}
        for link in LINKS:
            moved = sum(event["args"].get("bytes", 0) for event in events if tracks[event["tid"]].startswith(link))
            self.assertGreater(moved, 0)
            self.assertAlmostEqual(moved, report["links"][link]["bytes"], delta=0.01 * moved)

    def test_a_trace_that_cannot_be_written_leaves_nothing(self):
        words = ["simulate", "--model", "opt-1.3b", "--machine", T4, "--prompt-len", 64, "--gen-len", 64, "--quiet",
                 "--trace", self.folder / "trace.json"]
        done = subprocess.run(
            [self.binary, *map(str, words)], capture_output=True, env=harness.clean_environment(), check=False,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096)),
        )
        self.assertEqual(done.returncode, 32, done.stderr)
        self.assertEqual(list(self.folder.iterdir()), [])

    def test_work_is_what_decoding_computes_and_reads(self):
        report = self.report_of("simulate", "--model", "opt-125m", "--machine", T4, "--prompt-len", 4, "--gen-len", 3,
                                "--num-requests", 6, "--gpu-batch-size", 2, "--num-gpu-batches", 3, "--no-cpu-attention")
        hidden, blocks, vocabulary, passes, rows, batches = 768, 12, 50272, 2, 6, 3
        multiplied = blocks * 12 * hidden**2 + vocabulary * hidden
        attended = rows * blocks * (5 + 6)
        self.assertEqual(report["work"]["decode_flops"], 2 * multiplied * rows * passes + 4 * attended * hidden)
        self.assertEqual(report["work"]["decode_memory_bytes"],
                         report["model"]["weight_bytes"] * passes * batches + 4 * attended * hidden)
        self.assertEqual(report["machine"]["matmul_flops_per_s"], 2.2e13)
        self.assertEqual(report["machine"]["memory_bytes_per_s"], 2.2e11)

    def test_a_report_says_that_its_rates_were_disturbed(self):
        small = ["--prompt-len", 4, "--gen-len", 3, "--num-requests", 2, "--gpu-batch-size", 2]
        for verb in ("simulate", "plan", "bench"):
            for disturbed in ("others took 30 % of the processor", None):
                machine = self.machine_like(**({"disturbed": disturbed} if disturbed else {}))
                report = self.report_of(verb, *small, "--machine", machine)
                self.assertEqual(report["machine"].get("disturbed"), disturbed, verb)

    def test_bytes_are_those_of_a_run(self):
        """A run on an emulated GPU of the same size moves what was simulated, but for the weights that it has asked for
        ahead when it ends."""
        caps = {"gpu": 512 << 20, "cpu": 4 << 30, "disk": 4 << 30}
        machine = self.machine_like(cap_bytes=caps, threads=1)
        work = ["--model", "opt-125m", "--dummy-weights", "--prompt-len", 40, "--gen-len", 9, "--num-requests", 10,
                "--no-cpu-attention"]
        for policy in (["--percent", 30, 30, 30, 30, 30, 30, "--gpu-batch-size", 3, "--num-gpu-batches", 2],
                       ["--percent", 0, 0, 0, 0, 0, 0, "--gpu-batch-size", 4, "--num-gpu-batches", 1],
                       ["--percent", 50, 50, 0, 100, 0, 100, "--gpu-batch-size", 2, "--num-gpu-batches", 3],
                       ["--percent", 0, 50, 0, 0, 0, 0, "--gpu-batch-size", 5, "--num-gpu-batches", 2, "--no-overlap"]):
            run = self.report_of("bench", *work, *policy, "--emulate-gpu", caps["gpu"], "--cpu-memory", caps["cpu"],
                                 "--disk-space", caps["disk"], "--threads", 1, "--machine", machine)
            simulated = self.report_of("simulate", *work, *policy, "--machine", machine)
            for key in ("block", "placement", "policy"):
                self.assertEqual(run[key], simulated[key], policy)
            self.assertGreater(run["predicted"]["generated_tokens_per_s"], 0)
            for key in ("prompt_tokens", "generated_tokens"):
                self.assertEqual(run["workload"][key], simulated["workload"][key], policy)
            for link in LINKS:
                bytes_moved = run["links"][link]["bytes"]
                slack = 3 * (14 << 20) if link in ("disk_read", "cpu_to_gpu") else 0
                self.assertAlmostEqual(simulated["links"][link]["bytes"], bytes_moved, delta=slack, msg=(policy, link))

    def test_a_machine_without_a_gpu_can_emulate_one(self):
        work = ["--model", "opt-125m", "--percent", 50, 50, 100, 0, 100, 0, "--gpu-batch-size", 8]
        report = self.report_of("simulate", *work, "--machine", XEON, "--emulate-gpu", "2GiB", "--cpu-memory", "4GiB")
        caps = {tier: use["cap_bytes"] for tier, use in report["tiers"].items()}
        self.assertEqual((caps["gpu"], caps["cpu"]), (2 << 30, 4 << 30))
        self.assertGreater(report["links"]["cpu_to_gpu"]["bytes"], 0)
        line = self.refusal(2, "simulate", *work, "--machine", T4, "--emulate-gpu", "2GiB")
        self.assertIn("the machine of --machine has one", line)


class PolicyFiles(PlanningTest):
    def test_flags_beat_the_file(self):
        flags = [*OPT_30B, "--policy", POLICIES / "flexgen-opt-30b-512-32.json", "--cpu-memory", "300GiB"]
        report = self.report_of("plan", *flags)
        self.assertEqual(report["policy"]["gpu_batch_size"], 48)
        self.assertEqual(report["policy"]["weight_frac"], {"gpu": 0.2, "cpu": 0.8, "disk": 0.0})
        self.assertTrue(report["policy"]["cpu_attention"])
        report = self.report_of("plan", *flags, "--gpu-batch-size", 8, "--no-cpu-attention",
                                "--percent", 0, 100, 0, 100, 0, 100)
        self.assertEqual(report["policy"]["gpu_batch_size"], 8)
        self.assertEqual(report["policy"]["num_gpu_batches"], 3)
        self.assertFalse(report["policy"]["cpu_attention"])
        self.assertEqual(report["policy"]["weight_frac"]["cpu"], 1.0)

    def test_a_policy_of_a_search_keeps_what_is_given(self):
        report = self.report_of("simulate", *OPT_30B, "--gpu-batch-size", 6, "--num-gpu-batches", 2)
        self.assertEqual(report["policy"]["gpu_batch_size"], 6)
        self.assertEqual(report["policy"]["num_gpu_batches"], 2)

    def test_bad_files_are_refused_with_their_path(self):
        document = json.loads((POLICIES / "flexgen-opt-30b-512-32.json").read_text())
        path = self.folder / "bad.json"
        for change, expected in (({"version": 2}, "$.version"), ({"extra": 1}, "$.extra: unknown key"),
                                 ({"weight_frac": {"gpu": 0.9, "cpu": 0.9, "disk": 0}}, "$.weight_frac"),
                                 ({"gpu_batch_size": "8"}, "$.gpu_batch_size")):
            path.write_text(json.dumps(document | change))
            self.assertIn(expected, self.refusal(3, "plan", *OPT_30B, "--policy", path))
        path.write_text(json.dumps(document)[:-1])
        self.assertIn("not valid JSON", self.refusal(3, "plan", *OPT_30B, "--policy", path))
        self.refusal(3, "plan", *OPT_30B, "--policy", self.folder / "none.json")

    def test_a_gpu_that_is_not_there(self):
        line = self.refusal(3, "bench", "--prompt-len", 9, "--gen-len", 2, "--policy",
                            POLICIES / "flexgen-opt-6.7b-512-32.json")
        self.assertIn("the policy file puts a share on the gpu", line)

    def test_generate_takes_a_policy_file(self):
        policy = json.loads((POLICIES / "flexgen-opt-30b-512-32.json").read_text())
        everything = {"gpu": 0, "cpu": 1, "disk": 0}
        policy |= {"weight_frac": everything, "kv_frac": everything, "activation_frac": everything,
                   "gpu_batch_size": 2, "num_gpu_batches": 2}
        path = self.folder / "policy.json"
        path.write_text(json.dumps(policy))
        source = harness.write_jsonl(self.folder / "in.jsonl", [{"prompt": "a tale"}] * 5)
        outputs = []
        for words in ([], ["--policy", path], ["--policy", "auto"]):
            out = self.folder / f"out{len(outputs)}.jsonl"
            report = self.report_of("generate", source, "--output", out, "--max-new-tokens", 4, *words)
            outputs.append([harness.choice(line)["token_ids"] for line in harness.read_jsonl(out)])
            if words == ["--policy", path]:
                self.assertEqual(report["block"]["gpu_batch_size"], 2)
        self.assertEqual(outputs[0], outputs[1])
        self.assertEqual(outputs[0], outputs[2])


if __name__ == "__main__":
    harness.VerbTest.binary = pathlib.Path(sys.argv.pop(1)).resolve()
    unittest.main(verbosity=2)
