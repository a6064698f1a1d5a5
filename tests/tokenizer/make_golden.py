#!/usr/bin/env python3
"""Writes tests/tokenizer/golden: small vocabularies in every form and what the PyPI packages make of a set of texts.

    python tests/tokenizer/make_golden.py

texts.json is a list of texts; FORM/expected.txt has one line for each: FNV-1a hashes of the ids, of the ids with special
tokens as plain text, and of the decoded text; "-" where the reference has no answer. The bundled model is FORM tales.
"""
import json
import pathlib
import random
import re
import shutil

import compare_live
import family_vocabularies
import text_cases
import vocabularies

GOLDEN = pathlib.Path(__file__).resolve().parent / "golden"
BUNDLED = vocabularies.ROOT / "examples" / "tales-opt-8m"
# Forms whose files would add 250 KB each and test nothing that others do not.
LEFT_OUT = {"opt_json", "spm_unigram_bytes", "unknown_single_json"}
NUM_TEXTS = 2000
# Of the families and parts, one of each kind; compare_live.py --families compares them all.
FAMILIES = {"deepseek_v3", "nemo", "phi4_mini", "closed_words", "r1_distill_qwen", "gemma", "gemma_model", "llama2_legacy_model", "mistral", "mistral_model"}
PARTS = {"normalizer_nfkc", "normalizer_spaces", "pre_tokenizer_bert", "pre_tokenizer_pattern_merged_with_next_0"}


def fnv1a(data):
    value = 0x811C9DC5
    for byte in data:
        value = (value ^ byte) * 0x01000193 & 0xFFFFFFFF
    return f"{value:08x}"


def id_hash(ids):
    return "-" if ids is None else fnv1a(b"".join(i.to_bytes(4, "little") for i in ids))


def text_hash(text):
    return "-" if text is None else fnv1a(text.encode())


def golden_texts():
    cases = list(text_cases.all_cases(compare_live.PROSE.read_text(encoding="utf-8")))
    short = [c for c in cases if len(c.encode()) < 400]
    picked = random.Random(11).sample(short, NUM_TEXTS)
    return cases[:11] + picked


def write_expected(folder, source, texts):
    auto = source.name in FAMILIES or source.name == "spm_llama"
    reference = compare_live.reference_of(source, auto)
    ids = reference.encode(texts, False)
    plain = reference.encode(texts, True)
    if source.name == "spm_unigram":
        # Between splits of equal score, versions of the library choose apart by the rounding of a long sum; runs of one
        # character have such splits.
        plain = [p if len(t) <= 12 and not re.search(r"(.)\1\1", t, re.S) else None for t, p in zip(texts, plain)]
        ids = [None] * len(texts)
    decoded = [None if i is None else reference.decode([i])[0] for i in ids]
    lines = [f"{id_hash(i)} {id_hash(p)} {text_hash(d)}\n" for i, p, d in zip(ids, plain, decoded)]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "expected.txt").write_text("".join(lines))


def main():
    shutil.rmtree(GOLDEN, ignore_errors=True)
    for make in vocabularies.SMALL:
        make(GOLDEN)
    family_vocabularies.make_families(GOLDEN)
    family_vocabularies.make_parts(GOLDEN)
    texts = golden_texts()
    for folder in GOLDEN.iterdir():
        if folder.name in family_vocabularies.names() - FAMILIES - PARTS:
            shutil.rmtree(folder)
    for form in LEFT_OUT:
        shutil.rmtree(GOLDEN / form)
    for folder in sorted(GOLDEN.iterdir()):
        write_expected(folder, folder, texts)
    write_expected(GOLDEN / "tales", BUNDLED, texts)
    (GOLDEN / "texts.json").write_text(json.dumps(texts, ensure_ascii=False), encoding="utf-8")


if __name__ == "__main__":
    main()
