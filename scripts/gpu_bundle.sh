#!/usr/bin/env bash
# gpu_bundle.sh [FOLDER]: builds preset gpu for one architecture and packs what scripts/gpu_step.sh needs on a machine with a
# GPU and nothing else installed: FOLDER/payload.tar.xz with the program, the GPU's tests, gpu_bench, the bundled model, the
# scripts and every shared library that a bare system lacks; and FOLDER/run, which unpacks it and runs one of its programs.
# FOLDER is gpu-bundle, git-ignored, at most 30 MiB. SPILLWAY_GPU_ARCH is the architecture, 90 (H100, H200) by default.
#
# glibc, libstdc++ and libgcc are that machine's (Ubuntu 24.04's, or newer), and so are CUDA's libraries: bin/spillway there
# (scripts/gpu_launcher.sh) looks for them in the toolkit's folders and in Python's packages; `run spillway --libraries` says
# what it found. Proof on a machine with root, in a bare Debian without a GPU; CUDA's own libraries are lent to it:
#   debootstrap --variant=minbase bookworm ROOT && cp -r gpu-bundle ROOT/ && mkdir -p ROOT/usr/local/cuda/lib64
#   cp -L /usr/local/cuda/lib64/lib{cudart,cublasLt}.so.13 ROOT/usr/local/cuda/lib64/
#   printf 'Once upon a time\n' >ROOT/prompts.txt && mount -t proc proc ROOT/proc
#   chroot ROOT /gpu-bundle/run spillway --version
#   chroot ROOT /gpu-bundle/run spillway generate --device cpu --input /prompts.txt --output - --max-new-tokens 16
#   chroot ROOT /gpu-bundle/run gpu_test        # all tests skip: no GPU
set -euo pipefail
cd "$(dirname "$0")/.."
folder=${1:-gpu-bundle}
arch=${SPILLWAY_GPU_ARCH:-90}
build=build/gpu-bundle
most_bytes=$((30 << 20))
# The newest symbols that Ubuntu 24.04 has.
newest_glibc=2.39
newest_libstdcxx=3.4.33
programs=(spillway gpu_test gpu_bench)

say() { printf 'gpu_bundle: %s\n' "$*"; }
fail() { printf 'gpu_bundle: %s\n' "$*" >&2; exit 1; }

build_programs() {
  say "building for sm_$arch in $build; its log is $build/bundle.log"
  mkdir -p "$build"
  # Release, as the CPU's kernels are measured; debug info would be stripped.
  { cmake --preset gpu -B "$build" -DCMAKE_BUILD_TYPE=Release "-DCMAKE_CUDA_ARCHITECTURES=$arch-real" &&
    cmake --build "$build" --target "${programs[@]}"; } >"$build/bundle.log" 2>&1 ||
    { tail -20 "$build/bundle.log" >&2; exit 1; }
}

built() { find "$build" -type f -perm -u+x -name "$1" -not -path '*/CMakeFiles/*' | head -1; }

# Paths of the shared libraries of the given files that the other machine may lack.
libraries_of() {
  local list
  list=$(ldd "$@")
  ! grep 'not found' <<<"$list" | grep -v -E 'libcu(blas|da)' >&2 || fail "a library is not found"
  awk '$2 == "=>" && $3 ~ /^\// { print $1, $3 }' <<<"$list" | sort -u |
    grep -v -E '^(ld-linux|libc\.|libm\.|libdl\.|libpthread\.|librt\.|libresolv\.|libstdc\+\+\.|libgcc_s\.|libcu)'
}

# Fails where a file needs a newer version of a library's symbols than there is. check_symbols PREFIX NEWEST FILE...
check_symbols() {
  local prefix=$1 newest=$2 needed
  shift 2
  needed=$(objdump -T "$@" 2>/dev/null | grep -o "${prefix}_[0-9.]*" | sed "s/${prefix}_//" | sort -Vu | tail -1)
  [ "$(printf '%s\n%s\n' "$needed" "$newest" | sort -V | tail -1)" = "$newest" ] ||
    fail "needs ${prefix}_$needed, and the machine that it is for has $newest"
}

