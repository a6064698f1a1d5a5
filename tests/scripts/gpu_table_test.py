"""benchmarks/gpu_table.py without a GPU: what it reads, decides and writes; and Spillway's rows on a GPU in software.
nvidia-smi and the peers are stand-ins. Standard library only.

  python3 gpu_table_test.py [path/to/spillway_soft_gpu]
"""

import json
import os
import pathlib
import subprocess
import sys
import unittest

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(REPOSITORY / "benchmarks"), str(REPOSITORY / "tests/cli")]

import gpu_table  # noqa: E402
import gpu_table_rows as rows  # noqa: E402
import gpu_table_settings as settings  # noqa: E402
import harness  # noqa: E402
import stand_ins  # noqa: E402
from stand_ins import FLEXGEN_LOG, NVIDIA_SMI  # noqa: E402

GIB = 1 << 30


def told(what, *values):
    return "".join(f"\ngpu_table {what} {value}\n" for value in values)


def row(program, kv, **more):
    return {"setting": "opt-6.7b:512+32", "program": program, "kv": kv, **more}


class Output(unittest.TestCase):
    def test_a_finished_log_of_flexgen(self):
        figures = rows.flexgen_figures("warmup - generate\n" + FLEXGEN_LOG)
        self.assertEqual((figures["prefill_s"], figures["decode_s"]), (0.25, 1.55))
        self.assertEqual((figures["decode_tokens_per_s"], figures["tokens_per_s"]), (40.0, 35.556))
        self.assertEqual((figures["torch_peak_gpu_bytes"], figures["projected"]), (int(13.5 * GIB), False))

    def test_half_a_log_is_none(self):
        self.assertEqual(rows.flexgen_figures(FLEXGEN_LOG[: FLEXGEN_LOG.index("total latency")]), {})

    def test_passes_of_the_last_beginning_count(self):
        text = told("pass", 9) + told("begin", 8) + told("pass", 5) + "8 rows do not fit" + told("begin", 4) + told("pass", 2, 0.5, 0.5)
        figures = rows.pass_figures(text, 3)
        self.assertEqual((figures["rows"], figures["passes"], figures["prefill_s"]), (4, 3, 2.0))
        self.assertEqual((figures["decode_tokens_per_s"], figures["tokens_per_s"]), (8.0, 4.0))
        cut = rows.pass_figures(text, 32)
        self.assertNotIn("tokens_per_s", cut)
        self.assertEqual(cut["so_far_tokens_per_s"], 4.0)

    def test_a_warm_up_is_not_counted(self):
        self.assertEqual(rows.pass_figures(told("pass", 1, 2), 2), {})

    def test_the_last_progress_line_counts(self):
        line = "ETA 59 s  rows 0/8  decode of 8 rows  1,024 tokens read at 0.0/s  96 new at {}/s  memory 1.00 GiB\n"
        text = line.format(172.7) + line.format(168.3)
        self.assertEqual(rows.progress_figures(text), {"so_far_tokens_per_s": 168.3})
        self.assertEqual(rows.progress_figures("spillway: error[E-FLAG]: x\n"), {})

    def test_how_a_run_ended(self):
        def done(status, text, stopped):
            return gpu_table.Done(status, text, 100.0, stopped, 0)

        self.assertEqual(rows.outcome({"tokens_per_s": 1.0}, done(0, "", False)), ("measured", None))
        self.assertEqual(rows.outcome({"passes": 7}, done(-2, "", True)), ("unfinished", "did not finish in 100 s (7 passes)"))
        self.assertEqual(rows.outcome({}, done(-9, "", True)), ("unfinished", "did not finish in 100 s"))
        self.assertEqual(rows.outcome({}, done(1, "a\nOutOfMemoryError: x\n\n", False)), ("failed", "OutOfMemoryError: x"))
        self.assertEqual(rows.outcome({}, done(3, "", False)), ("failed", "exit status 3"))


