#!/usr/bin/env bash
# gpu_step.sh N OUT [PART ...]: one step of what is to be shown on a machine with a GPU, from a bundle of gpu_bundle.sh: needs
# bash, Python 3.10 and the driver there, no compiler. Ends by itself within SPILLWAY_STEP_SECONDS (470).
#   1  right: all GPU tests, placements, answers beside the CPU's, gpu_bench, compute-sanitizer where time is left
#   2  profile of the machine; OPT-6.7B 512 + 32 and 512 + 512 under 16 GiB beside FlexGen and h2o_flexgen
#   3  where the time goes: traces of a run on the GPU and of one bound by transfers, ncu of the slowest kernels
#   4  OPT-6.7B 512 + 1024 under 16 GiB; H2O's latency setting 2048 + 2048 with 24 rows
#   5  OPT-30B 512 + 32 under 16 GiB
#   6  families on small models; Llama-3.1-8B 512 + 512, of 16 and 4 bits, and 70B 512 + 32 of 4 bits, under 16 and 24 GiB
# OUT gets verdict.txt (a line a part, also printed), logs.tar.gz and JSON: at most 8 files. PART runs only those named, in
# that order: names as in verdict.txt, or MODEL[@BITS]:PROMPT+NEW/PROGRAMS[/CAPGiB] for any other setting (gpu_table.py --list).
# SPILLWAY_BUNDLE names an unpacked bundle, SPILLWAY_PEERS the folder of gpu_peers.sh (gpu-peers), SPILLWAY_STEP_MACHINE a
# machine file, where it need not be measured again, PYTHON the Python that has torch.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1
if [ $# -lt 2 ]; then
  sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p}' scripts/gpu_step.sh >&2
  exit 2
fi
caller=${OLDPWD:-$PWD}
bundle=${SPILLWAY_BUNDLE:-}
if [ -z "$bundle" ] && [ -x libexec/spillway ]; then
  bundle=$PWD
elif [ -z "$bundle" ]; then
  [ -x gpu-bundle/run ] || { echo "gpu_step: no bundle: scripts/gpu_bundle.sh makes it" >&2; exit 2; }
  bundle=$(gpu-bundle/run --where) || exit 1
fi
seconds=${SPILLWAY_STEP_SECONDS:-470}
out=$2
[ "${out#/}" = "$out" ] && out=$caller/$out
# The parts have deadlines of their own; this is for what hangs in spite of them.
exec timeout --kill-after=15 "$((seconds + 20))" "${PYTHON:-python3}" -B scripts/gpu_step.py --bundle "$bundle" \
  --seconds "$seconds" "$1" "$out" "${@:3}"
