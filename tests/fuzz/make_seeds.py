"""Writes the first inputs of the fuzz targets: FOLDER/TARGET/..., from the repository's own models, examples and tests, and
small ones that nothing there fits. Standard library only.

  python3 make_seeds.py FOLDER
"""

import json
import pathlib
import sys
import zipfile

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
TESTS = REPOSITORY / "tests"
EXAMPLES = REPOSITORY / "examples"
sys.path[:0] = [str(TESTS / "cli"), str(TESTS / "chat"), str(TESTS / "gguf")]

import bad_lines  # noqa: E402
import bad_score_lines  # noqa: E402
import conversations  # noqa: E402
import gguf_writer  # noqa: E402
import snippets  # noqa: E402

DATA = TESTS / "checkpoint/data"
GOLDEN = TESTS / "tokenizer/golden"
INDEX = {"metadata": {"total_size": 4}, "weight_map": {"a": "model-00001-of-00002.safetensors",
                                                       "b": "model-00002-of-00002.safetensors"}}
# Lines of a journal, without the checksums: the target puts them in front.
MANIFEST = '{"journal":1,"manifest":{"flags":"{\\"seed\\":0}","input":"0123456789abcdef"},"replaces":false}'
COMMIT = '{"bytes":3,"hash":"%s","lines":1}'
PART_HASH = "daa13e4f205dc5ba"  # XXH3 of "{}\n"
AHEAD = '{"ahead":"0123456789abcdef"}'
SMALL_TOKENIZER = {
    "added_tokens": [{"id": 3, "content": "<s>", "special": True, "lstrip": True}],
    "normalizer": {"type": "Sequence", "normalizers": [{"type": "NFC"}, {"type": "Replace", "pattern": {"String": "x"},
                                                                          "content": "y"}]},
    "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
        {"type": "Split", "pattern": {"Regex": "\\p{L}+|\\s+(?!\\S)"}, "behavior": "Isolated"}, {"type": "ByteLevel"}]},
    "post_processor": {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<s>"}}, {"Sequence": {"id": "A"}}],
                       "special_tokens": {"<s>": {"ids": [3]}}},
    "decoder": {"type": "ByteLevel"},
    "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2}, "merges": ["a b"], "byte_fallback": False},
}
GENERATION = [
    {"do_sample": True, "temperature": 0.6, "top_p": 0.9, "top_k": 50, "repetition_penalty": 1.1, "max_new_tokens": 9},
    {"eos_token_id": [1, 2], "bos_token_id": 1, "stop_strings": ["a"], "min_new_tokens": 2, "num_beams": 1},
]
FLAGS = ['model = "opt-125m"\n[generate]\nseed = 7\npercent = [0, 50, 0, 50, 0, 50]\nstop = ["a", "b"]\n',
         'input = "in.jsonl"\noutput = "out.jsonl"\nkv-policy = "h2o"\nkv-budget = "20%"\ncpu-memory = "1GiB"\n']
REPORTS = [
    {"version": 1, "model": {"name": "m", "num_parameters": 1, "weight_bytes": 2}, "policy": {"gpu_batch_size": 1},
     "workload": {"num_requests": 1, "prompt_tokens": 2, "generated_tokens": 3},
     "throughput": {"prefill_tokens_per_s": 1.0, "decode_tokens_per_s": 1.0, "generated_tokens_per_s": 1.0},
     "time_s": {"load": 0.1, "prefill": 0.1, "decode": 0.1, "total": 0.3}},
    {"traceEvents": [{"name": "compute", "ph": "X", "ts": 0, "dur": 5, "pid": 1, "tid": 1, "args": {"layer": 0}},
                     {"name": "thread_name", "ph": "M", "pid": 1, "tid": 1, "args": {"name": "compute"}}]},
]


def texts(values):
    """Values as the bytes of JSON documents; text and bytes as they are."""
    for value in values:
        value = value if isinstance(value, (str, bytes)) else json.dumps(value)
        yield value if isinstance(value, bytes) else value.encode()


def files(folder, pattern, most_bytes=65536):
    return (path.read_bytes() for path in sorted(folder.glob(pattern)) if path.stat().st_size <= most_bytes)


def pickles():
    for path in sorted(DATA.glob("*/*.bin")):
        if not zipfile.is_zipfile(path):
            yield path.read_bytes()
            continue
        with zipfile.ZipFile(path) as archive:
            yield from (archive.read(name) for name in archive.namelist() if name.endswith("data.pkl"))


def patterns(node):
    """Patterns that stand somewhere in a tokenizer.json."""
    if isinstance(node, dict):
        if isinstance(node.get("Regex"), str):
            yield node["Regex"]
        node = list(node.values())
    for child in node if isinstance(node, list) else []:
        yield from patterns(child)


def searches():
    found = {pattern for file in files(GOLDEN, "*/tokenizer.json") for pattern in patterns(json.loads(file))}
    return (f"{pattern}\0 Once upon 123 times,\n\n  it's \u00e9!" for pattern in sorted(found))


def vocabularies():
    for folder in (GOLDEN / "gpt2_files", TESTS / "parity/models/dynamic"):
        names = ("vocab.json", "merges.txt", "tokenizer_config.json", "special_tokens_map.json", "config.json")
        yield b"\0".join((folder / name).read_bytes() if (folder / name).exists() else b"{}" for name in names)
    yield '{"a":0,"b":1,"ab":2}\0#version: 0.2\na b\n\0{"add_bos_token":true,"bos_token":"a"}'


