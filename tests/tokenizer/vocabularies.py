"""Makes folders of tokenizer files in every form that Spillway reads, trained with the PyPI packages.

Imported by make_golden.py; `python vocabularies.py OUT` makes all of them, the one of GPT-2's size too.
"""
import glob
import io
import json
import os
import pathlib
import shutil
import sys

import sentencepiece
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

ROOT = pathlib.Path(__file__).resolve().parents[2]
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|"
          r"\s+(?!\S)|\s+")
QWEN2 = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
FOREIGN = ("Привет, мир! שלום עולם مرحبا بالعالم नमस्ते दुनिया สวัสดีชาวโลก 你好世界 こんにちは世界 한국어 안녕하세요 café naïve "
           "Ångström straße İstanbul Σίσυφος 😀 👨‍👩‍👧‍👦 👍🏽 🇺🇸 ❤️ … — “quoted” 1,000,000 3.14159 ١٢٣ ½ ²\r\n\r\n\t\xa0\u3000 ")


def small_corpus():
    tales = (ROOT / "examples" / "heldout_tales.txt").read_text(encoding="utf-8")
    return [line + "\n" for line in (tales[:150000] + FOREIGN * 20).split("\n")]


def machine_corpus(limit_bytes):
    """Whatever text this machine has: documentation and Python sources."""
    total = 0
    names = glob.glob("/usr/share/doc/**/*", recursive=True) + glob.glob(os.path.dirname(os.__file__) + "/**/*.py", recursive=True)
    names += glob.glob("/usr/share/perl/**/*.p[lm]", recursive=True) + glob.glob("/usr/include/**/*.h*", recursive=True)
    for name in sorted(names):
        if not os.path.isfile(name) or name.endswith((".gz", ".png")):
            continue
        text = open(name, encoding="utf-8", errors="ignore").read(300000)
        total += len(text)
        yield text
        if total > limit_bytes:
            return
    yield FOREIGN * 50


def byte_level_bpe(corpus, size, pre_tokenizer, specials, normalizer=None, **model_flags):
    tokenizer = Tokenizer(models.BPE(**model_flags))
    if normalizer:
        tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = pre_tokenizer
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator(corpus, trainers.BpeTrainer(
        vocab_size=size, special_tokens=specials, show_progress=False, initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    return tokenizer


def write(folder, name, content):
    folder.mkdir(parents=True, exist_ok=True)
    text = content if isinstance(content, str) else json.dumps(content, ensure_ascii=False, indent=None)
    (folder / name).write_text(text, encoding="utf-8")


def save_json(folder, tokenizer, edit=None):
    document = json.loads(tokenizer.to_str())
    if edit:
        edit(document)
    write(folder, "tokenizer.json", document)


def string_merges(document):
    """The format of files written before 2024: "a b" instead of ["a", "b"]."""
    document["model"]["merges"] = [" ".join(m) for m in document["model"]["merges"]]


def gpt2_files(folder, tokenizer, config):
    model = json.loads(tokenizer.to_str())["model"]
    write(folder, "vocab.json", model["vocab"])
    write(folder, "merges.txt", "#version: 0.2\n" + "".join(" ".join(m) + "\n" for m in model["merges"]))
    write(folder, "tokenizer_config.json", config)


def make_gpt2(out):
    tokenizer = byte_level_bpe(small_corpus(), 900, pre_tokenizers.ByteLevel(add_prefix_space=False), ["<|endoftext|>"])
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    save_json(out / "gpt2_json", tokenizer, string_merges)
    gpt2_files(out / "gpt2_files", tokenizer, {"tokenizer_class": "GPT2Tokenizer"})
    write(out / "gpt2_files", "config.json", {"model_type": "gpt2"})


def make_gpt2_size(out):
    tokenizer = byte_level_bpe(machine_corpus(60_000_000), 50257, pre_tokenizers.ByteLevel(add_prefix_space=False), ["<|endoftext|>"])
    assert tokenizer.get_vocab_size() == 50257
    gpt2_files(out / "gpt2_size", tokenizer, {"tokenizer_class": "GPT2Tokenizer"})
    write(out / "gpt2_size", "config.json", {"model_type": "gpt2"})


def make_opt_json(out):
    """What transformers 4 writes for an OPT folder: the start token is in the post-processor."""
    bundled = ROOT / "examples" / "tales-opt-8m"
    tokenizer = Tokenizer(models.BPE.from_file(str(bundled / "vocab.json"), str(bundled / "merges.txt")))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken("<pad>", normalized=True), AddedToken("</s>", normalized=True)])
    tokenizer.post_processor = processors.TemplateProcessing(single="</s>:0 $A:0", pair="</s>:0 $A:0 </s>:1 $B:1", special_tokens=[("</s>", 2)])
    save_json(out / "opt_json", tokenizer)
    for name in ("tokenizer_config.json", "special_tokens_map.json", "config.json"):
        shutil.copy(bundled / name, out / "opt_json" / name)


