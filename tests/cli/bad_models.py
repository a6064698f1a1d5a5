"""Malformed model folders: (name, exit status, variant it is made from, what is done to the copy).

Each function takes the folder of a small good checkpoint (tests/parity/models) and breaks one thing. Exit statuses are
those of docs/formats.md, "Exit codes and errors": 10 malformed or truncated, 11 unsupported or inconsistent, 12 missing,
13 unsafe, 14 tokenizer, 44 non-finite.
"""

import json
import math
import os
import pickle
import shutil
import struct
import zipfile

FP16 = "postnorm-projected"
SHARDED = "sharded-head16"
TORCH = "torch-bin-head96"
NUMPY = "flexgen-np"
TOKENIZER_JSON = "prenorm-head64"


# --- config.json


def set_config(**changes):
    """Changes keys of config.json; None takes a key out."""

    def apply(folder):
        path = folder / "config.json"
        config = json.loads(path.read_text()) | changes
        path.write_text(json.dumps({key: value for key, value in config.items() if value is not None}))

    return apply


def write_file(name, content):
    return lambda folder: (folder / name).write_bytes(content)


def add_nul(name):
    """Text behind a NUL byte, which many a parser takes for the end."""
    return lambda folder: (folder / name).write_bytes((folder / name).read_bytes() + b'\0{"more": 1}')


def remove(name):
    return lambda folder: (folder / name).unlink()


def empty_folder(folder):
    for path in folder.iterdir():
        path.unlink()


CONFIG = [
    ("no such folder", 12, FP16, lambda folder: shutil.rmtree(folder)),
    ("an empty folder", 12, FP16, empty_folder),
    ("config.json is missing", 12, FP16, remove("config.json")),
    ("config.json is empty", 10, FP16, write_file("config.json", b"")),
    ("config.json is not JSON", 10, FP16, write_file("config.json", b"{'hidden_size': 64}")),
    ("config.json is a list", 10, FP16, write_file("config.json", b"[]")),
    ("config.json is nested 100,000 deep", 10, FP16, write_file("config.json", b'{"a":' + b"[" * 100_000)),
    ("a count as text", 11, FP16, set_config(num_hidden_layers="4")),
    ("10^9 layers", 11, FP16, set_config(num_hidden_layers=10**9)),
    ("a count over 64 bits", 11, FP16, set_config(hidden_size=2**70)),
    ("no layers", 11, FP16, set_config(num_hidden_layers=0)),
    ("no heads", 11, FP16, set_config(num_attention_heads=0)),
    ("a negative size", 11, FP16, set_config(ffn_dim=-128)),
    ("heads do not divide the hidden size", 11, FP16, set_config(num_attention_heads=3)),
    ("the hidden size is missing", 11, FP16, set_config(hidden_size=None)),
    ("another architecture", 11, FP16, set_config(model_type="bert")),
    ("an unknown activation", 11, FP16, set_config(activation_function="maxout")),
    ("quantised by another program", 11, FP16, set_config(quantization_config={"quant_method": "bitsandbytes"})),
    ("remote code", 11, FP16, set_config(auto_map={"AutoModel": "evil.Model"})),
    ("more layers than tensors", 11, FP16, set_config(num_hidden_layers=6)),
    ("another vocabulary size", 11, FP16, set_config(vocab_size=400)),
    ("another feed-forward size", 11, FP16, set_config(ffn_dim=64)),
    ("an untied head without a tensor", 11, FP16, set_config(tie_word_embeddings=False)),
    ("an end token past all integers", 11, FP16, set_config(eos_token_id=2**31)),
    ("a size that is infinite", 11, FP16, set_config(ffn_dim=math.inf)),
    ("text behind a NUL byte in config.json", 10, FP16, add_nul("config.json")),
    ("text behind a NUL byte in generation_config.json", 10, FP16, write_file("generation_config.json", b"{}\0x")),
]


# --- families of Llama's block


def as_text_part(model_type, **changes):
    """Makes the model the text part of a larger one."""

    def apply(folder):
        path = folder / "config.json"
        config = {"model_type": model_type, "text_config": json.loads(path.read_text())} | changes
        path.write_text(json.dumps({key: value for key, value in config.items() if value is not None}))

    return apply


def change_text_part(**changes):
    def apply(folder):
        set_config(**changes)(folder)
        as_text_part("mistral3")(folder)

    return apply