def lines():
    yield from (line for _, line, _ in bad_lines.CASES if len(line) < 4096)
    yield from (line for _, line, _ in bad_score_lines.CASES if len(line) < 4096)
    yield (EXAMPLES / "prompts.jsonl").read_bytes()
    for name, value in vars(conversations).items():
        cases = value if name.isupper() and isinstance(value, list) else []
        yield from (json.dumps(case) for case in cases if isinstance(case, dict) and "messages" in case)
    chat = {"messages": conversations.TOOLS_USED, "tools": [conversations.WEATHER], "chat_template_kwargs": {"x": 1}}
    yield json.dumps(chat) + "\n" + json.dumps({"custom_id": "a", "method": "POST", "url": "/v1/chat/completions", "body": chat})
    body = {"prompt": "a", "max_tokens": 3, "temperature": 0.5, "top_p": 0.9, "seed": 7, "stop": ["\n"], "logprobs": 2}
    yield json.dumps({"custom_id": "b", "method": "POST", "url": "/v1/completions", "body": body})


def journals():
    yield "\n".join([MANIFEST, COMMIT % PART_HASH, (COMMIT % PART_HASH).replace("3", "9").replace('lines":1', 'lines":2')])


def ggufs():
    """A byte-level and a SentencePiece vocabulary, and a tensor of each type of codes."""
    types = json.loads((TESTS / "gguf/types.json").read_text(encoding="utf-8"))
    config = {"model_type": "llama", "num_attention_heads": 1, "hidden_size": 32, "num_hidden_layers": 1, "intermediate_size": 32,
              "max_position_embeddings": 64, "rope_theta": 10000.0, "rope_scaling": {"rope_type": "yarn", "factor": 2.0}}
    tensors = [("token_embd.weight", [3, 32], 1, bytes(192)), ("blk.0.attn_q.weight", [2, 2], 0, bytes(16))]
    for number, entry in enumerate(types.values()):
        blocks = bytes.fromhex(entry["blocks"])
        tensors.append((f"blk.{number}.ffn_up.weight", [len(entry["values"]) // 8], entry["number"], blocks))
    vocabulary = {"tokenizer.ggml.tokens": ["<s>", "a", "ab"], "tokenizer.ggml.token_type": [3, 1, 4], "tokenizer.ggml.bos_token_id": 0,
                  "tokenizer.ggml.add_bos_token": True, "tokenizer.chat_template": "{{ bos_token }}"}
    for kind in ({"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "smollm", "tokenizer.ggml.merges": ["a b"]},
                 {"tokenizer.ggml.model": "llama", "tokenizer.ggml.scores": [0.0, -1.0, -2.0]}):
        yield gguf_writer.encoded(gguf_writer.model_values(config) | vocabulary | kind, tensors)


SEEDS = {
    "safetensors": lambda: files(DATA, "safetensors_*/*.safetensors"),
    "torch_zip": lambda: files(DATA, "*/*.bin"),
    "pickle": pickles,
    "npy": lambda: files(DATA / "numpy_fp16", "*"),
    "shard_index": lambda: [INDEX, INDEX | {"weight_map": {"a": "../a"}}, *files(DATA, "*/*.index.json")],
    "config_json": lambda: [*files(TESTS / "parity/models", "*/config.json"), *files(EXAMPLES, "*/config.json")],
    "gguf": ggufs,
    "generation_config": lambda: [*files(EXAMPLES, "*/generation_config.json"), *GENERATION],
    "tokenizer_json": lambda: [SMALL_TOKENIZER, *files(GOLDEN, "*/tokenizer.json")],
    "gpt2_files": vocabularies,
    "sentencepiece": lambda: files(GOLDEN, "*/tokenizer.model"),
    "regex": searches,
    "request_lines": lines,
    "chat_template": lambda: [*files(TESTS / "chat/templates", "*.jinja"), *snippets.SNIPPETS],
    "store_table": lambda: files(TESTS / "fuzz/seeds/store_table", "*"),
    "journal": journals,
    "ahead": lambda: [f"{AHEAD}\n3 {{}}\n17 {{\"a\":1}}"],
    "resume": lambda: [f"{{}}\n\0{MANIFEST}\n{COMMIT % PART_HASH}\0{AHEAD}\n3 {{}}", f"\0{MANIFEST}\0{AHEAD}\n3 {{}}"],
    "policy": lambda: files(EXAMPLES / "policies", "*.json"),
    "machine": lambda: files(EXAMPLES / "machines", "*.json"),
    "sweep": lambda: files(EXAMPLES / "sweeps", "*.toml"),
    "config_toml": lambda: FLAGS,
    "inspect": lambda: [*files(EXAMPLES / "policies", "*.json"), *files(EXAMPLES / "machines", "*.json"), *REPORTS],
}


def main():
    for target, seeds in SEEDS.items():
        folder = pathlib.Path(sys.argv[1]) / target
        folder.mkdir(parents=True)
        for number, text in enumerate(texts(seeds())):
            (folder / f"{number:03}").write_bytes(text)


if __name__ == "__main__":
    main()
