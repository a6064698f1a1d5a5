"""A step of scripts/gpu_step.sh without a GPU: the program and a test on a GPU in software, tiny shapes, and stand-ins for the
peers, nvidia-smi, the profile, gpu_bench and the toolkit's tools. Standard library only.

  python3 gpu_rehearsal.py path/to/spillway_soft_gpu N OUT [PART ...]
"""

import os
import pathlib
import subprocess
import sys
import tempfile

import stand_ins

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
BENCH = """#!/bin/sh
cat <<'LINES'
{"gpu":"NVIDIA Test","compute_capability":"9.0","total_bytes":1,"used_at_start_bytes":1}
{"name":"GPU memory, copy (read + write)","rate":3000.0,"unit":"GB/s","share_of_limit":null}
{"name":"CPU to GPU, queue of 2 MiB pieces","rate":50.0,"unit":"GB/s","share_of_limit":0.950}
{"name":"decode attention, 64 rows of 544 slots of 4 bits","rate":900.0,"unit":"GB/s","share_of_limit":0.300}
LINES
"""
SANITIZER = '#!/bin/sh\nwhile [ "${1%/gpu_test}" = "$1" ]; do shift; done\nexec "$@"\n'
NCU = """#!/bin/sh
file=/dev/stdout
for word; do [ "$before" = --log-file ] && file=$word; before=$word; done
cat >"$file" <<'LINES'
==PROF== Connected
"ID","Process ID","Kernel Name","gpu__time_duration.sum"
"","","","nsecond"
"0","1","DecodeKernel","2,000"
"1","1","PrefillKernel","5,000"
"2","1","DecodeKernel","2,000"
LINES
"""


def make_bundle(folder, soft_program, replaced):
    """Makes what a bundle unpacks to, as far as a step calls it. `replaced` has other texts for some of its programs."""
    machine = REPOSITORY / "examples/machines/h200.json"
    stand_ins.write(folder / "bin/spillway", f"""#!/bin/sh
case "$1" in
  --libraries) echo "libcublasLt.so.13: a stand-in" ;;
  profile) for last; do :; done; cp {machine} "$last" ;;
  *) exec {soft_program} "$@" ;;
esac
""")
    stand_ins.write(folder / "bin/gpu_test", f'#!/bin/sh\nexec {soft_program.with_name("soft_gpu_order_test")} "$@"\n')
    stand_ins.write(folder / "bin/gpu_bench", BENCH)
    stand_ins.write(folder / "bin/nvidia-smi", stand_ins.NVIDIA_SMI)
    stand_ins.write(folder / "bin/compute-sanitizer", SANITIZER)
    stand_ins.write(folder / "bin/ncu", NCU)
    for name, text in replaced.items():
        stand_ins.write(folder / "bin" / name, text)
    (folder / "ORIGIN").write_text("cuda 13\ncommit abc1234\narchitecture sm_90\n")
    return folder


def make_peers(folder):
    for name in ("flexgen", "h2o_flexgen"):
        stand_ins.write_peers(folder / name)
    return folder


def rehearse(root, soft_program, number, out, *parts, replaced=(), **environment):
    """Runs a step with stand-ins in folder `root`. `replaced` has other texts for some of them, by name."""
    bundle = make_bundle(root / "bundle", soft_program, dict(replaced))
    settings = os.environ | {
        "PATH": f"{bundle}/bin:{pathlib.Path(sys.executable).parent}:/usr/bin:/bin", "PYTHON": sys.executable,
        "SPILLWAY_BUNDLE": str(bundle), "SPILLWAY_PEERS": str(make_peers(root / "peers")), "SPILLWAY_STEP_REHEARSE": "1",
        "SPILLWAY_STEP_SECONDS": str(470 * int(os.environ.get("SPILLWAY_TEST_SLOWDOWN", "1"))),
    } | environment
    words = [REPOSITORY / "scripts/gpu_step.sh", number, out, *parts]
    return subprocess.run(list(map(str, words)), capture_output=True, text=True, env=settings, check=False)


def main():
    if len(sys.argv) < 4:
        sys.exit(__doc__)
    with tempfile.TemporaryDirectory() as name:
        soft_program = pathlib.Path(sys.argv[1]).resolve()
        done = rehearse(pathlib.Path(name), soft_program, sys.argv[2], pathlib.Path(sys.argv[3]).resolve(), *sys.argv[4:])
    print(done.stdout, done.stderr, sep="", end="")
    sys.exit(done.returncode)


if __name__ == "__main__":
    main()
