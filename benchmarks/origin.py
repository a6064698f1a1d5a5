"""Origin of figures: the processor and the commit. Standard library only."""

import os
import pathlib
import platform
import subprocess

REPOSITORY = pathlib.Path(__file__).resolve().parents[1]


def processor_name():
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor()


def commit():
    """The repository's, or what SPILLWAY_BUILD_COMMIT says where the program was built elsewhere."""
    if "SPILLWAY_BUILD_COMMIT" in os.environ:
        return os.environ["SPILLWAY_BUILD_COMMIT"]
    done = subprocess.run(["git", "-C", REPOSITORY, "rev-parse", "--short", "HEAD"], capture_output=True, text=True)
    return done.stdout.strip() or "unknown"
