#!/usr/bin/env bash
# Spillway beside FlexGen, h2o_flexgen and Accelerate on this machine's GPU, in stages: gpu_table.sh --list. The peers run
# in the Python that $PYTHON names. gpu_table.py says what is measured, and how.
set -euo pipefail
cd "$(dirname "$0")/.."
exec "${PYTHON:-python3}" -B benchmarks/gpu_table.py "$@"
