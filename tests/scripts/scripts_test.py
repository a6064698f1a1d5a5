"""The scripts in a copy of their folder, with stand-ins for what they call: nothing is installed, fetched or built.
Standard library only.

  python3 scripts_test.py [unittest arguments]
"""

import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(REPOSITORY / "tests/cli"))

import harness  # noqa: E402
import stand_ins  # noqa: E402

TORCH_LIBRARY = ".deps/python/torch/lib/libtorch_cpu.so"

# A python3 with a pip whose wheels are made up; BROKEN names one that cannot be fetched, NO_PIP takes pip away.
PYTHON = """
case "$*" in
  "-m pip --version") [ -z "${NO_PIP:-}" ] ;;
  "-m pip download"*)
    echo "$*" >>calls
    requirement="${!#}"
    while [ "$1" != -d ]; do shift; done
    [ "${requirement%%==*}" != "${BROKEN:-}" ] && echo "$requirement" >"$2/x.whl" ;;
  "-m zipfile -e"*)
    mkdir -p "$5/torch/lib"
    case "$(cat "$4")" in torch*) echo 1 >"$5/torch/lib/libtorch_cpu.so" ;; esac ;;
  *) exit 1 ;;
esac
"""


class ScriptsTest(harness.FolderTest):
    def setUp(self):
        super().setUp()
        shutil.copytree(REPOSITORY / "scripts", self.folder / "scripts")
        self.stand_in("dpkg-query", 'echo "$3" >>asked; echo "install ok installed"')
        self.stand_in("id", "echo 1000")
        self.stand_in("sudo", "exit 1")
        self.stand_in("apt-get", "exit 1")
        self.stand_in("python3", PYTHON)

    def stand_in(self, name, text):
        stand_ins.write(self.folder / "bin" / name, f"#!/bin/bash\n{text}\n")

    def script(self, *words, **extra):
        """Exit status and all output."""
        # Only the stand-ins and the base system: /usr/local may have a real Python with pip.
        environment = os.environ | {"PATH": f"{self.folder}/bin:/usr/bin:/bin"} | extra
        environment.pop("SPILLWAY_TORCH_DIR", None)
        done = subprocess.run(
            ["bash", *words], cwd=self.folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            check=False,
        )
        return done.returncode, done.stdout


class Setup(ScriptsTest):
    def test_an_interrupted_fetch_is_repaired(self):
        for broken in ("torch", "nvidia-cuda-runtime", "nvidia-cuda-cupti"):
            status, text = self.script("scripts/setup.sh", BROKEN=broken)
            self.assertEqual(status, 0, text)
            self.assertIn("libtorch is skipped", text)
            self.assertFalse((self.folder / ".deps/python").exists(), "half of it must not be found by the build")
            self.assertFalse((self.folder / ".deps/tmp").exists())
        status, text = self.script("scripts/setup.sh")
        self.assertEqual(status, 0, text)
        self.assertTrue((self.folder / TORCH_LIBRARY).exists())
        self.assertIn("libtorch: all there", self.script("scripts/setup.sh")[1])

    def test_a_missing_marker_is_noticed(self):
        self.script("scripts/setup.sh")
        (self.folder / ".deps/python/.cupti").unlink()
        _, text = self.script("scripts/setup.sh")
        self.assertNotIn("all there\nsetup: libtorch: all there", text)
        self.assertTrue((self.folder / ".deps/python/.cupti").exists())

    def test_wheels_stay_inside_the_repository(self):
        self.script("scripts/setup.sh")
        for call in (self.folder / "calls").read_text().splitlines():
            self.assertIn("-d .deps/tmp/wheels/", call)

    def test_without_root_and_pip_the_rest_goes_on(self):
        if pathlib.Path("/usr/local/bin/python3").exists():
            text = (self.folder / "scripts/setup.sh").read_text()
            (self.folder / "scripts/setup.sh").write_text(text.replace("/usr/local/bin/python3", "no-python"))
        status, text = self.script("scripts/setup.sh", NO_PIP="1")
        self.assertEqual(status, 0, text)
        self.assertIn("libtorch is skipped", text)

    def test_the_program_needs_no_test_packages(self):
        self.script("scripts/setup.sh", "program")
        asked = (self.folder / "asked").read_text().split()
        for package in ("libfmt-dev", "libutf8proc-dev", "zlib1g-dev"):
            self.assertIn(package, asked)
        for package in ("libgtest-dev", "libbenchmark-dev", "libpcre2-dev", "python3-matplotlib"):
            self.assertNotIn(package, asked)
        self.assertFalse((self.folder / "calls").exists())


class Build(ScriptsTest):
    def setUp(self):
        super().setUp()
        self.stand_in("cmake", 'echo "$*" >>cmake-calls')

    def test_tests_are_off_for_the_program_alone(self):
        self.script("scripts/build.sh", "release", "spillway")
        configured = (self.folder / "cmake-calls").read_text().splitlines()[0]
        self.assertIn("-DSPILLWAY_TESTS=OFF -DSPILLWAY_BENCHMARKS=OFF", configured)

    def test_a_whole_build_leaves_them_to_the_preset(self):
        self.script("scripts/build.sh", "release")
        self.assertNotIn("OFF", (self.folder / "cmake-calls").read_text())
        self.assertIn('"SPILLWAY_TESTS": "ON"', (REPOSITORY / "CMakePresets.json").read_text())