class Choice(unittest.TestCase):
    def test_settings_are_named_as_they_are_parsed(self):
        for setting in settings.SETTINGS:
            self.assertEqual(settings.Setting.parse(setting.name), setting)

    def test_the_published_block_stays_where_it_fits(self):
        setting = settings.Setting("opt-30b", 512, 32)
        block = settings.published_block("flexgen", setting)
        self.assertEqual((block.rows, block.batches), (48, 3))
        self.assertEqual(settings.fitted(block, setting, 208 * GIB), block)

    def test_less_memory_takes_batches_then_rows(self):
        setting = settings.Setting("opt-30b", 512, 32)
        block = settings.published_block("flexgen", setting)
        smaller = settings.fitted(block, setting, 115 * GIB)
        self.assertEqual((smaller.rows, smaller.batches), (44, 1))
        self.assertLessEqual(settings.cpu_bytes(smaller, setting), 115 * GIB)
        self.assertIsNone(settings.fitted(block, setting, 60 * GIB))

    def test_what_cannot_be_on_the_gpu_is_left_out(self):
        many = settings.Setting("opt-6.7b", 2048, 2048, 64)
        self.assertIn("140 GiB", settings.left_out("flexgen", "full", many, 80 * GIB))
        self.assertIsNone(settings.left_out("h2o_flexgen", "h2o", many, 80 * GIB))
        self.assertIsNone(settings.left_out("spillway", "full", many, 80 * GIB))
        self.assertIn("published", settings.left_out("flexgen", "full", settings.Setting("opt-13b", 512, 32), 80 * GIB))

    def test_accelerate_keeps_the_model_on_the_gpu_where_it_fits(self):
        rows_on_gpu, weights = settings.accelerate_batch(settings.Setting("opt-6.7b", 512, 32), 16 * GIB)
        self.assertGreater(weights, settings.weight_bytes(settings.Setting("opt-6.7b", 512, 32)))
        self.assertGreaterEqual(rows_on_gpu, 4)
        streamed_rows, weights = settings.accelerate_batch(settings.Setting("opt-30b", 512, 32), 16 * GIB)
        self.assertLess(weights + streamed_rows * settings.kv_bytes(settings.Setting("opt-30b", 512, 32), 544), 15 * GIB)


class Result(unittest.TestCase):
    def test_a_rerun_replaces_its_own_row_in_its_place(self):
        result = {"rows": [row("spillway", "full", tokens_per_s=1.0), row("flexgen", "full", tokens_per_s=2.0)]}
        new = [row("spillway", "full", tokens_per_s=3.0), row("spillway", "h2o", tokens_per_s=4.0)]
        self.assertEqual([r["tokens_per_s"] for r in rows.merged(result, new)["rows"]], [3.0, 2.0, 4.0])

    def test_the_table_compares_like_with_like(self):
        lines = rows.table({"rows": [
            row("h2o_flexgen", "h2o", so_far_tokens_per_s=50.0, why="did not finish in 9 s", block={
                "gpu_batch_size": 4, "num_gpu_batches": 1, "published": "52 x 14"}),
            row("accelerate", "full", why="no batch fits"), row("flexgen", "full", tokens_per_s=20.0, projected=True),
            row("spillway", "h2o", tokens_per_s=200.0), row("spillway", "full", tokens_per_s=60.0, peak_gpu_bytes=GIB)]})
        cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines.splitlines()[2:]]
        self.assertEqual([c[1] for c in cells], ["spillway", "spillway", "flexgen", "h2o_flexgen", "accelerate"])
        self.assertEqual([c[-1] for c in cells], ["-", "-", "3.00 x", "about 4.00 x", "-"])
        self.assertEqual([c[4] for c in cells][2:], ["20 (projected)", "50 so far; did not finish in 9 s", "no batch fits"])
        self.assertEqual((cells[0][8], cells[3][3]), ("1.00", "4 x 1 (52 x 14 published)"))


