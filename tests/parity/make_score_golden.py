"""Makes tests/parity/golden_scores: log-probabilities and perplexities of the float32 reference for `spillway score`, on
the checkpoints that make_golden.py wrote and on the bundled model.

  python make_score_golden.py [golden name ...]

Needs the PyPI packages torch, transformers, safetensors and numpy. One thread: a rerun gives the same files.
"""

import json
import math
import pathlib
import sys

import torch
import transformers

import comparison
import make_golden
import reference

HERE = pathlib.Path(__file__).resolve().parent
GOLDEN = HERE / "golden_scores"
TEXT = make_golden.EXAMPLES / "heldout_tales.txt"
LENGTHS = [1, 2, 3, 16, 17, 65, 129, 336]
NUM_GREEDY = 24

TEXTS = [
    "",
    "a",
    "Once upon a time there was a king who had three sons.",
    " leading space and trailing space ",
    "First line.\nSecond line.\n\nThe third",
    "caf\u00e9 na\u00efve \u2014 \u201cquoted\u201d \u20ac5",
    "A literal </s> in the text",
]
PAIRS = [
    ("Once upon a time", " there was a king"),
    ("Once upon a time ", "there was a king"),
    ("Once upon a time \t\n", "there was a king"),
    ("Once upon a\u00a0\u2003", " time"),
    ("", "Once upon a time"),
    ("  ", "Once upon a time"),
    ("The king said to his daughter, \"", "My dear child"),
    ("So the youngest brother set out, and when he had gone a little way he met an old", " woman"),
]
# (characters of the text, window, stride, whether each window begins with the start token)
TALES_WINDOWS = [(20000, 2048, 512, False), (20000, 2048, 2048, True), (6000, 512, 128, True)]
SMALL_WINDOWS = [(1500, 336, 100, False), (1500, 64, 64, False)]


def read_text(characters):
    return TEXT.read_text(encoding="utf-8")[:characters]


@torch.inference_mode()
def logprobs_of(model, ids, length):
    """[len(ids), vocab]: row i is of the token after ids[i]. `length`: of the text, whose last token need not be fed."""
    reference.hold_rope(model, length)
    return torch.log_softmax(model(torch.tensor([ids])).logits[0].double(), -1)


def score(model, ids, first):
    """The golden values of ids[first:]. `near_tie`: a 16-bit engine may find another likeliest token."""
    if first >= len(ids):
        return {"logprobs": [], "greedy": True, "near_tie": False}
    logprobs = logprobs_of(model, ids[:-1], len(ids))[first - 1:]
    told = torch.tensor(ids[first:])[:, None]
    best = logprobs.topk(2, -1).values
    chosen = logprobs.gather(1, told)[:, 0]
    # One token that is clearly not the likeliest settles the answer, whatever the others are.
    behind = best[:, 0] - chosen
    ahead = torch.where(behind == 0, best[:, 0] - best[:, 1], behind)
    near_tie = behind.max().item() < comparison.GAP_TOLERANCE and ahead.min().item() < comparison.GAP_TOLERANCE
    return {"logprobs": [round(value, 5) for value in chosen.tolist()],
            "greedy": bool((chosen == best[:, 0]).all()), "near_tie": near_tie}


def row(model, request, ids, first, num_null=0):
    found = score(model, ids, first)
    found["logprobs"] = [None] * num_null + found["logprobs"]
    return {"request": request} | found


def token_rows(model, generator):
    vocab = model.config.vocab_size
    rows = [make_golden.random_prompt(length, vocab, generator) for length in LENGTHS]
    start = [2]
    rows.append(start + reference.greedy(model, start, NUM_GREEDY)["tokens"])
    return [row(model, {"token_ids": ids}, ids, 1, num_null=1) for ids in rows]


def encode_pair(tokenizer, context, continuation):
    """Encodes as lm-eval-harness does: (ids, tokens of the context). The start token alone stands for an empty context."""
    stripped = context.rstrip()
    moved = context[len(stripped):] + continuation
    return tokenizer(stripped + moved).input_ids, len(tokenizer(stripped).input_ids)


