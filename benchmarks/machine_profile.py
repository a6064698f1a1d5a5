"""A new profile of this machine, for scripts that compare runs with what it promises. Standard library only."""

import json
import os
import subprocess
import sys


def make(binary, folder):
    """The path of a new machine file in `folder`, on whose disk it was measured. Says on stderr when other programs
    disturbed it; exits where there is none."""
    machine = folder / "machine.json"
    command = [str(word) for word in (binary, "profile", "--no-progress", "--output", machine, "--offload-dir", folder)]
    done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                          env=os.environ | {"XDG_CACHE_HOME": str(folder)})
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}: exit {done.returncode}: {done.stderr.strip()[-300:]}")
    disturbed = json.loads(machine.read_text()).get("disturbed")
    if disturbed:
        print(f"the profile was disturbed: {disturbed}", file=sys.stderr)
    return machine
