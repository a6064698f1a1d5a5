#!/usr/bin/env bash
# kill_loop.sh KILLS [SEED]: kills runs of the release build so many times, at random times, and lets each go on with other
# placements, block shapes and threads, until it is done; says how many had other bytes or left a file. 50 kills are a test.
set -euo pipefail
cd "$(dirname "$0")/.."
kills=${1:?kill_loop.sh KILLS [SEED]}
scripts/build.sh release spillway
exec python3 -B tests/cli/kill_loop.py build/release/spillway "$kills" "${2:-1}"
