"""The wheel, with a program that is built already: installed in a bare virtual environment it answers, has the command
spillway, and makes the command lm_eval know the model. Skipped where pip cannot fetch what builds it.

  python3 wheel_test.py path/to/spillway [unittest arguments]
"""

import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

import package

package.take_binary()
package.skip_without("ensurepip")

# The part of lm-eval that names models, and its command.
LM_EVAL = {
    "lm_eval/__init__.py": "",
    "lm_eval/api/__init__.py": "",
    "lm_eval/api/registry.py": "class Registry(dict):\n"
                               "    def register(self, name, target):\n        self[name] = target\n"
                               "model_registry = Registry()\n",
    "lm_eval/models/__init__.py": "from lm_eval.api.registry import model_registry\n"
                                  "model_registry.register('hf', target='...')\n",
    "lm_eval/__main__.py": "import lm_eval.models\nprint(dict(lm_eval.models.model_registry))\n",
}
ANSWER = ("from spillway import Engine\n"
          "with Engine(max_new_tokens=4) as engine:\n"
          "    print(next(engine.generate(['Once upon a time'])).text)\n")


def run(*command, **environment):
    kept = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "SPILLWAY_BINARY")}
    return subprocess.run(list(map(str, command)), capture_output=True, text=True, cwd="/", env=kept | environment,
                          check=False)


class WheelTest(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.prefix = pathlib.Path(temporary.name)
        self.python = self.prefix / "bin" / "python"

    def check_output(self, expected, *command):
        done = run(*command)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertIn(expected, done.stdout)

    def test_it_works_where_it_is_installed(self):
        run(sys.executable, "-m", "venv", self.prefix)
        if run(self.python, "-m", "pip", "download", "-q", "-d", self.prefix / "tools", "scikit-build-core").returncode:
            self.skipTest("no pip, or no network")
        done = run(self.python, "-m", "pip", "install", "--no-index", "--find-links", self.prefix / "tools",
                   f"--config-settings=build-dir={self.prefix / 'build'}", package.REPOSITORY / "python",
                   SPILLWAY_BINARY=os.environ["SPILLWAY_BINARY"])
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.check_output(", and the King", self.python, "-c", ANSWER)
        self.check_output("spillway ", self.prefix / "bin" / "spillway", "--version")
        packages = pathlib.Path(run(self.python, "-c", "import spillway; print(spillway.__path__[0])").stdout).parent
        for name, text in LM_EVAL.items():
            (packages / name).parent.mkdir(exist_ok=True)
            (packages / name).write_text(text)
        self.check_output("'spillway': 'spillway.lm_eval:SpillwayLM'", self.python, "-m", "lm_eval", "run")
        self.check_output("False", self.python, "-c", "import sys; print('spillway' in sys.modules)")


if __name__ == "__main__":
    package.main()