def text_rows(model, tokenizer):
    rows = []
    for text in TEXTS:
        rows.append(row(model, {"text": text}, tokenizer(text).input_ids, 1))
    for context, continuation in PAIRS:
        ids, first = encode_pair(tokenizer, context, continuation)
        rows.append(row(model, {"context": context, "continuation": continuation}, ids, first))
    return rows


def greedy_pair(model, tokenizer):
    """A continuation that is the model's own."""
    context = "Once upon a time"
    ids = tokenizer(context).input_ids
    continuation = tokenizer.decode(reference.greedy(model, ids, 8)["tokens"])
    return row(model, {"context": context, "continuation": continuation}, *encode_pair(tokenizer, context, continuation))


def perplexity(model, ids, window, stride, start_each):
    """The sliding windows of transformers' documentation, with each window's labels shifted by one as it does; a token is
    weighted once, where the documentation's loop drops one of each later window's from the weights."""
    total, count, scored_to = 0.0, 0, 0
    for begin in range(0, len(ids), stride):
        end = min(begin + window, len(ids))
        part = ids[begin:end]
        if start_each:
            part = [2] + part[1:]
        first = max(1, scored_to - begin)
        if first < len(part):
            logprobs = logprobs_of(model, part, len(part))
            total += logprobs[first - 1:-1].gather(1, torch.tensor(part[first:])[:, None]).sum().item()
            count += len(part) - first
        scored_to = end
        if end == len(ids):
            break
    return {"perplexity": round(math.exp(-total / count), 4), "num_tokens": count}


def perplexities(model, tokenizer, cases):
    found = []
    for characters, window, stride, start_each in cases:
        case = {"characters": characters, "window": window, "stride": stride, "start_each_window": start_each}
        ids = tokenizer(read_text(characters)).input_ids
        found.append(case | perplexity(model, ids, window, stride, start_each))
    return found


def write_golden(name, head, rows, windows):
    print(f"{name}: {len(rows)} rows, {[case['perplexity'] for case in windows]}", flush=True)
    lines = ",\n".join(json.dumps(line, separators=(",", ":")) for line in rows)
    cases = ",\n".join(json.dumps(case, separators=(",", ":")) for case in windows)
    text = json.dumps(head)[:-1] + ', "rows": [\n' + lines + '\n], "perplexities": [\n' + cases + "\n]}\n"
    (GOLDEN / f"{name}.json").write_text(text, encoding="utf-8")


def make_small(name):
    folder = make_golden.MODELS / name
    model = reference.load(folder)
    if name == make_golden.FP32_VARIANT:
        reference.round_matrices(model, torch.float16)
    # OPT's tokenizer, whatever the family: all of the folders have it.
    tokenizer = transformers.GPT2Tokenizer.from_pretrained(make_golden.MODELS / make_golden.FP32_VARIANT)
    generator = torch.Generator().manual_seed(2000 + make_golden.VARIANTS[name][1])
    rows = token_rows(model, generator) + text_rows(model, tokenizer)
    head = {"model": f"tests/parity/models/{name}", "logprob_tolerance": comparison.LOGPROB_TOLERANCE}
    write_golden(name, head, rows, perplexities(model, tokenizer, SMALL_WINDOWS))


def make_tales():
    folder = make_golden.EXAMPLES / "tales-opt-8m"
    model = reference.load(folder)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    rows = text_rows(model, tokenizer) + [greedy_pair(model, tokenizer)]
    ids = tokenizer(read_text(6000)).input_ids
    rows += [row(model, {"token_ids": ids[:length]}, ids[:length], 1, num_null=1) for length in (2, 65, 700)]
    head = {"model": "examples/tales-opt-8m", "logprob_tolerance": make_golden.TALES_LOGPROB_TOLERANCE}
    write_golden("tales-opt-8m", head, rows, perplexities(model, tokenizer, TALES_WINDOWS))


def main():
    torch.set_num_threads(1)
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    GOLDEN.mkdir(exist_ok=True)
    names = sys.argv[1:] or [*make_golden.VARIANTS, "tales-opt-8m"]
    for name in names:
        make_tales() if name == "tales-opt-8m" else make_small(name)


if __name__ == "__main__":
    main()