def make_neox(out):
    tokenizer = byte_level_bpe(small_corpus(), 800, pre_tokenizers.ByteLevel(add_prefix_space=False), ["<|endoftext|>", "<|padding|>"],
                               normalizers.NFC())
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=True, add_prefix_space=False)
    tokenizer.add_tokens([AddedToken(" " * n, normalized=True) for n in range(24, 1, -1)])
    save_json(out / "gpt_neox_json", tokenizer, string_merges)
    write(out / "gpt_neox_json", "tokenizer_config.json", {"tokenizer_class": "GPTNeoXTokenizer", "add_prefix_space": False})
    write(out / "gpt_neox_json", "config.json", {"model_type": "gpt_neox"})


def make_llama3(out):
    split = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(LLAMA3), "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tokenizer = byte_level_bpe(small_corpus(), 900, split, [], ignore_merges=True)
    tokenizer.add_special_tokens([AddedToken(t, normalized=False) for t in ("<|begin_of_text|>", "<|end_of_text|>", "<|eot_id|>")])
    start = tokenizer.token_to_id("<|begin_of_text|>")
    tokenizer.post_processor = processors.Sequence([
        processors.ByteLevel(trim_offsets=False),
        processors.TemplateProcessing(single="<|begin_of_text|> $A", pair="<|begin_of_text|> $A <|begin_of_text|>:1 $B:1",
                                      special_tokens=[("<|begin_of_text|>", start)])])

    def whole_words(document):
        """A token that no merge leads to, as tiktoken's ranks have: only ignore_merges finds it."""
        vocab = document["model"]["vocab"]
        vocab[max(vocab, key=vocab.get)] = 10**9
        document["model"]["merges"] = document["model"]["merges"][:-40]
        for rank, token in enumerate(sorted(vocab, key=vocab.get)):
            vocab[token] = rank
    save_json(out / "llama3_json", tokenizer, whole_words)
    write(out / "llama3_json", "tokenizer_config.json", {"tokenizer_class": "PreTrainedTokenizerFast"})
    split = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(QWEN2), "removed", invert=True), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    save_json(out / "qwen2_json", byte_level_bpe(small_corpus(), 600, split, ["<|endoftext|>"], normalizers.NFC()))


def make_flags(out):
    """Added tokens with every flag, looked for before and after normalisation; Digits; a space in front."""
    steps = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=True)])
    tokenizer = byte_level_bpe(small_corpus(), 500, steps, ["<unk>"], normalizers.NFC())
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A </s>", special_tokens=[("<s>", 501), ("</s>", 500)])
    tokenizer.add_special_tokens([AddedToken("</s>", normalized=False), AddedToken("<s>", normalized=True),
                                  AddedToken("<left>", lstrip=True, normalized=False), AddedToken("<mask>", lstrip=True, normalized=True)])
    tokenizer.add_tokens([AddedToken("<right>", rstrip=True, normalized=False), AddedToken("<both>", lstrip=True, rstrip=True, normalized=True),
                          AddedToken("<word>", single_word=True, normalized=False), AddedToken("NBtok", single_word=True, normalized=True),
                          AddedToken("cafe\u0301tok", normalized=True), AddedToken("  ", rstrip=True, normalized=False), AddedToken("<pl"),
                          AddedToken("<plain>"), AddedToken("ain> ", rstrip=True)])
    save_json(out / "flags_json", tokenizer)
    steps = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=False), pre_tokenizers.ByteLevel(add_prefix_space=False)])
    save_json(out / "digits_json", byte_level_bpe(small_corpus(), 400, steps, []))


