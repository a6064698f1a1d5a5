#!/usr/bin/env bash
# fuzz.sh [SECONDS] [TARGET...]: builds the fuzz targets (preset `fuzz`: clang-14, libFuzzer, address and undefined behaviour
# sanitizers) and runs each for so many seconds (60), one after the other, on the seeds of tests/fuzz/make_seeds.py and on
# what earlier runs found (build/fuzz/corpus). Ends in one line for each target, and in exit 1 where one crashed, hung for
# ten seconds or took 2 GB; its input is in build/fuzz/crashes then. Targets: tests/fuzz/*_fuzz.cc.
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=60
if [[ "${1:-}" =~ ^[0-9]+$ ]]; then
  seconds=$1
  shift
fi
targets=("$@")
[ ${#targets[@]} -gt 0 ] || for file in tests/fuzz/*_fuzz.cc; do targets+=("$(basename "$file" _fuzz.cc)"); done
for target in "${targets[@]}"; do
  [ -e "tests/fuzz/${target}_fuzz.cc" ] || { echo "fuzz: there is no target $target (tests/fuzz/*_fuzz.cc)" >&2; exit 2; }
done

entry='extern "C" int LLVMFuzzerTestOneInput(const unsigned char*, unsigned long) { return 0; }'
if ! echo "$entry" | clang++-14 -x c++ -fsanitize=fuzzer,address,undefined - -o /dev/null 2>/dev/null; then
  echo "fuzz: clang-14 with its fuzzer runtime is missing; install Debian's clang-14 and libclang-rt-14-dev" >&2
  exit 2
fi
scripts/build.sh fuzz "${targets[@]/%/_fuzz}"

build=build/fuzz
mkdir -p "$build/crashes" "$build/logs"
# What targets write lies in memory; a crash leaves it behind.
TMPDIR=$(mktemp -d "$([ -d /dev/shm ] && echo /dev/shm || echo /tmp)/spillway-fuzz-XXXXXX")
export TMPDIR
trap 'rm -rf "$TMPDIR"' EXIT
rm -rf "$build/seeds"
python3 -B tests/fuzz/make_seeds.py "$build/seeds"

# Number behind a name in libFuzzer's last lines.
final() { sed -n "s/^stat::$1: *//p" "$log"; }

status=0
lines=()
for target in "${targets[@]}"; do
  echo "fuzz: $target, $seconds s"
  corpus=$build/corpus/$target
  log=$build/logs/$target.log
  mkdir -p "$corpus"
  before=$(find "$build/crashes" -name "$target-*" | wc -l)
  ended=0
  "$build/tests/fuzz/${target}_fuzz" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 \
    -max_len=65536 -print_final_stats=1 -artifact_prefix="$build/crashes/$target-" \
    "$corpus" "$build/seeds/$target" >"$log" 2>&1 || ended=$?
  crashes=$(($(find "$build/crashes" -name "$target-*" | wc -l) - before))
  [ "$ended" -eq 0 ] || [ "$crashes" -gt 0 ] || crashes=1  # ended without leaving its input
  [ "$crashes" -eq 0 ] || status=1
  executions=$(final number_of_executed_units)
  lines+=("$(printf '%-18s %10s executions, %d new crashes' "$target" "${executions:-0}" "$crashes")")
done
printf '%s\n' "${lines[@]}"
[ "$status" -eq 0 ] || echo "fuzz: inputs are in $build/crashes, reports in $build/logs" >&2
exit "$status"
