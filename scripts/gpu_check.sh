#!/usr/bin/env bash
# One command for a machine with a GPU: builds, then runs what needs one. Stages, all by default or by name:
#   build      what is missing (setup.sh), preset gpu, for the GPU that is here; without it the others do not run
#   test       tests with the label gpu; none may be skipped
#   sanitize   compute-sanitizer's four tools on the kernel tests, where the tool is
#   bench      kernels and links beside their limits, to OUT/gpu_bench.json
#   placement  the bundled model over placements: the same bytes; and beside the CPU's answers
# OUT is build/gpu/check. Ends in "N passed, N failed, N skipped", counted in stages.
set -uo pipefail
cd "$(dirname "$0")/.."
stages=("$@")
[ "$#" -gt 0 ] || stages=(build test sanitize bench placement)
out=build/gpu/check
rm -rf "$out"
mkdir -p "$out"
passed=0 failed=0 skipped=0

require_gpu() {
  command -v nvidia-smi >/dev/null && nvidia-smi -L | grep -q GPU && return
  echo "gpu_check: this machine has no GPU (nvidia-smi lists none)" >&2
  exit 42
}

run_build() {
  local capability
  scripts/setup.sh || return 1
  capability=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader | head -1 | tr -d '. ')
  cmake --preset gpu "-DCMAKE_CUDA_ARCHITECTURES=${capability}" \
    ${SPILLWAY_TORCH_DIR:+"-DSPILLWAY_TORCH_DIR=$SPILLWAY_TORCH_DIR"} >"$out/configure.log" 2>&1 &&
    cmake --build --preset gpu -j "$(nproc)" >"$out/build.log" 2>&1 ||
    { tail -20 "$out/configure.log" "$out/build.log"; return 1; }
}

run_test() {
  ctest --preset gpu -L gpu --no-tests=error >"$out/test.log" 2>&1
  local status=$?
  grep -E 'Failed|Skipped|tests passed|tests failed' "$out/test.log"
  [ "$status" -eq 0 ] && ! grep -q 'Skipped' "$out/test.log"
}

run_sanitize() {
  command -v compute-sanitizer >/dev/null || return 77
  local tool suite
  for tool in memcheck racecheck initcheck synccheck; do
    for suite in ops attention budget packed; do
      # Products are the library's own; its kernels are not ours to check.
      compute-sanitizer --tool "$tool" --error-exitcode 1 "build/gpu/tests/gpu_${suite}_test" \
        --gtest_filter=-MatmulTest.* >"$out/$tool-$suite.log" 2>&1 ||
        { tail -20 "$out/$tool-$suite.log"; return 1; }
    done
  done
}

run_bench() {
  {
    printf '{"commit":"%s","driver":"%s"}\n' "$(git rev-parse HEAD 2>/dev/null || echo unknown)" \
      "$(nvidia-smi --query-gpu=driver_version --format=csv,noheader | head -1)"
    build/gpu/benchmarks/gpu_bench
  } >"$out/gpu_bench.json" || return 1
  cat "$out/gpu_bench.json"
}

run_placement() {
  python3 -B tests/gpu/placement_check.py build/gpu/spillway "$out"
}

require_gpu
for stage in "${stages[@]}"; do
  case $stage in build | test | sanitize | bench | placement) ;; *)
    echo "gpu_check: $stage: no such stage" >&2
    exit 2
    ;;
  esac
  echo "== $stage"
  "run_$stage"
  case $? in
    0) passed=$((passed + 1)) ;;
    77) skipped=$((skipped + 1)); echo "skipped: the tool is not here" ;;
    *)
      failed=$((failed + 1))
      echo "$stage failed; its logs are in $out"
      [ "$stage" = build ] && break  # the others would tell of an earlier build
      ;;
  esac
done
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ]
