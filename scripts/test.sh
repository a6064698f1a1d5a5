#!/usr/bin/env bash
# Sets up, builds a release and runs every test. Ends in "N passed, N failed, N skipped".
set -euo pipefail
cd "$(dirname "$0")/.."
preset=${1:-release}
scripts/setup.sh
scripts/build.sh "$preset"
log=build/$preset/test.log
status=0
# One more than there are processors: tests of processes wait now and then.
echo "test: running the tests; their output goes to $log"
ctest --preset "$preset" -j "$(($(nproc) + 1))" --output-on-failure >"$log" 2>&1 || status=$?
grep -v -E '^ *[0-9]+/[0-9]+ Test .* Passed|^ +Start +[0-9]+' "$log" || true
total=$(sed -n 's/.*tests failed out of \([0-9]*\).*/\1/p' "$log")
failed=$(sed -n 's/.*, \([0-9]*\) tests failed out of.*/\1/p' "$log")
if [ -z "$total" ] || [ -z "$failed" ]; then
  echo "test: ctest ended without a summary (exit $status); its output is in $log" >&2
  exit 1
fi
# Tests that could not be run are among the failed already.
skipped=$(grep -c '\*\*\*Skipped' "$log" || true)
echo "$((total - failed - skipped)) passed, $failed failed, $skipped skipped"
exit "$status"
