"""Examples of docs/python.md run as they stand, those whose packages are there. Standard library only.

  python3 docs_test.py path/to/spillway [unittest arguments]
"""

import importlib.util
import re
import subprocess
import sys
import tempfile
import unittest

import package

package.take_binary()

PAGE = package.REPOSITORY / "docs" / "python.md"
OPTIONAL = ("ray",)


def examples():
    return re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.M | re.S)


def missing_packages(example):
    return [name for name in OPTIONAL if re.search(rf"^import {name}\b", example, re.M)
            and importlib.util.find_spec(name) is None]


class DocsTest(unittest.TestCase):
    def test_examples_run(self):
        num_run = 0
        for example in examples():
            if missing := missing_packages(example):
                print("skipped, no package", *missing)
                continue
            with self.subTest(example), tempfile.TemporaryDirectory() as folder:
                done = subprocess.run([sys.executable, "-c", example], capture_output=True, cwd=folder, check=False)
                self.assertEqual(done.returncode, 0, done.stderr.decode())
                self.assertGreater(len(done.stdout.splitlines()), 2)
                num_run += 1
        self.assertGreater(num_run, 0)


if __name__ == "__main__":
    package.main()