MISTRAL = "mistral-wide-window"
QWEN = "qwen2-grouped-tied"
QWEN3 = "qwen3-grouped-tied"
GEMMA2 = "gemma2-full"
GEMMA3 = "gemma3-full"
SCALING = {"rope_type": "spiral", "factor": 2.0}
FAMILIES = [
    ("an unknown rope_type", 11, MISTRAL, set_config(rope_scaling=SCALING)),
    ("a scaling without a factor", 11, MISTRAL, set_config(rope_scaling={"rope_type": "linear"})),
    ("heads not a multiple of those of keys", 11, MISTRAL, set_config(num_key_value_heads=3)),
    ("a window of no token", 11, MISTRAL, set_config(sliding_window=0)),
    ("an unknown key", 11, MISTRAL, set_config(attention_sink_size=4)),
    ("no biases where the family has them", 11, MISTRAL, set_config(model_type="qwen2", sliding_window=None)),
    ("too few layer_types", 11, QWEN, set_config(layer_types=["full_attention"])),
    ("an unknown type of layer", 11, QWEN, set_config(layer_types=["full_attention", "linear_attention"])),
    ("sliding layers without a window", 11, QWEN, set_config(layer_types=["full_attention", "sliding_attention"])),
    ("experts", 11, QWEN, set_config(num_experts=8)),
    ("no norms of heads", 11, QWEN, set_config(model_type="qwen3")),
    ("heads of another size", 11, QWEN3, set_config(head_dim=16)),
    ("an odd head size", 11, QWEN3, set_config(head_dim=31)),
    ("a soft cap of zero", 11, GEMMA2, set_config(final_logit_softcapping=0.0)),
    ("a scale of zero", 11, GEMMA2, set_config(query_pre_attn_scalar=0)),
    ("attention in both directions", 11, GEMMA3, set_config(use_bidirectional_attention=True)),
    ("positions of no kind of layers", 11, GEMMA3, set_config(rope_parameters={"rope_type": "default"})),
    ("a whole without a text part", 11, MISTRAL, set_config(model_type="mistral3")),
    ("a text part that is a list", 11, MISTRAL, as_text_part("mistral3", text_config=[])),
    ("a text part of another kind", 11, FP16, as_text_part("llava")),
    ("an unknown whole", 11, MISTRAL, as_text_part("paligemma")),
    ("a text part with an unknown key", 11, MISTRAL, change_text_part(attention_sink_size=4)),
    ("a text part that is quantised", 11, MISTRAL, change_text_part(quantization_config={"quant_method": "hqq"})),
    ("a text part without its layers", 11, MISTRAL, change_text_part(num_hidden_layers=9)),
]


# --- model.safetensors


class Safetensors:
    """The parts of a safetensors file, written back with any of them replaced."""

    def __init__(self, folder, name="model.safetensors"):
        self.path = folder / name
        raw = self.path.read_bytes()
        (length,) = struct.unpack("<Q", raw[:8])
        self.header = json.loads(raw[8 : 8 + length])
        self.body = raw[8 + length :]

    def write(self, text=None, length=None):
        text = json.dumps(self.header).encode() if text is None else text
        self.path.write_bytes(struct.pack("<Q", len(text) if length is None else length) + text + self.body)


def with_tensor(change):
    """Changes the entry of the first tensor in the file."""

    def apply(folder):
        file = Safetensors(folder)
        names = [name for name in file.header if name != "__metadata__"]
        change(file.header[min(names, key=lambda name: file.header[name]["data_offsets"])])
        file.write()

    return apply


def with_header(text):
    return lambda folder: Safetensors(folder).write(text=text)


def with_header_length(length):
    return lambda folder: Safetensors(folder).write(length=length)


def shift(begin, end):
    def change(entry):
        entry["data_offsets"] = [entry["data_offsets"][0] + begin, entry["data_offsets"][1] + end]

    return with_tensor(change)


def duplicate_tensor(folder):
    file = Safetensors(folder)
    name = next(name for name in file.header if name != "__metadata__")
    entry = json.dumps({name: file.header[name]})[1:-1]
    file.write(text=(json.dumps(file.header)[:-1] + "," + entry + "}").encode())


def rename_tensor(folder):
    file = Safetensors(folder)
    file.header["a.stranger"] = file.header.pop("model.decoder.layers.0.fc1.weight")
    file.write()


def trailing_bytes(folder):
    file = Safetensors(folder)
    file.body += bytes(64)
    file.write()


def cut(name, keep):
    """keep: bytes that stay; a negative number takes that many off the end."""
    return lambda folder: (folder / name).write_bytes((folder / name).read_bytes()[:keep])


