#!/bin/sh
# Runs the program of its own name in a bundle (scripts/gpu_bundle.sh): ROOT/bin/NAME runs ROOT/libexec/NAME with the
# bundle's libraries and this machine's CUDA. NAME --libraries says what was found, and where.
# SPILLWAY_CUDA_LIBRARIES names the folders of CUDA's libraries, divided by colons, where they are not found.
root=$(cd "$(dirname "$0")/.." && pwd)
name=$(basename "$0")
major=$(sed -n 's/^cuda //p' "$root/ORIGIN")

# Folders that may have CUDA's libraries, in the words of the shell: the toolkit's, and those of Python's packages.
toolkit="/usr/local/cuda/lib64 /usr/local/cuda/targets/x86_64-linux/lib /usr/local/cuda-$major*/lib64 /usr/lib/x86_64-linux-gnu"
python_folders() {
  command -v python3 >/dev/null && python3 -c 'import glob, sys
for path in sys.path:
    print(*glob.glob(path + "/nvidia/*/lib"), sep="\n")'
}

# The first of the folders, given behind the library, that has it; nothing where none has.
first_with() {
  library=$1
  shift
  for folder; do
    [ -e "$folder/$library" ] && echo "$folder" && return
  done
  return 1
}

folder_of() {
  # shellcheck disable=SC2046,SC2086 # lists of folders
  first_with "$1" $(echo "$SPILLWAY_CUDA_LIBRARIES" | tr : ' ') $toolkit || first_with "$1" $(python_folders)
}

libraries="libcublasLt.so.$major libcudart.so.$major"
path=$root/lib
for library in $libraries; do
  folder=$(folder_of "$library")
  [ "${1:-}" = --libraries ] && echo "$library: ${folder:-not found}"
  if [ -n "$folder" ]; then
    path=$path:$folder
  elif [ "${1:-}" != --libraries ]; then
    echo "$name: $library of CUDA $major is neither in the toolkit's folders nor in Python's packages;" \
      "set SPILLWAY_CUDA_LIBRARIES" >&2
    exit 42
  fi
done
# The last folder has the driver's library where it is no system library.
path=$path${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}:/usr/local/nvidia/lib64
export LD_LIBRARY_PATH="$path"
if [ "${1:-}" = --libraries ]; then
  ldd "$root/libexec/$name" | sed 's/ (0x[0-9a-f]*)//; s/^[[:space:]]*//'
  exit
fi
exec "$root/libexec/$name" "$@"
