#!/usr/bin/env python3
"""Writes src/unicode/tables.inc and unicode_categories.inc: character classes as the reference sees them.

The reference (PyPI `tokenizers`) links several engines with several Unicode versions: Oniguruma for patterns, Rust's
standard library for Digits and Lowercase, and crates for added tokens, punctuation, accents and normalisation. Asking
it about every code point is exact by construction; a table of some Unicode version would not be. The normalisation
forms themselves are utf8proc's; what is written here is what the reference's older Unicode (9.0) does not decompose,
compose or order yet, found by comparison with the newest Unicode that PyPI `unicodedata2` has, so that it holds for
any utf8proc.

    python tests/tokenizer/make_unicode_tables.py src/unicode
"""
import pathlib
import sys

import tokenizers
import unicodedata2
from tokenizers import AddedToken, Regex, Tokenizer, models, normalizers, pre_tokenizers

CODE_POINTS = [c for c in range(0x110000) if not 0xD800 <= c <= 0xDFFF]


def ranges(members):
    out = []
    for c in sorted(members):
        if out and out[-1][1] == c - 1:
            out[-1][1] = c
        else:
            out.append([c, c])
    return out


def regex_class(pattern):
    split = pre_tokenizers.Split(Regex(pattern), "removed")
    return {c for c in CODE_POINTS if not split.pre_tokenize_str(chr(c))}


def digits_class():
    """Digits isolates numeric characters: "a" + c stays whole when c is none."""
    digits = pre_tokenizers.Digits(individual_digits=False)
    return {c for c in CODE_POINTS if len(digits.pre_tokenize_str("a" + chr(c))) == 2}


def added_token_tokenizer(**flags):
    tokenizer = Tokenizer(models.BPE(vocab={"?": 0}, merges=[], unk_token="?"))
    tokenizer.add_tokens([AddedToken("\x01T\x02", normalized=False, **flags)])
    return tokenizer


def word_class():
    """single_word tokens are not found next to a word character."""
    tokenizer = added_token_tokenizer(single_word=True)
    found = tokenizer.encode_batch([chr(c) + "\x01T\x02" for c in CODE_POINTS])
    return {c for c, e in zip(CODE_POINTS, found) if 1 not in e.ids}


def strip_class():
    """lstrip tokens take white space in front."""
    tokenizer = added_token_tokenizer(lstrip=True)
    found = tokenizer.encode_batch([chr(c) + "\x01T\x02" for c in CODE_POINTS])
    return {c for c, e in zip(CODE_POINTS, found) if e.ids == [1]}


NFD, NFC = normalizers.NFD(), normalizers.NFC()


def is_mark_of_the_reference(c):
    """A mark of a lower class moves in front of U+0345 (240, the highest)."""
    return c == 0x345 or NFD.normalize_str("\u0345" + chr(c)) != "\u0345" + NFD.normalize_str(chr(c))


def newer_than_reference():
    """Marks and parts of composites of later Unicode versions, which the reference takes for plain characters."""
    newer = {c for c in CODE_POINTS if unicodedata2.combining(chr(c)) and not is_mark_of_the_reference(c)}
    known_parts = set()
    new_composites = []
    for c in CODE_POINTS:
        fields = unicodedata2.decomposition(chr(c)).split()
        if not fields or fields[0].startswith("<"):
            continue
        parts = [int(field, 16) for field in fields]
        if NFD.normalize_str(chr(c)) == chr(c):
            new_composites.append((c, parts))
        else:
            known_parts.update(parts)
    for c, parts in new_composites:
        new_parts = {part for part in parts if part not in known_parts and not is_mark_of_the_reference(part)}
        assert new_parts, hex(c)  # Unicode promises it: text in form C stays in form C
        newer |= {c} | new_parts
    return newer


def newer_compatible(newer):
    """What the newest Unicode decomposes in the forms KC and KD, and the reference does not."""
    nfkd = normalizers.NFKD()
    return {c for c in CODE_POINTS if c not in newer and unicodedata2.decomposition(chr(c)).startswith("<")
            and nfkd.normalize_str(chr(c)) == chr(c)}


# In the order of utf8proc's numbers, so that 0 is "not assigned".
CATEGORIES = ("Cn Lu Ll Lt Lm Lo Mn Mc Me Nd Nl No Pc Pd Ps Pe Pi Pf Po Sm Sc Sk So Zs Zl Zp Cc Cf Cs Co").split()