def not_a_number(folder):
    file = Safetensors(folder)
    begin = file.header["model.decoder.layers.1.fc1.weight"]["data_offsets"][0]
    file.body = file.body[:begin] + struct.pack("<H", 0x7E00) + file.body[begin + 2 :]
    file.write()


def make_fifo(name):
    def make(folder):
        (folder / name).unlink()
        os.mkfifo(folder / name)
    return make


def make_folder(folder):
    (folder / "model.safetensors").unlink()
    (folder / "model.safetensors").mkdir()


SAFETENSORS = [
    ("the weights are missing", 12, FP16, remove("model.safetensors")),
    ("the weights are a folder", 12, FP16, make_folder),
    ("the weights are a FIFO", 12, FP16, make_fifo("model.safetensors")),
    ("an empty file", 10, FP16, write_file("model.safetensors", b"")),
    ("7 bytes", 10, FP16, write_file("model.safetensors", b"1234567")),
    ("a git-LFS pointer", 10, FP16, write_file("model.safetensors", b"version https://git-lfs.github.com/spec/v1\noid sha256:00\n")),
    ("a web page", 10, FP16, write_file("model.safetensors", b"<!DOCTYPE html><html><body>404</body></html>")),
    ("a zip archive", 10, FP16, write_file("model.safetensors", b"PK\x03\x04" + bytes(60))),
    ("a header of 2^64-1 bytes", 10, FP16, with_header_length(2**64 - 1)),
    ("a header longer than the file", 10, FP16, with_header_length(10**7)),
    ("a header that is not UTF-8", 10, FP16, with_header(b'{"\xff\xfe":{}}')),
    ("a header that is not JSON", 10, FP16, with_header(b"{model}")),
    ("a header that is a list", 10, FP16, with_header(b"[1,2,3]")),
    ("a header nested 100,000 deep", 10, FP16, with_header(b'{"a":' * 100_000)),
    ("a tensor listed twice", 10, FP16, duplicate_tensor),
    ("tensors overlap", 10, FP16, shift(2, 2)),
    ("a range that ends before it begins", 10, FP16, with_tensor(lambda entry: entry["data_offsets"].reverse())),
    ("a range past the end", 10, FP16, shift(10**9, 10**9)),
    ("a negative offset", 10, FP16, shift(-64, -64)),
    ("a range that is not shape x type", 10, FP16, with_tensor(lambda entry: entry.update(shape=[3, 5]))),
    ("a shape whose product overflows", 10, FP16, with_tensor(lambda entry: entry.update(shape=[2**33, 2**33]))),
    ("a negative shape", 10, FP16, with_tensor(lambda entry: entry.update(shape=[-1, -1]))),
    ("bytes after the last tensor", 10, FP16, trailing_bytes),
    ("an element type of the future", 11, FP16, with_tensor(lambda entry: entry.update(dtype="F4_E9"))),
    ("an integer tensor", 11, FP16, with_tensor(lambda entry: entry.update(dtype="I16"))),
    ("a tensor is missing", 11, FP16, rename_tensor),
    ("the second half is missing", 10, FP16, cut("model.safetensors", 170_000)),
    ("the last byte is missing", 10, FP16, cut("model.safetensors", -1)),
    ("a weight is NaN", 44, FP16, not_a_number),
]


# --- shards


def map_tensor(file_name):
    """Says that one tensor lies in `file_name`."""

    def apply(folder):
        path = folder / "model.safetensors.index.json"
        index = json.loads(path.read_text())
        index["weight_map"]["model.decoder.layers.0.fc1.weight"] = file_name
        path.write_text(json.dumps(index))

    return apply


def map_to_wrong_shard(folder):
    index = json.loads((folder / "model.safetensors.index.json").read_text())
    right = index["weight_map"]["model.decoder.layers.0.fc1.weight"]
    map_tensor(next(name for name in index["weight_map"].values() if name != right))(folder)


SHARDS = [
    ("a shard is missing", 12, SHARDED, remove("model-00002-of-00003.safetensors")),
    ("a shard is cut", 10, SHARDED, cut("model-00003-of-00003.safetensors", 1000)),
    ("the index is not JSON", 10, SHARDED, write_file("model.safetensors.index.json", b"weight_map: {}")),
    ("the index has no map", 10, SHARDED, write_file("model.safetensors.index.json", b"{}")),
    ("the index maps to a number", 10, SHARDED, map_tensor(7)),
    ("a tensor in the wrong shard", 11, SHARDED, map_to_wrong_shard),
    ("a shard one folder up", 13, SHARDED, map_tensor("../model-00001-of-00003.safetensors")),
    ("a shard by absolute path", 13, SHARDED, map_tensor("/etc/passwd")),
    ("a shard name with a NUL", 13, SHARDED, map_tensor("model\0.safetensors")),
    ("text behind a NUL byte in the index", 10, SHARDED, add_nul("model.safetensors.index.json")),
]


