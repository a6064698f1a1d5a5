#!/usr/bin/env bash
# Sets up, builds a release and generates completions for examples/prompts.jsonl with the bundled model.
set -euo pipefail
cd "$(dirname "$0")/.."
scripts/setup.sh program
scripts/build.sh release spillway
mkdir -p out
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
