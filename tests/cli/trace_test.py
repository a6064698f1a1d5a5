"""`--trace`: a whole JSON file whose spans agree with the report, also of a run that is stopped. Standard library only.

  python3 trace_test.py path/to/spillway [unittest arguments]
"""

import collections
import json
import pathlib
import resource
import signal
import subprocess
import sys
import time
import unittest

import harness

BINARY = pathlib.Path()
PROMPTS = harness.REPOSITORY / "examples" / "prompts.jsonl"
LINKS = ("disk_read", "disk_write", "cpu_to_gpu", "gpu_to_cpu")
LANES = ("compute", "waiting", *LINKS)
SHAPE = ["--gpu-batch-size", 2, "--num-gpu-batches", 3]
DISK = ["--percent", 0, 0, 0, 100, 0, 100, *SHAPE]
EMULATED = ["--emulate-gpu", "2GiB", "--percent", 20, 30, 20, 30, 20, 30, *SHAPE]


class Trace:
    """The events of a trace file, by lane; times in nanoseconds, so that they compare exactly."""

    def __init__(self, path):
        document = json.loads(path.read_text(encoding="utf-8"))
        self.dropped = document["otherData"]["dropped_events"]
        self.tracks = collections.defaultdict(list)  # thread name -> [(begin, end, event)]
        self.counters = collections.defaultdict(list)
        events = document["traceEvents"]
        threads = {event["tid"]: event["args"]["name"] for event in events if event["name"] == "thread_name"}
        ranks = {event["tid"]: event["args"]["sort_index"] for event in events if event["name"] == "thread_sort_index"}
        # Names of threads, as viewers order them.
        self.names = [threads[thread] for thread in sorted(threads, key=ranks.get)]
        for event in events:
            if event["ph"] == "X":
                begin = round(event["ts"] * 1000)
                self.tracks[threads[event["tid"]]].append((begin, begin + round(event["dur"] * 1000), event))
            elif event["ph"] == "C":
                self.counters[event["name"]].append(event)

    def lane(self, name):
        """The spans of a lane, of all its tracks: "disk_read", "disk_read 2", ..."""
        return [span for track, spans in self.tracks.items() if track.split()[0] == name for span in spans]


class TraceTest(harness.FolderTest):
    def setUp(self):
        super().setUp()
        self.trace = self.folder / "t.json"

    def words(self, source, *flags):
        return ["generate", "--input", source, "--output", self.folder / "out.jsonl", "--offload-dir", self.folder,
                "--trace", self.trace, "--quiet", *flags]

    def generate(self, *flags, source=PROMPTS, status=0):
        result = harness.run(BINARY, self.words(source, *flags), cwd=self.folder)
        self.assertEqual(result.status, status, result.stderr.decode(errors="replace"))
        return result

    def traced(self, *flags):
        path = self.folder / "r.json"
        self.generate("--overwrite", "--report", path, *flags)
        return Trace(self.trace), json.loads(path.read_text())


class AgreesWithTheReport(TraceTest):
    def check(self, *flags):
        trace, report = self.traced(*flags)
        self.assertEqual(trace.dropped, 0)
        self.check_lanes(trace)
        self.check_names(trace)
        self.check_totals(trace, report)
        self.check_counters(trace, report)
        return trace, report

    def check_lanes(self, trace):
        firsts = [name for name in trace.names if len(name.split()) == 1]
        self.assertEqual(tuple(firsts), LANES)
        self.assertEqual([LANES.index(name.split()[0]) for name in trace.names],
                         sorted(LANES.index(name.split()[0]) for name in trace.names))
        for name, spans in trace.tracks.items():
            spans.sort(key=lambda span: span[:2])
            for (_, end, before), (begin, _, event) in zip(spans, spans[1:]):
                self.assertLessEqual(end, begin, (name, before, event))
        serial = sorted((trace.lane("compute") + trace.lane("waiting")), key=lambda span: span[:2])
        for (_, end, before), (begin, _, event) in zip(serial, serial[1:]):
            self.assertLessEqual(end, begin, (before, event))

    def check_names(self, trace):
        for _, _, event in trace.lane("compute"):
            self.assertRegex(event["name"], r"^(embedding|(attention|MLP) \d+|head), batch \d+$")
            self.assertEqual({"pass", "layer", "batch"}, set(event["args"]))
        for link in LINKS:
            for _, _, event in trace.lane(link):
                self.assertRegex(
                    event["name"],
                    r"^(weights of layer \d+|KV of block \d+, batch \d+|activations of layer \d+, batch \d+)$",
                )
                self.assertLessEqual({"pass", "layer", "bytes"}, set(event["args"]))

    def check_totals(self, trace, report):
        for link in LINKS:
            moved = sum(event["args"]["bytes"] for _, _, event in trace.lane(link))
            self.assertEqual(moved, report["links"][link]["bytes"], link)
        phases = report["phases"].values()
        compute_s = sum(end - begin for begin, end, _ in trace.lane("compute")) / 1e9
        expected_s = sum(phase["compute_s"] for phase in phases)
        self.assertAlmostEqual(compute_s, expected_s, delta=expected_s / 100)
        # Waits of less than 1 us are in the report only: up to three a compute.
        waiting_s = sum(end - begin for begin, end, _ in trace.lane("waiting")) / 1e9
        waited_s = sum(sum(phase["wait_s"].values()) for phase in phases)
        slack_s = 3e-6 * len(trace.lane("compute"))
        self.assertAlmostEqual(waiting_s, waited_s, delta=0.01 * waited_s + slack_s)
        passes = {event["args"]["pass"] for _, _, event in trace.lane("compute")}
        self.assertEqual(passes, set(range(report["block"]["passes"])))

    def check_counters(self, trace, report):
        used = [tier for tier, size in report["tiers"].items() if size["planned_peak_bytes"] > 0]
        self.assertEqual(set(trace.counters), {"rows", *(f"{tier} bytes" for tier in used)})
        for samples in trace.counters.values():
            self.assertEqual(len(samples), report["block"]["passes"])
        for tier in used:
            for sample in trace.counters[f"{tier} bytes"]:
                args = sample["args"]
                self.assertEqual(set(args), {"weights", "kv", "staging"})
                self.assertLessEqual(sum(args.values()), report["tiers"][tier]["planned_peak_bytes"])
        kv = zip(*(trace.counters[f"{tier} bytes"] for tier in used))
        self.assertEqual(max(sum(sample["args"]["kv"] for sample in samples) for samples in kv), report["kv"]["bytes"])

    def test_everything_in_place(self):
        trace, _ = self.check()
        self.assertEqual([link for link in LINKS if trace.lane(link)], [])

    def test_weights_on_disk(self):
        trace, _ = self.check(*DISK)
        self.assertEqual([link for link in LINKS if trace.lane(link)], ["disk_read"])

    def test_three_tiers(self):
        trace, _ = self.check(*EMULATED)
        self.assertEqual([link for link in LINKS if trace.lane(link)], list(LINKS))

    def test_without_overlap(self):
        trace, _ = self.check(*EMULATED, "--no-overlap")
        self.assertIn("stores", {event["name"] for _, _, event in trace.lane("waiting")})