# --- pytorch_model.bin


def rewrite_archive(change, compression=zipfile.ZIP_STORED):
    """change: {entry name without the archive's folder: bytes} -> None, in place."""

    def apply(folder):
        path = folder / "pytorch_model.bin"
        with zipfile.ZipFile(path) as archive:
            entries = {name: archive.read(name) for name in archive.namelist()}
        root = next(name for name in entries if name.endswith("/data.pkl")).removesuffix("data.pkl")
        bare = {name.removeprefix(root): content for name, content in entries.items()}
        change(bare)
        with zipfile.ZipFile(path, "w", compression) as archive:
            for name, content in bare.items():
                archive.writestr(name if name.startswith("..") else root + name, content)

    return apply


def with_pickle(content):
    return rewrite_archive(lambda entries: entries.update({"data.pkl": content}))


def with_program(replace, by):
    """Puts other bytes for the first occurrence of `replace` in the pickle."""

    def change(entries):
        assert replace in entries["data.pkl"]
        entries["data.pkl"] = entries["data.pkl"].replace(replace, by, 1)

    return rewrite_archive(change)


def flip_a_weight_bit(folder):
    path = folder / "pytorch_model.bin"
    raw = bytearray(path.read_bytes())
    raw[len(raw) // 2] ^= 1
    path.write_bytes(raw)


def shorten_storage(entries):
    entries["data/0"] = entries["data/0"][:-2]


TORCH_BIN = [
    ("a pickle that runs a command", 13, TORCH, with_pickle(b"\x80\x02cos\nsystem\nX\x04\x00\x00\x00true\x85R.")),
    ("a pickle that calls eval", 13, TORCH, with_pickle(b"\x80\x02cbuiltins\neval\nX\x01\x00\x00\x001\x85R.")),
    ("a pickle of another class", 13, TORCH, with_program(b"ctorch._utils\n_rebuild_tensor_v2\n", b"ctorch.hub\nload\n")),
    ("a pickle with an unknown opcode", 10, TORCH, with_pickle(b"\x80\x02\xfe.")),
    ("a pickle that ends early", 10, TORCH, with_pickle(b"\x80\x02}")),
    ("a pickle that pops an empty stack", 10, TORCH, with_pickle(b"\x80\x020.")),
    ("a pickle that is a number", 11, TORCH, with_pickle(b"\x80\x02K\x07.")),
    ("an empty dictionary", 11, TORCH, with_pickle(b"\x80\x02}.")),
    ("a storage shorter than its tensor", 10, TORCH, rewrite_archive(shorten_storage)),
    ("a storage is missing", 10, TORCH, rewrite_archive(lambda entries: entries.pop("data/0"))),
    ("an entry outside the archive", 13, TORCH, rewrite_archive(lambda entries: entries.update({"../../evil": b"x"}))),
    ("big-endian storages", 11, TORCH, rewrite_archive(lambda entries: entries.update(byteorder=b"big"))),
    ("compressed entries", 10, TORCH, rewrite_archive(lambda entries: None, zipfile.ZIP_DEFLATED)),
    ("the archive's directory is cut off", 10, TORCH, cut("pytorch_model.bin", -2000)),
    ("a flipped bit under a CRC", 10, TORCH, flip_a_weight_bit),
    ("a file of before torch 1.6 that is cut", 10, TORCH, write_file("pytorch_model.bin", pickle.dumps(0x1950A86A20F9469CFC6C, 2) + bytes(64))),
    ("no archive at all", 10, TORCH, write_file("pytorch_model.bin", b"no weights here" * 10)),
]


# --- numpy folder


def npy(descr="<f2", order=False, shape=(128, 64), payload=128 * 64 * 2, padding=0):
    header = str({"descr": descr, "fortran_order": order, "shape": shape}) + " " * padding + "\n"
    version, length = ((1, struct.pack("<H", len(header))) if padding < 60_000 else (2, struct.pack("<I", len(header))))
    return b"\x93NUMPY" + bytes([version, 0]) + length + header.encode() + bytes(payload)


FC1 = "decoder.layers.0.fc1.weight"  # [256, 64]
NUMPY_FOLDER = [
    ("an array of objects", 13, NUMPY, write_file(FC1, npy(descr="|O"))),
    ("an array that claims 32 GiB", 10, NUMPY, write_file(FC1, npy(shape=(2**17, 2**17)))),
    ("an array whose product overflows", 10, NUMPY, write_file(FC1, npy(shape=(2**40, 2**40)))),
    ("an array in Fortran order", 11, NUMPY, write_file(FC1, npy(order=True, shape=(256, 64), payload=256 * 64 * 2))),
    ("a big-endian array", 11, NUMPY, write_file(FC1, npy(descr=">f2", shape=(256, 64), payload=256 * 64 * 2))),
    ("an array header of 70,000 bytes", 10, NUMPY, write_file(FC1, npy(padding=70_000))),
    ("an array of another shape", 11, NUMPY, write_file(FC1, npy())),
    ("an array file that is cut", 10, NUMPY, cut(FC1, 1000)),
    ("no array at all", 10, NUMPY, write_file(FC1, b"no array here")),
    ("an array is missing", 11, NUMPY, remove(FC1)),
]


# --- tokenizer files


def set_vocabulary(change):
    def apply(folder):
        path = folder / "vocab.json"
        vocabulary = json.loads(path.read_text())
        change(vocabulary)
        path.write_text(json.dumps(vocabulary))

    return apply


def add_merge(line):
    def apply(folder):
        path = folder / "merges.txt"
        path.write_text(path.read_text() + line + "\n")

    return apply


def set_tokenizer(change):
    def apply(folder):
        path = folder / "tokenizer.json"
        tokenizer = json.loads(path.read_text())
        change(tokenizer)
        path.write_text(json.dumps(tokenizer))

    return apply


TOKENIZER = [
    ("vocab.json is empty", 14, TORCH, write_file("vocab.json", b"")),
    ("vocab.json is not JSON", 14, TORCH, write_file("vocab.json", b"a b c")),
    ("vocab.json is a list", 14, TORCH, write_file("vocab.json", b'["a"]')),
    ("a token id as text", 14, TORCH, set_vocabulary(lambda vocabulary: vocabulary.update(a="70"))),
    ("a negative token id", 14, TORCH, set_vocabulary(lambda vocabulary: vocabulary.update(a=-1))),
    ("a token id over 2^31", 14, TORCH, set_vocabulary(lambda vocabulary: vocabulary.update(a=2**31))),
    ("two tokens with one id", 14, TORCH, set_vocabulary(lambda vocabulary: vocabulary.update(a=vocabulary["b"]))),
    ("an id past the embedding", 14, TORCH, set_vocabulary(lambda vocabulary: vocabulary.update(zzz=9999))),
    ("a merge of one word", 14, TORCH, add_merge("alone")),
    ("a merge of unknown tokens", 14, TORCH, add_merge("\u6f22 \u5b57")),
    ("tokenizer.json is cut", 14, TOKENIZER_JSON, cut("tokenizer.json", 5000)),
    ("tokenizer.json is a FIFO", 12, TOKENIZER_JSON, make_fifo("tokenizer.json")),
    ("an unknown pre-tokenizer", 14, TOKENIZER_JSON, set_tokenizer(lambda data: data.update(pre_tokenizer={"type": "Evil"}))),
    ("an unknown model type", 14, TOKENIZER_JSON, set_tokenizer(lambda data: data["model"].update(type="Unigram"))),
    ("a split by the file's own pattern", 14, TOKENIZER_JSON, set_tokenizer(lambda data: data.update(
        pre_tokenizer={"type": "Split", "pattern": {"Regex": "(a+)+$"}, "behavior": "Isolated", "invert": False}))),
    ("text behind a NUL byte in tokenizer.json", 14, TOKENIZER_JSON, add_nul("tokenizer.json")),
    ("text behind a NUL byte in tokenizer_config.json", 14, TOKENIZER_JSON, write_file("tokenizer_config.json", b"{}\0x")),
    ("an empty added token", 14, TOKENIZER_JSON, set_tokenizer(lambda data: data["added_tokens"][0].update(content=""))),
    ("merges as a number", 14, TOKENIZER_JSON, set_tokenizer(lambda data: data["model"].update(merges=5))),
]

CASES = CONFIG + FAMILIES + SAFETENSORS + SHARDS + TORCH_BIN + NUMPY_FOLDER + TOKENIZER
