"""--device: what a build without CUDA, and one with CUDA on a machine without a GPU, make of a GPU that is asked for.

  python3 device_test.py path/to/spillway with-cuda|without-cuda
"""

import pathlib
import sys
import tempfile

import harness


def main():
    spillway, build = sys.argv[1], sys.argv[2]
    if build == "with-cuda" and pathlib.Path("/dev/nvidiactl").exists():
        print("this machine has a GPU: scripts/gpu_step.sh 1 tests it")
        sys.exit(77)
    expected = 42 if build == "with-cuda" else 2
    with tempfile.TemporaryDirectory() as folder:
        prompts = pathlib.Path(folder, "in.jsonl")
        prompts.write_text('{"prompt": "Once"}\n')
        output = pathlib.Path(folder, "out.jsonl")
        for verb in (["generate", "--input", prompts, "--output", output], ["bench"], ["plan"]):
            result = harness.run(spillway, [*verb, "--device", "cuda:0"], cwd=folder)
            assert result.status == expected, (verb, result.status, result.stderr)
            lines = result.stderr.decode().splitlines()
            assert len(lines) == 1 and "--device cuda:0" in lines[0] and "--device cpu" in lines[0], lines
            assert not output.exists() and not output.with_suffix(".jsonl.part").exists()
        # Without being asked for one, a run computes on the CPU.
        result = harness.run(spillway, ["plan", "--device", "auto"], cwd=folder)
        assert result.status == 0, result.stderr
        if build == "with-cuda":
            result = harness.run(spillway, ["plan", "--device", "cuda:0", "--emulate-gpu", "1GiB"], cwd=folder)
            assert result.status == 2 and b"--emulate-gpu" in result.stderr, result.stderr
    print("1 passed, 0 failed")


if __name__ == "__main__":
    main()