def train_sentencepiece(size, **options):
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(small_corpus()), model_writer=model, vocab_size=size, minloglevel=2, num_threads=1, **options)
    return model.getvalue()


def make_sentencepiece(out):
    llama = dict(model_type="bpe", byte_fallback=True, normalization_rule_name="identity", remove_extra_whitespaces=False, split_digits=True,
                 allow_whitespace_only_pieces=True, character_coverage=0.99)
    for name, options in {"spm_llama": llama, "spm_unigram": dict(model_type="unigram", normalization_rule_name="identity", character_coverage=0.995),
                          "spm_bpe": dict(model_type="bpe", user_defined_symbols=["<extra>", "[INST]"]),
                          "spm_unigram_bytes": dict(model_type="unigram", byte_fallback=True, character_coverage=0.99)}.items():
        (out / name).mkdir(parents=True, exist_ok=True)
        (out / name / "tokenizer.model").write_bytes(train_sentencepiece(700, **options))
        write(out / name, "tokenizer_config.json", {"tokenizer_class": "LlamaTokenizer", "add_bos_token": True})


def make_llama2(out):
    """LLaMA-2's converted tokenizer.json: pieces of a SentencePiece BPE model, its joins as merges."""
    processor = sentencepiece.SentencePieceProcessor(model_proto=(out / "spm_llama" / "tokenizer.model").read_bytes())
    vocab = {processor.id_to_piece(i): i for i in range(processor.get_piece_size())}
    ranked = []
    for piece, rank in vocab.items():
        for cut in range(1, len(piece)):
            if piece[:cut] in vocab and piece[cut:] in vocab and not piece.startswith("<0x"):
                ranked.append((rank, vocab[piece[:cut]], vocab[piece[cut:]], piece[:cut], piece[cut:]))
    merges = [(left, right) for *_, left, right in sorted(ranked)]
    start = processors.TemplateProcessing(single="<s> $A", pair="<s> $A <s>:1 $B:1", special_tokens=[("<s>", 1)])
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")])
    tokenizer.decoder = decoders.Sequence([decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    tokenizer.post_processor = start
    tokenizer.add_special_tokens([AddedToken(t, normalized=False) for t in ("<unk>", "<s>", "</s>")])
    save_json(out / "llama2_byte_fallback_json", tokenizer, string_merges)
    tokenizer.normalizer = None
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    save_json(out / "metaspace_first_byte_fallback_json", tokenizer)
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always", split=True)
    tokenizer.decoder = decoders.Metaspace()
    tokenizer.add_tokens([AddedToken("<extra>", normalized=True, rstrip=True)])
    kept = [t for t in vocab if not t.startswith("<0x") or t in ("<0xE2>", "<0x81>", "<0xC2>", "<0x85>")]
    no_bytes = {t: i for i, t in enumerate(kept)}
    for fuse in (True, False):
        tokenizer.model = models.BPE(vocab=no_bytes, merges=merges, unk_token="<unk>", fuse_unk=fuse, byte_fallback=True)
        save_json(out / f"unknown_{'fused' if fuse else 'single'}_json", tokenizer)
    tokenizer.model = models.BPE(vocab=no_bytes, merges=merges)
    save_json(out / "unknown_dropped_json", tokenizer)


SMALL = [make_gpt2, make_opt_json, make_neox, make_llama3, make_flags, make_sentencepiece, make_llama2]

if __name__ == "__main__":
    for make in SMALL + [make_gpt2_size]:
        make(pathlib.Path(sys.argv[1]))
