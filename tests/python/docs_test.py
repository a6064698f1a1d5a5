"""Examples of docs/python.md run as they stand, those with other packages where these are there. Standard library only.

  python3 docs_test.py path/to/spillway [unittest arguments]
"""

import importlib.util
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

import package

package.take_binary()

PAGE = package.REPOSITORY / "docs" / "python.md"
PACKAGES = ("ray", "lm_eval")
os.environ |= {"HF_DATASETS_OFFLINE": "1", "HF_HUB_OFFLINE": "1", "RAY_USAGE_STATS_ENABLED": "0"}


def examples():
    """(text, the packages that it needs) of each."""
    for text in re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.M | re.S):
        yield text, [name for name in PACKAGES if re.search(rf"^import {name}\b", text, re.M)]


class DocsTest(unittest.TestCase):
    def check(self, example):
        with self.subTest(example), tempfile.TemporaryDirectory() as folder:
            (pathlib.Path(folder) / "examples").symlink_to(package.REPOSITORY / "examples")
            done = subprocess.run([sys.executable, "-c", example], capture_output=True, cwd=folder, check=False,
                                  env=os.environ | {"HF_HOME": folder})
            self.assertEqual(done.returncode, 0, done.stderr.decode())
            self.assertNotEqual(done.stdout, b"")

    def test_examples_of_the_package(self):
        plain = [text for text, needed in examples() if not needed]
        self.assertEqual(len(plain), 2)
        for text in plain:
            self.check(text)

    def test_examples_with_other_packages(self):
        others = [(text, needed) for text, needed in examples() if needed]
        self.assertEqual(len(others), len(PACKAGES))
        missing = [name for name in PACKAGES if importlib.util.find_spec(name) is None]
        for text, needed in others:
            if not set(needed) & set(missing):
                self.check(text)
        if missing:
            self.skipTest("no package " + ", ".join(missing))


if __name__ == "__main__":
    package.main()
