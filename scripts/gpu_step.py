"""One step on a machine with a GPU; gpu_step.sh says what steps there are and calls this. Parts run one after the other, each
with a deadline, and each leaves a line in OUT/verdict.txt, which is there from the beginning. Standard library only."""

import argparse
import contextlib
import os
import pathlib
import shutil
import signal
import sys

import gpu_step_parts
import gpu_table
from gpu_step_run import Step, run_parts

NO_GPU = 42


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bundle", type=pathlib.Path, required=True)
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("number", type=int, choices=range(1, 7))
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("parts", nargs="*")
    args = parser.parse_args()
    args.bundle, args.out = args.bundle.resolve(), args.out.resolve()
    return args


def end_early(*_):
    raise SystemExit(1)


def main():
    args = arguments()
    try:
        parts = gpu_step_parts.parts_of(args.number, args.parts)
    except ValueError as error:
        sys.exit(f"gpu_step: {error}")
    if not gpu_table.nvidia_smi("-L"):
        print("gpu_step: this machine has no GPU (nvidia-smi lists none)", file=sys.stderr)
        sys.exit(NO_GPU)
    with contextlib.suppress(OSError):
        os.environ.setdefault("SPILLWAY_BUILD_COMMIT", gpu_step_parts.origin_of(args.bundle)["commit"])
    signal.signal(signal.SIGTERM, end_early)
    step = Step(args)
    try:
        run_parts(step, parts)
    finally:
        with contextlib.suppress(OSError):
            step.pack_logs()
        shutil.rmtree(step.work, ignore_errors=True)
    sys.exit(step.status())


if __name__ == "__main__":
    main()