# FOLDER/run NAME ARGUMENTS: unpacks the payload once, under $TMPDIR or /tmp, and runs its bin/NAME. --where prints the folder.
write_run() {
  cat >"$folder/run" <<RUN
#!/bin/sh
# Unpacks the payload once and runs one of its programs: run NAME ARGUMENTS. run --where prints where it is unpacked.
set -e
there=\${TMPDIR:-/tmp}/spillway-gpu-$(sha256sum "$folder/payload.tar.xz" | cut -c 1-16)
if [ ! -d "\$there" ]; then
  mkdir -p "\$there.\$\$"
  payload=\$(dirname "\$0")/payload.tar.xz
  if command -v xz >/dev/null; then
    tar -xJf "\$payload" -C "\$there.\$\$"
  else
    python3 -c 'import sys, tarfile; tarfile.open(sys.argv[1]).extractall(sys.argv[2])' "\$payload" "\$there.\$\$"
  fi
  mv "\$there.\$\$" "\$there"
fi
[ "\${1:-}" = --where ] && { echo "\$there"; exit; }
name=\${1:?run NAME ARGUMENTS}
shift
exec "\$there/bin/\$name" "\$@"
RUN
  chmod 755 "$folder/run"
}

pack_programs() {
  local name library path
  mkdir -p "$root"/{bin,libexec,lib}
  for name in "${programs[@]}"; do
    path=$(built "$name")
    [ -n "$path" ] || fail "$name was not built"
    strip -o "$root/libexec/$name" "$path"
    cp scripts/gpu_launcher.sh "$root/bin/$name"
  done
  libraries_of "$root"/libexec/* | while read -r library path; do
    strip -o "$root/lib/$library" "$path"
  done
  check_symbols GLIBC "$newest_glibc" "$root"/libexec/* "$root"/lib/*
  check_symbols GLIBCXX "$newest_libstdcxx" "$root"/libexec/* "$root"/lib/*
}

# Scripts keep their places, so that they find one another as in the repository.
pack_files() {
  mkdir -p "$root"/{scripts,benchmarks,tests/cli,tests/gpu,share/spillway/models,share/spillway/machines}
  cp scripts/gpu_step* "$root/scripts/"
  cp benchmarks/{gpu_table*,origin.py} "$root/benchmarks/"
  cp tests/gpu/*.py "$root/tests/gpu/"
  cp tests/placements.py "$root/tests/"
  cp tests/cli/harness.py "$root/tests/cli/"  # which placements.py uses
  cp -r examples/tales-opt-8m "$root/share/spillway/models/"
  cp examples/machines/*.json "$root/share/spillway/machines/"
  printf 'cuda %s\ncommit %s\narchitecture sm_%s\n' "$(cuda_major)" "$(commit)" "$arch" >"$root/ORIGIN"
}

cuda_major() { ldd "$(built spillway)" | sed -n 's/.*libcublasLt\.so\.\([0-9]*\).*/\1/p' | head -1; }

commit() {
  local name
  name=$(git rev-parse --short HEAD 2>/dev/null) || { echo unknown; return; }
  git diff --quiet HEAD -- || name+=" with changes"
  echo "$name"
}

command -v nvcc >/dev/null || fail "no nvcc: the bundle is built where the CUDA toolkit is"
build_programs
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
pack_programs
pack_files
rm -rf "$folder"
mkdir -p "$folder"
tar -C "$root" --sort=name --owner=0 --group=0 --mtime=@0 -c . | xz -T0 -6 >"$folder/payload.tar.xz"
write_run
bytes=$(stat -c %s "$folder/payload.tar.xz")
[ "$bytes" -le "$most_bytes" ] || fail "$folder has $bytes bytes, more than $most_bytes"
say "$folder has $bytes bytes: $(cd "$root" && echo libexec/* lib/*)"