class Program(harness.FolderTest):
    def setUp(self):
        super().setUp()
        self.out = self.folder / "out.json"

    def stand_in(self, name, text):
        return stand_ins.write(self.folder / name, text)

    def machine_file(self):
        (self.folder / "out.machine.json").write_bytes((REPOSITORY / "examples/machines/h200.json").read_bytes())

    def gpu_table(self, *words, path=True):
        environment = os.environ | {"PYTHON": sys.executable}
        environment["PATH"] = f"{self.folder}/bin:/usr/bin:/bin" if path else "/usr/bin:/bin"
        command = [REPOSITORY / "benchmarks/gpu_table.sh", *map(str, words)]
        return subprocess.run(command, capture_output=True, text=True, env=environment, check=False)

    def stage(self, *words):
        self.stand_in("bin/nvidia-smi", NVIDIA_SMI)
        self.machine_file()
        done = self.gpu_table("--out", self.out, *words)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return json.loads(self.out.read_text()), done.stdout

    def test_stages_are_listed(self):
        listed = {line.split()[0] for line in self.gpu_table("--list", path=False).stdout.splitlines()}
        self.assertLessEqual({setting.name for setting in settings.SETTINGS} | {"machine"}, listed)

    @unittest.skipIf(pathlib.Path("/usr/bin/nvidia-smi").exists(), "this machine has nvidia-smi")
    def test_without_a_gpu_it_says_so(self):
        done = self.gpu_table("--out", self.out, "--stage", "opt-6.7b:512+32", path=False)
        self.assertEqual((done.returncode, done.stderr), (42, "gpu_table: this machine has no GPU (nvidia-smi lists none)\n"))

    def test_a_dry_run_prints_the_commands_and_writes_nothing(self):
        done = self.gpu_table("--out", self.out, "--stage", "opt-30b:512+32", "--cpu-memory", 208 * GIB, "--dry-run", path=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        commands = done.stdout.splitlines()
        self.assertEqual([sum(word in command for command in commands) for word in
                          (" search ", " bench ", "peers.py flexgen", "peers.py accelerate")], [2, 2, 2, 1])
        self.assertIn("--percent 20 80 0 100 0 100 --gpu-batch-size 48 --num-gpu-batches 3 --cpu-cache-compute", done.stdout)
        self.assertIn("--hh-ratio 0.1 --hh-all", done.stdout)
        self.assertFalse(self.out.exists())

    def test_wrong_names_are_refused(self):
        for words in (("--stage", "opt-30b"), ("--stage", "opt-30b:1+1", "--programs", "flexgem"), ()):
            done = self.gpu_table(*(("--out", self.out) if words else ()), *words, path=False)
            self.assertEqual(done.returncode, 2, words)

    def test_the_machine_stage_profiles_the_gpu(self):
        self.stand_in("bin/nvidia-smi", NVIDIA_SMI)
        spillway = self.stand_in("build/spillway", '#!/bin/sh\nfor last; do :; done\necho "$@" >"$last"\n')
        done = self.gpu_table("--out", self.out, "--stage", "machine", "--spillway", spillway)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("profile --device cuda:0 --quiet --output", (self.folder / "out.machine.json").read_text())
        self.gpu_table("--out", self.out, "--stage", "machine", "--spillway", spillway, "--quick")
        self.assertIn("--quick", (self.folder / "out.machine.json").read_text())

    def test_rows_of_another_result_are_added(self):
        result = {"hardware": {"gpus": ["A"]}, "gpu_memory": GIB, "rows": [row("spillway", "full", tokens_per_s=1.0)]}
        other = self.folder / "other.json"
        other.write_text(json.dumps(result | {"rows": [row("spillway", "full", tokens_per_s=2.0), row("flexgen", "full", why="x")]}))
        self.assertEqual(self.gpu_table("--out", self.out, "--add", other, "--dry-run", path=False).returncode, 0)
        self.assertFalse(self.out.exists())
        for _ in range(2):  # into a new file, then into the same
            done = self.gpu_table("--out", self.out, "--add", other, path=False)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual([r.get("tokens_per_s") for r in json.loads(self.out.read_text())["rows"]], [2.0, None])
        self.out.write_text(json.dumps(result | {"gpu_memory": 2 * GIB}))
        self.assertEqual(self.gpu_table("--out", self.out, "--add", other, path=False).returncode, 1)

    def peer_stand_ins(self):
        return stand_ins.write_peers(self.folder / "peer")

    def test_a_peer_runs_capped_and_without_a_network(self):
        result, text = self.stage("--stage", "opt-6.7b:512+32", "--programs", "h2o_flexgen,flexgen", "--h2o", self.peer_stand_ins())
        self.assertEqual([r["program"] for r in result["rows"]], ["flexgen", "h2o_flexgen"])
        failed, measured = result["rows"]
        self.assertEqual(failed["status"], "failed")  # only h2o's folder is on its path
        self.assertEqual((measured["status"], measured["tokens_per_s"]), ("measured", 35.556))
        self.assertIn("torch 0, outside torch", measured["versions"])
        self.assertIn("h2o_flexgen", text)

    def test_the_cap_is_what_nvidia_smi_counts_and_positions_are_as_asked(self):
        command = [sys.executable, "-B", REPOSITORY / "benchmarks/gpu_table_peers.py", "flexgen", 16 * GIB, 4096, 4]
        done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False,
                              env=os.environ | {"PYTHONPATH": str(self.peer_stand_ins())})
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn(f"fraction {(16 - 0.5) / 80}", done.stdout)
        self.assertIn("positions 4096", done.stdout)
        self.assertEqual(rows.pass_figures(done.stdout, 2)["tokens_per_s"], 8.0)

    def test_a_slow_peer_gives_a_row_with_what_it_did(self):
        result, text = self.stage("--stage", "opt-6.7b:512+1024", "--programs", "h2o_flexgen", "--h2o", self.peer_stand_ins(),
                                  "--seconds", 12)
        only = result["rows"][0]
        self.assertEqual((only["status"], only["passes"], only["so_far_tokens_per_s"]), ("unfinished", 2, 8.0))
        self.assertIn("8 so far; did not finish in", text)

    def test_another_gpu_is_not_mixed_in(self):
        self.out.write_text(json.dumps({"hardware": {"gpus": ["another"]}, "gpu_memory": 16 * GIB, "rows": []}))
        self.stand_in("bin/nvidia-smi", NVIDIA_SMI)
        self.machine_file()
        done = self.gpu_table("--out", self.out, "--stage", "opt-13b:512+32", "--programs", "flexgen")
        self.assertEqual(done.returncode, 1)
        self.assertIn("another GPU", done.stderr)

    def test_spillway_runs_through(self):
        if SPILLWAY is None:
            self.skipTest("no spillway_soft_gpu was given")
        tiny = gpu_table.write_config(self.folder / "tiny", 2048, 2, 64, 2)
        words = ["--stage", f"{tiny}:16+4", "--programs", "spillway,flexgen", "--requests", 2, "--spillway", SPILLWAY,
                 "--gpu-memory", 2 * GIB, "--cpu-memory", 2 * GIB]
        result, text = self.stage(*words)
        self.assertEqual([r["status"] for r in result["rows"]], ["measured", "measured", "left out"], result)
        for one in result["rows"][:2]:
            self.assertGreater(one["tokens_per_s"], 0.0)
            self.assertGreater(one["predicted"]["generated_tokens_per_s"], 0.0)
            self.assertEqual((one["peak_gpu_bytes"], len(one["commands"])), (1234 << 20, 2))
        self.assertEqual(result["hardware"]["gpus"], ["GPU 0: NVIDIA Test"])
        self.assertEqual(len(text.splitlines()), 3 + 2 + 3)


SPILLWAY = None
if __name__ == "__main__":
    sys.dont_write_bytecode = True
    if len(sys.argv) > 1 and not sys.argv[1].startswith("-") and pathlib.Path(sys.argv[1]).exists():
        SPILLWAY = pathlib.Path(sys.argv.pop(1)).resolve()
    unittest.main()