def categories():
    """(first, last, number of the category) of every run of assigned characters."""
    of = {}
    for number, name in enumerate(CATEGORIES):
        if name not in ("Cn", "Cs"):
            of.update((c, number) for c in regex_class(rf"\p{{{name}}}"))
    return runs_of(of)


def runs_of(value_of):
    """(first, last, value) of every run of neighbours with one value."""
    out = []
    for c, value in sorted(value_of.items()):
        if out and out[-1][1] == c - 1 and out[-1][2] == value:
            out[-1][1] = c
        else:
            out.append([c, c, value])
    return out


def lower_case():
    """(first, last, distance) of runs that move by one distance, every second one or all; and what becomes two characters."""
    lower = normalizers.Lowercase()
    moves, longer = {}, {}
    for c in CODE_POINTS:
        text = lower.normalize_str(chr(c))
        if len(text) > 1:
            longer[c] = text
        elif text != chr(c):
            moves[c] = ord(text) - c
    assert list(longer) == [0x130], longer
    return runs_of(moves)


def mark_class():
    """StripAccents takes them away."""
    strip = normalizers.StripAccents()
    return {c for c in CODE_POINTS if not strip.normalize_str(chr(c))}


def punctuation_class():
    punctuation = pre_tokenizers.Punctuation()
    return {c for c in CODE_POINTS if len(punctuation.pre_tokenize_str("a" + chr(c))) == 2}


def white_space_class():
    split = pre_tokenizers.WhitespaceSplit()
    return {c for c in CODE_POINTS if not split.pre_tokenize_str(chr(c))}


def words_class():
    """\\w of the pre-tokenizer Whitespace: such a character joins with a letter."""
    words = pre_tokenizers.Whitespace()
    return {c for c in CODE_POINTS if len(words.pre_tokenize_str("a" + chr(c))) == 1 and words.pre_tokenize_str(chr(c))}


HEAD = (f"// Generated by tests/tokenizer/make_unicode_tables.py from tokenizers {tokenizers.__version__}; do not edit.\n"
        "// clang-format off\n\n")


def rows(entries, per_line):
    lines = []
    for at in range(0, len(entries), per_line):
        lines.append("    " + " ".join(entries[at:at + per_line]) + "\n")
    return "".join(lines)


def ranges_table(name, comment, members):
    entries = [f"{{0x{a:X}, 0x{b:X}}}," for a, b in ranges(members)]
    return f"// {comment}\ninline constexpr CodePointRange {name}[] = {{\n{rows(entries, 6)}}};\n\n"


def values_table(name, comment, runs):
    entries = [f"{{0x{a:X}, 0x{b:X}, {value}}}," for a, b, value in runs]
    return f"// {comment}\ninline constexpr CodePointValue {name}[] = {{\n{rows(entries, 12)}}};\n\n"


def main():
    folder = pathlib.Path(sys.argv[1])
    word, strip, newer = word_class(), strip_class(), newer_than_reference()
    assert white_space_class() == strip and words_class() == word
    (folder / "tables.inc").write_text(
        HEAD
        + ranges_table("kSpaceRanges", r"\s of the pre-tokenizer patterns.", regex_class(r"\s"))
        + ranges_table("kDigitsRanges", "What the Digits pre-tokenizer isolates.", digits_class())
        + ranges_table("kWordRanges", "Word characters, for added tokens with single_word and for Whitespace.", word)
        + ranges_table("kStripRanges", "White space, for added tokens with lstrip and rstrip, for Strip and WhitespaceSplit.", strip)
        + ranges_table("kPunctuationRanges", "What Punctuation and BertPreTokenizer isolate.", punctuation_class())
        + ranges_table("kAccentRanges", "What StripAccents takes away.", mark_class())
        + ranges_table("kNewerRanges", "What Unicode made marks or parts of composites after the reference's version (until "
                       f"{unicodedata2.unidata_version}).", newer)
        + ranges_table("kNewerCompatibleRanges", "What the forms KC and KD decompose since then.", newer_compatible(newer)))
    (folder / "categories.inc").write_text(
        HEAD + values_table("kCategories", "General categories of the patterns, by their numbers in GeneralCategory.", categories())
        + values_table("kLowerCase", "Distances to the lower case.", lower_case()))


if __name__ == "__main__":
    main()
