"""The package of this tree on sys.path, with the binary that a test is given as its first argument. Standard library only."""

import os
import pathlib
import sys
import tempfile
import unittest

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
SOURCE = REPOSITORY / "python" / "src"
_CACHE = tempfile.TemporaryDirectory()  # of this process
SKIPPED = 77  # exit status of a test that this machine cannot run


def take_binary():
    """Makes the package importable, here and in processes that are started from here."""
    for variable in [name for name in os.environ if name.startswith("SPILLWAY_") and name != "SPILLWAY_CUDA_LIBRARIES"]:
        del os.environ[variable]
    os.environ["SPILLWAY_BINARY"] = str(pathlib.Path(sys.argv[1]).resolve())
    os.environ["XDG_CACHE_HOME"] = _CACHE.name
    os.environ["PYTHONPATH"] = str(SOURCE)
    sys.path.insert(0, str(SOURCE))


def skip_without(*modules):
    """Ends the test visibly where a package is not there."""
    for module in modules:
        try:
            __import__(module)
        except ImportError:
            print(f"skipped: no package {module}")
            sys.exit(SKIPPED)


def main():
    result = unittest.main(argv=sys.argv[:1] + sys.argv[2:], exit=False).result
    if not result.wasSuccessful():
        sys.exit(1)
    if result.skipped and len(result.skipped) == result.testsRun:
        print("skipped:", *(reason for _, reason in result.skipped))
        sys.exit(SKIPPED)
