#!/usr/bin/env bash
# build.sh PRESET [TARGET...]: configures (once) and builds. SPILLWAY_TORCH_DIR names a libtorch of your own.
set -euo pipefail
cd "$(dirname "$0")/.."
preset=$1
shift
options=()
# The program alone needs no test or benchmark library; the preset switches both on again.
unused=
[ "$*" = spillway ] && unused=libtorch && options+=(-DSPILLWAY_TESTS=OFF -DSPILLWAY_BENCHMARKS=OFF)
[ -n "${SPILLWAY_TORCH_DIR:-}" ] && options+=("-DSPILLWAY_TORCH_DIR=$SPILLWAY_TORCH_DIR")
log=$(mktemp)
trap 'rm -f "$log"' EXIT
echo "build: configuring preset $preset"
cmake --preset "$preset" "${options[@]}" >"$log" 2>&1 || { cat "$log" >&2; exit 1; }
grep -A 20 'Dependencies: name' "$log" | grep '^-- ' | grep -v -e 'Configuring' -e 'Generating' -e 'Build files' ${unused:+-e "$unused"} || true
targets=()
[ "$#" -gt 0 ] && targets=(--target "$@")
echo "build: building${*:+ $*}"
quiet=()
[ -t 1 ] || quiet=(-- --quiet)
cmake --build --preset "$preset" "${targets[@]}" "${quiet[@]}"
