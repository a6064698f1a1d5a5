"""scripts/gpu_step.sh without a GPU: what it reads, decides and writes; and steps 1 and 2 in small, on a GPU in software.
Standard library only.

  python3 gpu_step_test.py path/to/spillway_soft_gpu
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tarfile
import tempfile
import unittest
import unittest.mock

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(REPOSITORY / "scripts"), str(REPOSITORY / "tests/cli")]

import gpu_rehearsal  # noqa: E402
import gpu_step_ncu as ncu  # noqa: E402
import gpu_step_parts as parts  # noqa: E402
import gpu_step_run  # noqa: E402
import gpu_table  # noqa: E402
import harness  # noqa: E402
import stand_ins  # noqa: E402

GIB = 1 << 30
MOST_FILES = 8
LISTING = "Running main()\nOpsTest.\n  A\n  B\nBits/PackedTest.\n  A/q8  # GetParam() = 3\n"


def done(status=0, text="", stopped=False):
    return gpu_table.Done(status, text, 1.0, stopped, 0)


class Reading(unittest.TestCase):
    def test_tests_are_listed_with_their_suites(self):
        self.assertEqual(parts.tests_of(LISTING), ["OpsTest.A", "OpsTest.B", "Bits/PackedTest.A/q8"])

    def result(self, test, **more):
        with tempfile.TemporaryDirectory() as folder:
            report = pathlib.Path(folder) / "report.json"
            if test is not None:
                report.write_text(json.dumps({"testsuites": [{"testsuite": [test]}]}))
            return parts.test_result(done(**more), report)

    def test_how_a_test_ended(self):
        self.assertEqual(self.result({"result": "COMPLETED"}), ("passed", ""))
        self.assertEqual(self.result({"result": "SKIPPED"}), ("skipped", ""))
        self.assertEqual(self.result({"result": "COMPLETED", "failures": [{"failure": "a"}]}, status=1), ("failed", "a"))
        self.assertEqual(self.result(None, status=-11, text="x\nfault\n"), ("failed", "exit -11: fault"))
        self.assertEqual(self.result(None, status=-2, stopped=True), ("cut off", ""))

    def verdict_of(self, *results):
        return parts.tests_verdict({f"T.{n}": {"result": result} for n, result in enumerate(results)})

    def test_a_skipped_test_is_a_failure(self):
        self.assertEqual(self.verdict_of("passed", "passed"), gpu_step_run.Verdict("ok", "2 passed"))
        self.assertEqual(self.verdict_of("passed", "skipped").state, "FAILED")
        self.assertIn("T.1", self.verdict_of("passed", "failed", "cut off").text)
        self.assertEqual(self.verdict_of("passed", "cut off").state, "cut off")

    def row(self, **more):
        return {"setting": "opt-6.7b:512+32", "program": "spillway", "kv": "full", "status": "measured", "tokens_per_s": 95.0,
                "predicted": {"generated_tokens_per_s": 100.0}, "peak_gpu_bytes": 15 * GIB, "why": None} | more

    def test_a_table_is_judged_by_cap_and_ends(self):
        verdict = parts.table_verdict([self.row()], done(), 16)
        self.assertEqual((verdict.state, verdict.text), ("ok", "spillway full 95 tokens/s (0.95 of predicted), peak 15.0 GiB"))
        self.assertIn("not within", parts.row_text(self.row(tokens_per_s=80.0)))
        over = self.row(peak_gpu_bytes=17 * GIB)
        self.assertEqual(parts.table_verdict([over], done(), 16).state, "FAILED")
        self.assertEqual(parts.table_verdict([over], done(), 24).state, "ok")
        self.assertEqual(parts.table_verdict([over | {"setting": "opt-6.7b:8+8x24"}], done(), 16).state, "ok")
        self.assertEqual(parts.table_verdict([self.row(status="failed")], done(), 16).state, "FAILED")
        self.assertEqual(parts.table_verdict([self.row(status="unfinished")], done(), 16).state, "cut off")
        self.assertEqual(parts.table_verdict([], done(), 16).state, "FAILED")
        self.assertEqual(parts.table_verdict([], done(stopped=True), 16).state, "cut off")

    def test_kernels_are_ordered_by_their_time(self):
        text = '==PROF== x\n"ID","Kernel Name","gpu__time_duration.sum"\n"","","nsecond"\n"0","A","1,000"\n"1","B","3,000"\n'
        kernels = ncu.times(text)
        self.assertEqual(kernels, {"B": (1, 3000.0), "A": (1, 1000.0)})
        self.assertEqual(ncu.text_of(kernels), "B 75%, A 25% of 0.004 ms")
        self.assertEqual(ncu.times("==ERROR== no permission\n"), {})

    def test_parts_are_chosen_by_name(self):
        self.assertEqual([part.name for part in parts.parts_of(1, ["bench", "tests"])], ["bench", "tests"])
        for name in ("opt-30b:512+512/flexgen", "llama-3.1-70b@4:512+32/spillway:h2o/24GiB"):
            self.assertEqual([part.name for part in parts.parts_of(5, [name])], [name])
        with self.assertRaisesRegex(ValueError, "no part bentch"):
            parts.parts_of(1, ["bentch"])

    def test_steps_end_in_time(self):
        for number, step in parts.STEPS.items():
            self.assertGreater(len(step), 0, number)
            self.assertEqual(len({part.name for part in step}), len(step))
            self.assertTrue(all(part.least <= part.seconds <= 470 for part in step), number)


class Logs(harness.FolderTest):
    def test_the_end_of_a_large_log_is_kept(self):
        with unittest.mock.patch.object(tempfile, "tempdir", str(self.folder)):
            step = gpu_step_run.Step(argparse.Namespace(number=1, out=self.folder, bundle=self.folder, seconds=1.0))
        log = step.new_folder("long")
        (log / "output").write_bytes(b"begin" + b"." * gpu_step_run.MOST_LOG_BYTES + b"end")
        (log / "weights").write_bytes(b"." * (gpu_step_run.MOST_LOG_BYTES + 1))
        (log / "command").write_text("long\n")
        step.pack_logs()
        with tarfile.open(self.folder / "logs.tar.gz") as archive:
            self.assertEqual(archive.getnames(), ["00-long/command", "00-long/output"])
            kept = archive.extractfile("00-long/output").read()
            self.assertEqual(archive.extractfile("00-long/command").read(), b"long\n")
        self.assertEqual((len(kept), kept[-4:]), (gpu_step_run.MOST_LOG_BYTES, b".end"))


class Rehearsal(harness.FolderTest):
    def setUp(self):
        super().setUp()
        self.out = self.folder / "out"

    def rehearse(self, number, *names, **options):
        """Exit status and {part: line} of verdict.txt, which is what was printed too."""
        ended = gpu_rehearsal.rehearse(self.folder, SOFT_PROGRAM, number, self.out, *names, **options)
        lines = (self.out / "verdict.txt").read_text().splitlines()
        self.assertEqual(ended.stdout.splitlines(), [*lines[1:], lines[0]], ended.stderr)
        self.assertLessEqual(len(list(self.out.iterdir())), MOST_FILES)
        self.assertIn("NVIDIA Test, driver 1.2.3", lines[0])
        return ended.returncode, {name: text for name, _, text in (line.partition(": ") for line in lines[1:])}

    def logs(self):
        with tarfile.open(self.out / "logs.tar.gz") as archive:
            return archive.getnames()

    def test_step_1(self):
        status, verdict = self.rehearse(1)
        self.assertEqual((status, list(verdict)), (0, [part.name for part in parts.STEPS[1]]), verdict)
        self.assertIn("commit abc1234", verdict["program"])
        self.assertRegex(verdict["tests"], r"ok: 3 passed \(\d+ s\)")
        self.assertIn("0 comparisons failed", verdict["placement"])
        self.assertIn("0 of 2 comparisons failed", verdict["answers"])
        self.assertIn("below what is wanted: decode attention, 64 rows of 544 slots of 4 bits 0.30", verdict["bench"])
        self.assertIn("OrderTest: no error", verdict["memcheck"])
        self.assertEqual(len(json.loads((self.out / "gpu_tests.json").read_text())), 3)
        self.assertGreater(json.loads((self.out / "answers.json").read_text())["decode, 16 bits"]["tokens"], 0)
        self.assertTrue(any(name.endswith("placement_check/output") for name in self.logs()))

    def test_step_2(self):
        status, verdict = self.rehearse(2)
        self.assertEqual((status, list(verdict)), (0, [part.name for part in parts.STEPS[2]]), verdict)
        self.assertIn("spillway h2o", verdict["opt-6.7b:512+512/spillway:h2o"])
        self.assertIn("flexgen full 35.56 tokens/s", verdict["opt-6.7b:512+32/flexgen,h2o_flexgen"])
        rows = json.loads((self.out / "gpu_table.json").read_text())["rows"]
        self.assertEqual({row["commit"] for row in rows}, {"abc1234"})
        self.assertTrue((self.out / "machine.json").exists())

    def test_step_3(self):
        status, verdict = self.rehearse(3)
        self.assertEqual(status, 0, verdict)
        self.assertIn("cpu_to_gpu", verdict["streamed"])
        self.assertIn("decode", verdict["beside"])
        for part in ("ncu", "ncu_decode"):
            self.assertIn("PrefillKernel 56%", verdict[part])

    def test_step_6(self):
        status, verdict = self.rehearse(6)
        self.assertEqual((status, list(verdict)), (0, [part.name for part in parts.STEPS[6]]), verdict)
        self.assertIn("0 failures in 1 files", verdict["families"])
        for name, settings in (("gpu_table", ["", "", "@4"]), ("gpu_table_24gib", ["@4"])):
            rows = json.loads((self.out / f"{name}.json").read_text())["rows"]
            self.assertEqual(sorted(row["setting"].rpartition("/tiny")[2] for row in rows),
                             sorted(f"{bits}:16+4" for bits in settings))

    def test_peers_that_are_not_there_are_skipped(self):
        status, verdict = self.rehearse(2, "opt-6.7b:512+32/flexgen,h2o_flexgen", SPILLWAY_PEERS=str(self.folder / "none"))
        self.assertEqual(status, 0)
        self.assertIn("skipped: flexgen, h2o_flexgen not in", verdict["opt-6.7b:512+32/flexgen,h2o_flexgen"])

    def test_what_hangs_is_cut_off_and_the_rest_said(self):
        status, verdict = self.rehearse(1, "bench", "answers", SPILLWAY_STEP_SECONDS="12",
                                        replaced={"gpu_bench": gpu_rehearsal.BENCH + "sleep 60\n"})
        self.assertEqual(status, 1)
        self.assertRegex(verdict["bench"], r"cut off: GPU memory.*\(1\d s\)")
        self.assertIn("not run: no time left", verdict["answers"])
        self.assertEqual(len(json.loads((self.out / "gpu_bench.json").read_text())["lines"]), 4)

    def test_a_crash_fails_its_part_only(self):
        crash = "#!/bin/sh\n[ \"$1\" = --gtest_list_tests ] && printf 'A.\\n  B\\n' && exit\necho fault; kill -11 $$\n"
        status, verdict = self.rehearse(1, "tests", "bench", replaced={"gpu_test": crash})
        self.assertEqual(status, 1)
        self.assertIn("FAILED: 1 failed: A.B", verdict["tests"])
        self.assertIn("ok", verdict["bench"])

    def test_without_a_gpu_it_says_so(self):
        ended = gpu_rehearsal.rehearse(self.folder, SOFT_PROGRAM, 1, self.out,
                                       replaced={"nvidia-smi": "#!/bin/sh\nexit 9\n"})
        self.assertEqual((ended.returncode, ended.stderr), (42, "gpu_step: this machine has no GPU (nvidia-smi lists none)\n"))


class Launcher(harness.FolderTest):
    """scripts/gpu_launcher.sh as bin/NAME of a bundle."""

    def setUp(self):
        super().setUp()
        stand_ins.write(self.folder / "bin/x", (REPOSITORY / "scripts/gpu_launcher.sh").read_text())
        stand_ins.write(self.folder / "libexec/x", '#!/bin/sh\necho "$LD_LIBRARY_PATH" "$@"\n')
        (self.folder / "ORIGIN").write_text("cuda 99\n")

    def launch(self, *words, **environment):
        clean = {key: value for key, value in os.environ.items() if key != "LD_LIBRARY_PATH"} | environment
        command = [self.folder / "bin/x", *words]
        return subprocess.run(command, capture_output=True, text=True, env=clean, check=False)

    def test_no_cuda_is_one_clear_line(self):
        ended = self.launch("y")
        self.assertEqual((ended.returncode, ended.stdout), (42, ""))
        self.assertRegex(ended.stderr, r"\Ax: libcublasLt.so.99 of CUDA 99 is neither [^\n]*SPILLWAY_CUDA_LIBRARIES\n\Z")

    def test_libraries_may_be_in_two_folders(self):
        for folder, library in (("a", "libcublasLt.so.99"), ("b", "libcudart.so.99")):
            stand_ins.write(self.folder / folder / library, "")
        ended = self.launch("y", SPILLWAY_CUDA_LIBRARIES=f"{self.folder}/a:{self.folder}/b")
        found = f"{self.folder}/lib:{self.folder}/a:{self.folder}/b:/usr/local/nvidia/lib64 y\n"
        self.assertEqual((ended.stdout, ended.stderr), (found, ""))

    def test_packages_of_python_are_looked_into(self):
        for library in ("libcublasLt.so.99", "libcudart.so.99"):
            stand_ins.write(self.folder / "site/nvidia/cu99/lib" / library, "")
        ended = self.launch(PYTHONPATH=f"{self.folder}/site")
        self.assertIn(f"{self.folder}/site/nvidia/cu99/lib", ended.stdout)
        self.assertEqual(ended.stderr, "")


SOFT_PROGRAM = None
if __name__ == "__main__":
    sys.dont_write_bytecode = True
    SOFT_PROGRAM = pathlib.Path(sys.argv.pop(1)).resolve()
    unittest.main()
