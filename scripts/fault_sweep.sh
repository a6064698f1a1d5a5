#!/usr/bin/env bash
# fault_sweep.sh [MOST [KIND...]]: fails every allocation, every call of the system and every transfer of the disk of one
# small run in turn, and lets the run go on after each. MOST: how many of those with the same call stack (1; 0: all, hours).
# KINDs: disk, calls, memory.
set -euo pipefail
cd "$(dirname "$0")/.."
scripts/build.sh release spillway
exec python3 -B tests/cli/fault_sweep.py build/release/spillway "$@"
