"""Makes folders of tokenizer files in the manner of each model family, and one for every part that a tokenizer.json can have.

The parts, patterns and flags are those of the families' published files; the vocabularies are small and trained here.
`python family_vocabularies.py OUT` makes them all; compare_live.py compares them with the PyPI packages.
"""
import json
import pathlib
import sys

import sentencepiece
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

from vocabularies import LLAMA3, QWEN2, byte_level_bpe, save_json, small_corpus, string_merges, train_sentencepiece, write

UPPER, LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
CONTRACTION = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
TAIL = r" ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
TEKKEN = rf"[^\r\n\p{{L}}\p{{N}}]?{UPPER}*{LOWER}+|[^\r\n\p{{L}}\p{{N}}]?{UPPER}+{LOWER}*|\p{{N}}|" + TAIL
GPT_4O = (rf"[^\r\n\p{{L}}\p{{N}}]?{UPPER}*{LOWER}+{CONTRACTION}?|[^\r\n\p{{L}}\p{{N}}]?{UPPER}+{LOWER}*{CONTRACTION}?|"
          r"\p{N}{1,3}|" + TAIL)
CLOSED = (r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|\s+(?!\S)|\s")
QWEN3_5 = LLAMA3.replace(r"\p{L}+|", r"[\p{L}\p{M}]+|").replace(r"[^\s\p{L}\p{N}]", r"[^\s\p{L}\p{M}\p{N}]").replace("{1,3}", "")
DEEPSEEK = [r"\p{N}{1,3}", "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+",
            r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|"
            r"\s+(?!\S)|\s+"]
DEEPSEEK_CODER = [r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+"]


def splits(*patterns, behavior="isolated", invert=False):
    return [pre_tokenizers.Split(Regex(p), behavior, invert=invert) for p in patterns]


def plain_bytes():
    return pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)


def gpt_words():
    return pre_tokenizers.ByteLevel(add_prefix_space=False)


def start_template(token, number):
    return processors.TemplateProcessing(single=f"{token} $A", pair=f"{token} $A {token}:1 $B:1", special_tokens=[(token, number)])


# name: (steps of the pre-tokenizer, normalizer, special tokens, start token or None, tokenizer_class, model_type, model flags)
BYTE_LEVEL = {
    "llama3": (splits(LLAMA3) + [plain_bytes()], None, ["<|begin_of_text|>", "<|end_of_text|>", "<|eot_id|>"], "<|begin_of_text|>",
               "PreTrainedTokenizerFast", "llama", {"ignore_merges": True}),
    "r1_distill_llama": (splits(LLAMA3) + [plain_bytes()], None, ["<\uff5cbegin\u2581of\u2581sentence\uff5c>", "<\uff5cend\u2581of\u2581sentence\uff5c>", "<\uff5cUser\uff5c>"],
                         "<\uff5cbegin\u2581of\u2581sentence\uff5c>", "LlamaTokenizerFast", "llama", {"ignore_merges": True}),
    "r1_distill_qwen": (splits(QWEN2) + [plain_bytes()], normalizers.NFC(), ["<\uff5cbegin\u2581of\u2581sentence\uff5c>", "<\uff5cend\u2581of\u2581sentence\uff5c>"],
                        "<\uff5cbegin\u2581of\u2581sentence\uff5c>", "LlamaTokenizerFast", "qwen2", {}),
    "deepseek_v3": (splits(*DEEPSEEK) + [plain_bytes()], None, ["<\uff5cbegin\u2581of\u2581sentence\uff5c>", "<\uff5cend\u2581of\u2581sentence\uff5c>"],
                    "<\uff5cbegin\u2581of\u2581sentence\uff5c>", "LlamaTokenizerFast", "deepseek_v3", {}),
    "deepseek_coder": (splits(*DEEPSEEK_CODER) + [pre_tokenizers.Digits(individual_digits=True), plain_bytes()], None, ["<|end|>"], None,
                       "LlamaTokenizerFast", "llama", {}),
    "nemo": (splits(TEKKEN) + [plain_bytes()], None, ["<unk>", "<s>", "</s>", "[INST]", "[/INST]"], "<s>", "PreTrainedTokenizerFast", "mistral",
             {"ignore_merges": True}),
    "gptoss": (splits(GPT_4O) + [plain_bytes()], None,
               ["<|startoftext|>", "<|endoftext|>", "<|return|>", "<|constrain|>", "<|channel|>", "<|start|>", "<|end|>", "<|message|>",
                "<|call|>"], None, "PreTrainedTokenizerFast", "gpt_oss", {}),
    "qwen2": (splits(QWEN2) + [plain_bytes()], normalizers.NFC(), ["<|endoftext|>", "<|im_start|>", "<|im_end|>"], None, "Qwen2Tokenizer", "qwen2", {}),
    "qwen3": (splits(QWEN2) + [plain_bytes()], normalizers.NFC(), ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<think>"], None, "Qwen2Tokenizer", "qwen3", {}),
    "qwen3_5": (splits(QWEN3_5) + [plain_bytes()], normalizers.NFC(), ["<|endoftext|>"], None, "Qwen2Tokenizer", "", {}),
    "phi4": (splits(LLAMA3, behavior="removed", invert=True) + [plain_bytes()], None, ["<|endoftext|>", "<|im_start|>", "<|im_sep|>"], None, "GPT2Tokenizer",
             "phi3", {}),
    "phi4_mini": (splits(GPT_4O) + [plain_bytes()], None, ["<|endoftext|>", "<|end|>"], None, "GPT2TokenizerFast", "phi3", {}),
    "closed_words": (splits(CLOSED) + [plain_bytes()], None, [], None, "PreTrainedTokenizerFast", "", {}),
    "pythia": ([gpt_words()], normalizers.NFC(), ["<|endoftext|>", "<|padding|>"], None, "GPTNeoXTokenizer", "gpt_neox", {}),
    "smollm2": ([pre_tokenizers.Digits(individual_digits=True), gpt_words()], None, ["<|endoftext|>", "<|im_start|>", "<|im_end|>"], None, "GPT2Tokenizer",
                "llama", {}),
    "falcon": ([pre_tokenizers.Punctuation("contiguous"), gpt_words(), pre_tokenizers.Digits(individual_digits=False)]
               + splits("[0-9][0-9][0-9]"), None, ["<|endoftext|>"], None, "PreTrainedTokenizerFast", "falcon", {}),
}

NORMALIZERS = {
    "nfd": normalizers.NFD(), "nfkc": normalizers.NFKC(), "nfkd": normalizers.NFKD(), "lowercase": normalizers.Lowercase(),
    "strip": normalizers.Strip(), "strip_left": normalizers.Strip(right=False), "nfd_accents": normalizers.Sequence([normalizers.NFD(), normalizers.StripAccents()]),
    "accents": normalizers.StripAccents(), "spaces": normalizers.Sequence([normalizers.Replace(Regex(r"\A +| +\z"), ""), normalizers.Replace(Regex(" {2,}"), "\u2581")]),
    "prepend": normalizers.Sequence([normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")]),
    "lines": normalizers.Replace(Regex(r"^\s+|\s+$|(?=a)[a-c]{2}|b.c"), "|"),
}
PRE_TOKENIZERS = {
    "whitespace": [pre_tokenizers.Whitespace(), gpt_words()], "whitespace_split": [pre_tokenizers.WhitespaceSplit(), gpt_words()],
    "bert": [pre_tokenizers.BertPreTokenizer(), gpt_words()], "delimiter": [pre_tokenizers.CharDelimiterSplit("a"), gpt_words()],
    "spaces_first": [pre_tokenizers.Split(" ", "removed"), pre_tokenizers.Metaspace(prepend_scheme="first", split=False), plain_bytes()],
    "digits": [pre_tokenizers.Digits(individual_digits=False), plain_bytes()],
}
for _behavior in ("removed", "isolated", "merged_with_previous", "merged_with_next", "contiguous"):
    PRE_TOKENIZERS["punctuation_" + _behavior] = [pre_tokenizers.Punctuation(_behavior), plain_bytes()]
    PRE_TOKENIZERS["text_" + _behavior] = [pre_tokenizers.Split("  ", _behavior), plain_bytes()]
    for _invert in (False, True):
        PRE_TOKENIZERS[f"pattern_{_behavior}_{int(_invert)}"] = splits(r"\p{Lu}+|[^\s\p{L}]", behavior=_behavior, invert=_invert) + [plain_bytes()]
    PRE_TOKENIZERS["known_" + _behavior] = splits(LLAMA3, behavior=_behavior) + [plain_bytes()]


def settings(folder, tokenizer_class, model_type, **more):
    write(folder, "tokenizer_config.json", {"tokenizer_class": tokenizer_class} | more)
    if model_type:
        write(folder, "config.json", {"model_type": model_type, "transformers_version": "5.24.0"})


def make_byte_level(out, name, size=600):
    steps, normalizer, specials, start, tokenizer_class, model_type, flags = BYTE_LEVEL[name]
    tokenizer = byte_level_bpe(small_corpus(), size, pre_tokenizers.Sequence(steps), [], normalizer, **flags)
    tokenizer.add_special_tokens([AddedToken(t, normalized=False) for t in specials])
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    if start:
        tokenizer.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=False), start_template(start, tokenizer.token_to_id(start))])
    folder = out / name
    save_json(folder, tokenizer)
    named = {"bos_token": start, "add_bos_token": True} if start else {}
    settings(folder, tokenizer_class, model_type, **named)


def make_part(out, name, normalizer, steps):
    """Every part by itself, with the alphabet of bytes and few merges; RoBERTa's post-processor, as it fits anywhere."""
    tokenizer = byte_level_bpe(small_corpus(), 300, pre_tokenizers.Sequence(steps), ["<s>", "</s>"], normalizer)
    tokenizer.post_processor = processors.RobertaProcessing(("</s>", 1), ("<s>", 0))
    save_json(out / name, tokenizer)


def piece_merges(vocab):
    """The joins of a SentencePiece BPE model as merges: by the number of the piece that they make."""
    ranked = [(number, vocab[p[:cut]], vocab[p[cut:]], p[:cut], p[cut:]) for p, number in vocab.items() if not p.startswith("<")
              for cut in range(1, len(p)) if p[:cut] in vocab and p[cut:] in vocab]
    return [(left, right) for *_, left, right in sorted(ranked)]


LLAMA_OPTIONS = dict(model_type="bpe", byte_fallback=True, normalization_rule_name="identity", remove_extra_whitespaces=False, split_digits=True,
                     allow_whitespace_only_pieces=True, character_coverage=0.99)
GEMMA_OPTIONS = LLAMA_OPTIONS | dict(add_dummy_prefix=False, pad_id=0, eos_id=1, bos_id=2, unk_id=3, bos_piece="<bos>", eos_piece="<eos>", pad_piece="<pad>",
                                     user_defined_symbols=["<start_of_turn>", "<end_of_turn>", "\n\n", "\u2581\u2581", "\u2581\u2581\u2581\u2581", "<table>"])


def piece_tokenizer(model):
    processor = sentencepiece.SentencePieceProcessor(model_proto=model)
    vocab = {processor.id_to_piece(i): i for i in range(processor.get_piece_size())}
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=piece_merges(vocab), unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    steps = [decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse()]
    return tokenizer, vocab, steps


def save_pieces(folder, model, tokenizer, tokenizer_class, model_type, **more):
    """The folder with tokenizer.json, and beside it one with the SentencePiece file alone."""
    save_json(folder, tokenizer, string_merges)
    settings(folder, tokenizer_class, model_type, **more)
    bare = folder.with_name(folder.name + "_model")
    bare.mkdir(parents=True, exist_ok=True)
    (bare / "tokenizer.model").write_bytes(model)
    settings(bare, tokenizer_class, model_type, **more)


def make_llama(out):
    model = train_sentencepiece(700, **LLAMA_OPTIONS)
    named = dict(bos_token="<s>", eos_token="</s>", unk_token="<unk>", add_bos_token=True, add_eos_token=False)
    for name, model_type, legacy in (("llama2", "llama", False), ("llama2_legacy", "llama", True), ("mistral", "mistral", True), ("phi3", "phi3", False)):
        tokenizer, vocab, steps = piece_tokenizer(model)
        tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")])
        tokenizer.decoder = decoders.Sequence(steps + [decoders.Strip(" ", 1, 0)])
        tokenizer.add_special_tokens([AddedToken(t, normalized=False) for t in ("<unk>", "<s>", "</s>")])
        if name == "phi3":
            tokenizer.add_special_tokens([AddedToken(t, rstrip=True, normalized=False) for t in ("<|user|>", "<|end|>", "<|assistant|>")])
        tokenizer.post_processor = start_template("<s>", 1)
        save_pieces(out / name, model, tokenizer, "LlamaTokenizer", model_type, legacy=legacy, **named)
    tokenizer.normalizer = None
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    save_pieces(out / "mistral_v3", model, tokenizer, "LlamaTokenizer", "mistral", legacy=False, **named)
    save_pieces(out / "llama2_no_prefix", model, tokenizer, "LlamaTokenizer", "llama", legacy=False, add_prefix_space=False, add_eos_token=True,
                **{k: v for k, v in named.items() if k != "add_eos_token"})


def make_gemma(out):
    model = train_sentencepiece(700, **GEMMA_OPTIONS)
    tokenizer, vocab, steps = piece_tokenizer(model)
    tokenizer.normalizer = normalizers.Replace(" ", "\u2581")
    tokenizer.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    tokenizer.decoder = decoders.Sequence(steps)
    tokenizer.post_processor = start_template("<bos>", 2)
    tokenizer.add_special_tokens([AddedToken(t, normalized=False) for t in ("<pad>", "<eos>", "<bos>", "<unk>", "<start_of_turn>", "<end_of_turn>")])
    tokenizer.add_tokens([AddedToken(t, normalized=False) for t in ("\n\n", "\u2581\u2581", "\u2581\u2581\u2581\u2581", "<table>")])
    named = dict(bos_token="<bos>", eos_token="<eos>", unk_token="<unk>", pad_token="<pad>", add_bos_token=True, add_eos_token=False)
    for name, model_type in (("gemma", "gemma"), ("gemma3", "gemma3_text")):
        save_pieces(out / name, model, tokenizer, "GemmaTokenizer", model_type, **named)


PIECES = ["llama2", "llama2_legacy", "mistral", "phi3", "mistral_v3", "llama2_no_prefix", "gemma", "gemma3"]


def names():
    """Of all folders."""
    pieces = {name + end for name in PIECES for end in ("", "_model")}
    return set(BYTE_LEVEL) | pieces | {"normalizer_" + n for n in NORMALIZERS} | {"pre_tokenizer_" + n for n in PRE_TOKENIZERS} | {"no_decoder"}


def make_families(out):
    for name in BYTE_LEVEL:
        make_byte_level(out, name)
    make_llama(out)
    make_gemma(out)


def make_parts(out):
    for name, normalizer in NORMALIZERS.items():
        make_part(out, "normalizer_" + name, normalizer, [gpt_words()])
    for name, steps in PRE_TOKENIZERS.items():
        make_part(out, "pre_tokenizer_" + name, None, steps)
    document = json.loads((out / "pre_tokenizer_bert" / "tokenizer.json").read_text())
    document["decoder"] = None
    write(out / "no_decoder", "tokenizer.json", document)


if __name__ == "__main__":
    make_families(pathlib.Path(sys.argv[1]))
    make_parts(pathlib.Path(sys.argv[1]))