class Ends(TraceTest):
    def test_an_interrupted_run_has_its_trace(self):
        source = harness.write_jsonl(
            self.folder / "in.jsonl", [{"prompt": f"Chapter {i}.", "max_tokens": 300, "ignore_eos": True} for i in range(2000)]
        )
        process = self.background([BINARY, *self.words(source, *EMULATED)])
        part = self.folder / "t.json.part"
        deadline = time.monotonic() + 120 * harness.SLOWDOWN
        while not (part.exists() and part.stat().st_size > 1 << 20) and process.poll() is None:
            self.assertLess(time.monotonic(), deadline, "nothing was traced in two minutes")
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        _, stderr = process.communicate(timeout=60 * harness.SLOWDOWN)
        self.assertEqual(process.returncode, 75, stderr)
        self.assertGreater(len(Trace(self.trace).lane("compute")), 100)
        self.assertFalse(part.exists())

    def test_a_run_that_fails_has_its_trace(self):
        """The output meets the file size limit; the trace, on a pipe to this process, does not."""
        records = [{"prompt": "Once", "max_tokens": 40, "ignore_eos": True}] * 64
        source = harness.write_jsonl(self.folder / "in.jsonl", records)
        self.trace = "/dev/stderr"
        done = subprocess.run(
            [BINARY, *map(str, self.words(source, "--gpu-batch-size", 2))], capture_output=True,
            env=harness.clean_environment(), check=False,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096)),
        )
        self.assertEqual(done.returncode, 32, done.stderr[-300:])
        text, _, error = done.stderr.rpartition(b"spillway: error[")
        self.assertIn(b"E-DISK", error)
        self.trace = self.folder / "t.json"
        self.trace.write_bytes(text)
        self.assertGreater(len(Trace(self.trace).lane("compute")), 10)

    def test_a_run_of_bad_lines_alone_has_an_empty_one(self):
        source = harness.write_jsonl(self.folder / "in.jsonl", [{"promt": "a"}])
        self.generate(source=source, status=21)
        self.assertEqual(Trace(self.trace).names, list(LANES))


class Places(TraceTest):
    def test_it_never_replaces_what_the_run_reads_or_writes(self):
        source = harness.write_jsonl(self.folder / "in.jsonl", [{"prompt": "a", "max_tokens": 2}])
        before = source.read_bytes()
        output = self.folder / "out.jsonl"
        for path, status, more in (
            (source, 20, []), (output, 60, []), (f"{output}.part", 60, []), ("-", 60, []),
            ("r.json", 60, ["--report", "r.json"]), ("r.json", 60, ["--report", "r.json.part"]),
            ("r.json.part", 60, ["--report", "r.json"]), ("none/t.json", 60, []),
        ):
            self.trace = path
            self.generate(*more, source=source, status=status)
        self.assertEqual(source.read_bytes(), before)
        self.assertEqual([path.name for path in self.folder.iterdir()], ["in.jsonl"])

    def test_the_output_is_the_same(self):
        self.generate(*EMULATED)
        traced = (self.folder / "out.jsonl").read_bytes()
        result = harness.run(BINARY, ["generate", PROMPTS, "--quiet"])
        self.assertEqual(result.stdout, traced)


if __name__ == "__main__":
    BINARY = pathlib.Path(sys.argv.pop(1)).resolve()
    unittest.main()