class Test(ScriptsTest):
    def ctest(self, output, status):
        (self.folder / "build/release").mkdir(parents=True)
        (self.folder / "output").write_text(output)
        self.stand_in("cmake", "exit 0")
        self.stand_in("ctest", f"cat output; exit {status}")
        return self.script("scripts/test.sh")

    def test_what_could_not_run_is_counted_once(self):
        status, text = self.ctest(
            "1/4 Test #1: a ......   Passed    0.1 sec\n"
            "2/4 Test #2: b ......***Skipped   0.1 sec\n"
            "3/4 Test #3: c ......***Failed    0.1 sec\n"
            "4/4 Test #4: d ......***Not Run   0.0 sec\n"
            "50% tests passed, 2 tests failed out of 4\n", 8,
        )
        self.assertEqual((status, text.splitlines()[-1]), (8, "1 passed, 2 failed, 1 skipped"))

    def test_no_summary_is_a_failure(self):
        status, text = self.ctest("No tests were found!!!\n", 0)
        self.assertEqual(status, 1)
        self.assertIn("without a summary", text)
        self.assertNotIn("passed", text)


class Bundle(ScriptsTest):
    """scripts/gpu_bundle.sh where programs are empty files with one library."""

    def setUp(self):
        super().setUp()
        for folder in ("benchmarks", "tests/gpu", "tests/cli", "examples/machines"):
            shutil.copytree(REPOSITORY / folder, self.folder / folder)
        shutil.copy(REPOSITORY / "tests/placements.py", self.folder / "tests")
        (self.folder / "examples/tales-opt-8m").mkdir()
        self.stand_in("nvcc", "")
        self.stand_in("cmake", "cd build/gpu-bundle; touch spillway gpu_test gpu_bench; chmod +x *")
        self.stand_in("strip", 'cp "$3" "$2"')
        self.stand_in("ldd", 'echo "libcublasLt.so.13 => /none (0x0)"; echo "libx.so.1 => $PWD/scripts/gpu_bundle.sh (0x0)"')
        self.stand_in("objdump", "echo GLIBC_2.17 GLIBCXX_3.4")

    def unpacked(self, git):
        """The folder of a bundle that is made with this stand-in for git."""
        self.stand_in("git", git)
        status, text = self.script("scripts/gpu_bundle.sh")
        self.assertEqual(status, 0, text)
        status, text = self.script("gpu-bundle/run", "--where", TMPDIR=str(self.folder))
        self.assertEqual(status, 0, text)
        return pathlib.Path(text.strip())

    def test_the_origin_is_a_line_for_each_name(self):
        for git, commit in (('[ "$1" = diff ] || echo abc1234', "abc1234"), ("exit 1", "unknown"),
                            ('[ "$1" = rev-parse ] && echo abc1234', "abc1234 with changes")):
            lines = (self.unpacked(git) / "ORIGIN").read_text().splitlines()
            self.assertEqual(lines, ["cuda 13", f"commit {commit}", "architecture sm_90"])

    def test_the_scripts_of_a_step_find_all_that_they_import(self):
        root = self.unpacked("exit 1")
        for script in ("scripts/gpu_step.py", "tests/gpu/placement_check.py", "tests/gpu/answers_check.py"):
            words = [sys.executable, "-B", "-c", "import runpy, sys; runpy.run_path(sys.argv[1])", root / script]
            done = subprocess.run(words, capture_output=True, text=True, env=os.environ | {"PYTHONPATH": str(root / "scripts")},
                                  check=False)
            self.assertEqual(done.returncode, 0, done.stderr)


class WithoutMatplotlib(unittest.TestCase):
    def refusal(self, script):
        with tempfile.TemporaryDirectory() as folder:
            (pathlib.Path(folder) / "matplotlib.py").write_text("raise ImportError\n")
            done = subprocess.run(
                [sys.executable, "-B", REPOSITORY / "scripts" / script, "none"], capture_output=True, text=True,
                env=os.environ | {"PYTHONPATH": folder}, check=False,
            )
        self.assertEqual(done.returncode, 1)
        return done.stderr

    def test_plot_timeline_says_what_is_missing(self):
        self.assertRegex(self.refusal("plot_timeline.py"),
                         r"\Aplot_timeline: needs matplotlib, [^\n]* python3-matplotlib [^\n]*\n\Z")

    @unittest.skipIf(sys.version_info < (3, 11), "plot_sweep.py needs Python 3.11")
    def test_plot_sweep_says_what_is_missing(self):
        self.assertRegex(self.refusal("plot_sweep.py"), r"\Aplot_sweep: needs matplotlib, [^\n]* python3-matplotlib [^\n]*\n\Z")


class Configure(unittest.TestCase):
    def test_cuda_without_its_compiler_is_refused(self):
        with tempfile.TemporaryDirectory() as folder:
            done = subprocess.run(
                ["cmake", "-S", REPOSITORY, "-B", folder, "-DSPILLWAY_CUDA=ON", "-DCMAKE_CUDA_COMPILER=NOTFOUND"],
                capture_output=True, text=True, check=False,
            )
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("no nvcc was found", " ".join(done.stderr.split()))


if __name__ == "__main__":
    sys.dont_write_bytecode = True
    unittest.main()
