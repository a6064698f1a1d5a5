"""Tokenizers of GGUF files as tokenizer.json has them. Standard library only."""
from gguf_file import fail

CONTROL, USER_DEFINED = 3, 4  # types of a token
SPACE = "\u2581"


def added_tokens(gguf, types):
    tokens, kinds = gguf.values["tokenizer.ggml.tokens"], gguf.values["tokenizer.ggml.token_type"]
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    return [{"id": n, "content": tokens[n]} | flags | {"special": kind == CONTROL} for n, kind in enumerate(kinds) if kind in types]


def numbered(gguf):
    return {token: n for n, token in enumerate(gguf.values["tokenizer.ggml.tokens"])}


def smollm(gguf):
    if gguf.values["tokenizer.ggml.pre"] != "smollm":
        fail(f"the pre-tokenizer {gguf.values['tokenizer.ggml.pre']} is not known here; smollm is")
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": added_tokens(gguf, [CONTROL]), "normalizer": None,
            "pre_tokenizer": {"type": "Sequence", "pretokenizers": [{"type": "Digits", "individual_digits": True}, byte_level]},
            "post_processor": None, "decoder": byte_level,
            "model": {"type": "BPE", "vocab": numbered(gguf), "merges": gguf.values["tokenizer.ggml.merges"]}}


def merges_of(vocab):
    """Merges that a SentencePiece vocabulary stands for: the token of the lowest number first, and of one token's pairs that
    with the lower numbers."""
    merges = []
    for token in sorted(vocab, key=vocab.get):
        pairs = [(token[:end], token[end:]) for end in range(1, len(token)) if token[:end] in vocab and token[end:] in vocab]
        merges += sorted(pairs, key=lambda pair: (vocab[pair[0]], vocab[pair[1]]))
    return merges


def gemma(gguf):
    """Gemma's: SentencePiece BPE without a space in front, pieces of bytes for what the vocabulary lacks."""
    if gguf.values["tokenizer.ggml.model"] != "llama" or gguf.values["tokenizer.ggml.add_space_prefix"]:
        fail("the tokenizer is not SentencePiece's without a space in front")
    # The file has runs of spaces as they are; to the model they come as the normalizer's mark, so merges make them.
    added = [token for token in added_tokens(gguf, [CONTROL, USER_DEFINED]) if " " not in token["content"]]
    vocab = {token.replace(" ", SPACE): n for token, n in numbered(gguf).items()}
    start = gguf.values["tokenizer.ggml.bos_token_id"]
    name = gguf.values["tokenizer.ggml.tokens"][start]
    begin = {"SpecialToken": {"id": name, "type_id": 0}}
    template = {"type": "TemplateProcessing", "single": [begin, {"Sequence": {"id": "A", "type_id": 0}}],
                "pair": [begin, {"Sequence": {"id": "A", "type_id": 0}}, begin, {"Sequence": {"id": "B", "type_id": 1}}],
                "special_tokens": {name: {"id": name, "ids": [start], "tokens": [name]}}}
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": added,
            "normalizer": {"type": "Replace", "pattern": {"String": " "}, "content": SPACE},
            "pre_tokenizer": {"type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious", "invert": False},
            "post_processor": template,
            "decoder": {"type": "Sequence", "decoders": [
                {"type": "Replace", "pattern": {"String": SPACE}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"}]},
            "model": {"type": "BPE", "dropout": None, "unk_token": "<unk>", "continuing_subword_prefix": None, "end_of_word_suffix": None,
                      "fuse_unk": True, "byte_fallback": True, "ignore_merges": False, "vocab": vocab, "merges": merges_of(vocab)}}


def settings(gguf):
    """The content of tokenizer_config.json."""
    tokens = gguf.values["tokenizer.ggml.tokens"]
    named = {f"{name}_token": tokens[gguf.values[f"tokenizer.ggml.{name}_token_id"]] for name in ("bos", "eos")}
    return named | {"tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": False,
                    "chat_template": gguf.values.get("tokenizer.chat_template")}
