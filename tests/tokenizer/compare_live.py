#!/usr/bin/env python3
"""Compares Spillway's ids and decoded text with the live PyPI packages for folders of tokenizer files.

    python tests/tokenizer/compare_live.py --tool build/tests/spillway_tokenize FOLDER [FOLDER...]

Says SKIPPED and exits 77 where the packages are not there. The reference of a folder with a tokenizer.json is
`tokenizers` (Tokenizer.from_file); of vocab.json + merges.txt, transformers.AutoTokenizer; of tokenizer.model,
`sentencepiece` with the start token of LLaMA in front.
"""
import argparse
import json
import pathlib
import random
import subprocess
import sys
import tempfile

import text_cases

PROSE = pathlib.Path(__file__).resolve().parents[2] / "examples" / "heldout_tales.txt"


class AutoReference:
    """transformers.AutoTokenizer; what OPT and GPT-2 folders are loaded with."""

    def __init__(self, folder):
        from transformers import AutoTokenizer
        self.tokenizer = AutoTokenizer.from_pretrained(folder)
        self.backend = self.tokenizer.backend_tokenizer
        self.backend.no_truncation()

    def encode(self, texts, plain):
        self.backend.encode_special_tokens = plain
        return [e.ids for e in self.backend.encode_batch(texts)]

    def decode(self, ids):
        return [self.backend.decode(i, skip_special_tokens=True) for i in ids]


class JsonReference(AutoReference):
    def __init__(self, folder):
        from tokenizers import Tokenizer
        self.backend = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self.backend.no_truncation()
        self.backend.no_padding()


class SentencePieceReference:
    def __init__(self, folder):
        import sentencepiece
        self.model = sentencepiece.SentencePieceProcessor(model_file=str(folder / "tokenizer.model"))
        self.special = [t for t in map(self.model.id_to_piece, range(self.model.get_piece_size()))
                        if self.model.is_control(self.model.piece_to_id(t)) or self.model.is_unknown(self.model.piece_to_id(t))]

    def encode(self, texts, plain):
        """The library knows no special tokens in a text: those texts (None) are compared as plain ones only."""
        return [[self.model.bos_id()] + self.model.encode(t) if plain or not any(s in t for s in self.special) else None for t in texts]

    def decode(self, ids):
        """The library writes a text for unknown pieces, which have none here: those rows are not compared."""
        return [None if self.model.unk_id() in row else self.model.decode(row) for row in ids]


def reference_of(folder, auto):
    if auto:
        return AutoReference(folder)
    if (folder / "tokenizer.json").exists():
        return JsonReference(folder)
    return AutoReference(folder) if (folder / "vocab.json").exists() else SentencePieceReference(folder)


def has_byte_tokens(folder):
    file = folder / "tokenizer.json"
    return (folder / "tokenizer.model").exists() or (file.exists() and "<0x0A>" in file.read_text(encoding="utf-8"))


def ask(tool, folder, requests):
    lines = "\n".join(json.dumps(r) for r in requests) + "\n"
    done = subprocess.run([tool, str(folder), str(2**31 - 1)], input=lines, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{folder}: {done.stderr.strip()}")
    return [json.loads(line) for line in done.stdout.split("\n")[:-1]]


def report(folder, what, inputs, ours, theirs):
    wrong = [i for i, (a, b) in enumerate(zip(ours, theirs)) if b is not None and a != b]
    print(f"{folder.name}: {what}: {len(theirs) - theirs.count(None)} compared, {len(wrong)} differ")
    for i in wrong[:5]:
        print(f"    {str(inputs[i])[:200]!r}\n      ours   {str(ours[i])[:300]!r}\n      theirs {str(theirs[i])[:300]!r}")
    return len(wrong)


def compare(tool, folder, cases, auto):
    reference = reference_of(folder, auto)
    ids = reference.encode(cases, False)
    wrong = report(folder, "ids", cases, ask(tool, folder, cases), ids)
    ids = [i for i in ids if i is not None]
    ours = ask(tool, folder, [{"plain": c} for c in cases])
    wrong += report(folder, "ids, special tokens as plain text", cases, ours, reference.encode(cases, True))
    rng = random.Random(7)
    rows = [i for i in ids if len(i) < 100]
    # Rows torn inside a character too, but with byte fallback: there the reference writes U+FFFD for every byte.
    if not has_byte_tokens(folder):
        top = max(max(i) for i in ids if i)
        rows = [i[:rng.randint(0, len(i))] for i in rows] + [[rng.randint(0, top) for _ in range(rng.randint(0, 12))] for _ in range(3000)]
    return wrong + report(folder, "decoded", rows, ask(tool, folder, [{"decode": i} for i in rows]), reference.decode(rows))


def compare_families(tool, cases):
    import family_vocabularies
    with tempfile.TemporaryDirectory() as temporary:
        out = pathlib.Path(temporary)
        family_vocabularies.make_families(out)
        family_vocabularies.make_parts(out)
        return sum(compare(tool, folder, cases, (folder / "tokenizer_config.json").exists()) for folder in sorted(out.iterdir()))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tool", required=True)
    parser.add_argument("--auto", action="store_true", help="transformers.AutoTokenizer is the reference of every folder")
    parser.add_argument("--texts", type=int, default=0, help="so many of the texts, drawn; 0: all, 40,000")
    parser.add_argument("--families", action="store_true", help="makes the folders of family_vocabularies.py and compares them")
    parser.add_argument("folders", nargs="*", type=pathlib.Path)
    args = parser.parse_args()
    try:
        import google.protobuf  # noqa: F401  transformers reads tokenizer.model with it
        import sentencepiece  # noqa: F401
        import tokenizers  # noqa: F401
        import transformers  # noqa: F401
    except ImportError as missing:
        print(f"SKIPPED: {missing}")
        sys.exit(77)
    cases = list(text_cases.all_cases(PROSE.read_text(encoding="utf-8")))
    if args.texts:
        cases = cases[:11] + random.Random(5).sample(cases, min(args.texts, len(cases)))
    wrong = sum(compare(args.tool, f, cases, args.auto) for f in args.folders)
    if args.families:
        wrong += compare_families(args.tool, cases)
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
