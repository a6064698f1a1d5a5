#!/usr/bin/env bash
# gpu_peers.sh [FOLDER [H2O]]: fetches what scripts/gpu_step.sh measures beside Spillway, into FOLDER (gpu-peers, git-ignored):
# FlexGen's wheel from PyPI, and h2o_flexgen from H2O, a URL or path of a git repository of FMInference/H2O. They are carried
# to the machine with the GPU, whose Python has torch, transformers, numpy, tqdm and attrs; never committed.
set -euo pipefail
cd "$(dirname "$0")/.."
folder=${1:-gpu-peers}
h2o=${2:-https://github.com/FMInference/H2O}
flexgen_version=0.1.8
h2o_commit=ac75c2a8a9e76832b2a4139b9363373b56336bfb

say() { printf 'gpu_peers: %s\n' "$*"; }

new=$(mktemp -d)
trap 'rm -rf "$new"' EXIT
say "fetching flexgen $flexgen_version from PyPI"
python3 -m pip download --quiet --no-deps --disable-pip-version-check --no-cache-dir -d "$new/wheel" "flexgen==$flexgen_version"
mkdir -p "$new/peers/flexgen" "$new/peers/h2o_flexgen"
python3 -m zipfile -e "$new"/wheel/*.whl "$new/peers/flexgen"
rm -rf "$new/peers/flexgen/flexgen/apps" "$new/peers/flexgen/experimental"  # nothing measured uses them
say "fetching h2o_flexgen from $h2o"
git clone --quiet --no-checkout "$h2o" "$new/h2o"
git -C "$new/h2o" archive "$h2o_commit" h2o_flexgen/flexgen h2o_flexgen/README.md | tar -x -C "$new"
mv "$new/h2o_flexgen/flexgen" "$new/h2o_flexgen/README.md" "$new/peers/h2o_flexgen/"
rm -rf "$folder"
mv "$new/peers" "$folder"
say "$folder: flexgen $flexgen_version, h2o_flexgen $h2o_commit, $(du -sk "$folder" | cut -f 1) KiB"
