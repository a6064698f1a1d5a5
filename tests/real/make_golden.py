#!/usr/bin/env python3
"""Writes tests/real/golden/NAME.json: what transformers in float32 makes of a real model: make_golden.py SPILLWAY NAME FOLDER

Greedy tokens of 50 prompts, the steps at which the two best tokens are closer than 0.02, and the perplexity of a text in
sliding windows. Spillway's own tokens are only a guess that spares passes: every token is transformers'. FOLDER is what
scripts/real_models.sh makes. Needs the PyPI packages torch and transformers.
"""
import json
import math
import pathlib
import random
import subprocess
import sys

import torch
import transformers

HERE = pathlib.Path(__file__).resolve().parent
TALES = HERE.parents[1] / "examples" / "heldout_tales.txt"
NEW_TOKENS, CLOSE = 64, 0.02
# Name: (characters, window, stride) of the perplexity, and prompts that begin with so many characters of the text. Gemma's
# layers see 512 tokens: the long prompts are longer from the start, the shorter ones become so while they are continued.
PERPLEXITY = {"smollm2": (6000, 512, 256), "gemma": (6000, 1024, 512)}
LONG_PROMPTS = {"smollm2": [], "gemma": [1900, 1950, 2000, 2100, 2600, 3200]}
OTHERS = ["def fibonacci(n):\n", "The capital of France is", "1, 2, 3, 5, 8,", "Translate to French: good morning ->", "SELECT name, COUNT(*) FROM",
          "Q: What is 17 + 25?\nA:", "# Shopping list\n\n- ", "Caf\u00e9 na\u00efve \u4f60\u597d \U0001f600", "In 1984, 20001 people", "import numpy as np\n\n"]


def prompts(name):
    rng = random.Random(3)
    lines = [line for line in TALES.read_text(encoding="utf-8").split("\n") if len(line) > 60]
    tales = [line[:rng.randint(20, 300)] for line in rng.sample(lines, 30)]
    questions = [f"<|im_start|>user\nTell me about this: {line[:80]}<|im_end|>\n<|im_start|>assistant\n" for line in rng.sample(lines, 10)]
    text = TALES.read_text(encoding="utf-8")
    long = [text[20000 + 5000 * number:][:chars] for number, chars in enumerate(LONG_PROMPTS[name])]
    return long + tales[len(long):] + questions + OTHERS


@torch.no_grad()
def greedy(model, ids, draft):
    """New tokens, and the steps at which the best two logits are close. Goes on past the end of text. `draft` guesses the
    tokens: one pass over it finds how far they are the model's own, and the next pass goes on from there."""
    found, close = [], []
    while len(found) < NEW_TOKENS:
        guess = draft[len(found):NEW_TOKENS - 1]
        best = torch.topk(model(torch.tensor([ids + found + guess]), logits_to_keep=len(guess) + 1).logits[0], 2)
        for values, tokens in zip(best.values, best.indices):
            if values[0] - values[1] < CLOSE:
                close.append(len(found))
            found.append(int(tokens[0]))
            if draft[len(found) - 1:len(found)] != found[-1:]:
                draft = []
                break
    return found, close


@torch.no_grad()
def perplexity(model, ids, size, stride):
    """Sliding windows: each scores its last `stride` tokens, the first one all but its first."""
    total, count, scored = 0.0, 0, 0
    for begin in range(0, len(ids), stride):
        end = min(begin + size, len(ids))
        window = torch.tensor(ids[begin:end])
        chosen = torch.log_softmax(model(window[None]).logits[0, :-1], -1).gather(1, window[1:, None])[:, 0]
        new = min(end - scored, len(chosen))
        total -= chosen[len(chosen) - new:].double().sum().item()
        count += new
        scored = end
        if end == len(ids):
            return math.exp(total / count), count


def drafts(binary, folder, prompts):
    """Spillway's new tokens of each prompt."""
    requests = "".join(json.dumps({"prompt": prompt, "max_tokens": NEW_TOKENS, "ignore_eos": True}) + "\n" for prompt in prompts)
    done = subprocess.run([binary, "generate", "--model", folder, "--input", "-", "--output", "-", "--quiet"], input=requests, capture_output=True,
                          text=True, check=True)
    return [json.loads(line)["response"]["body"]["choices"][0]["token_ids"] for line in done.stdout.splitlines()]


def main():
    binary, name, folder = sys.argv[1:]
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_file=folder + "/tokenizer.json")
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    model.eval()
    texts, rows = prompts(name), []
    for prompt, draft in zip(texts, drafts(binary, folder, texts), strict=True):
        ids = tokenizer.encode(prompt)
        new, close = greedy(model, ids, draft)
        rows.append({"prompt": prompt, "prompt_ids": ids, "token_ids": new, "close": close})
    chars, size, stride = PERPLEXITY[name]
    value, count = perplexity(model, tokenizer.encode(TALES.read_text(encoding="utf-8")[:chars]), size, stride)
    document = {"rows": rows, "perplexity": {"chars": chars, "window": size, "stride": stride, "value": value, "num_tokens": count}}
    (HERE / "golden").mkdir(exist_ok=True)
    (HERE / "golden" / f"{name}.json").write_text(json.dumps(document, ensure_ascii=False, separators=(",", ":")) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
