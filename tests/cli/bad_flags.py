"""Bad flags, inputs and outputs: (name, exit status, words on the command line, what is put in place before).

The words are added to a good command line; {input}, {output} and {root} stand for its paths. A flag of the good command
line that is among the words replaces it. Functions in the last place take the case's root folder.
"""

import json
import os

import harness


def environment(**variables):
    """SPILLWAY_ variables for the run, in place of a file."""
    return {f"SPILLWAY_{name.upper()}": value for name, value in variables.items()}


def config_file(text):
    return lambda root: (root / "bad.toml").write_text(text)


def fifo_as_config(root):
    os.mkfifo(root / "bad.toml")


def existing_output(root):
    (root / "out" / "out.jsonl").write_text("precious\n")


def folder_as_output(root):
    (root / "out" / "out.jsonl").mkdir()


def file_as_folder(root):
    (root / "a_file").write_text("not a folder\n")


def folder_as_input(root):
    (root / "in").mkdir()


def linked_output(root):
    """The output is the input under another name."""
    os.link(root / "in.jsonl", root / "out" / "out.jsonl")


def long_requests(root):
    """64 rows that ask for 1 GB of KV together."""
    lines = (json.dumps({"prompt": "Once", "max_tokens": 2000}) + "\n" for _ in range(64))
    (root / "in.jsonl").write_text("".join(lines))


CONFIG_FLAG = ["--config", "{root}/bad.toml"]
KV_ON_GPU = ["--device", "cpu", "--emulate-gpu", "256MiB", "--percent", "0", "100", "100", "0", "0", "100"]
XEON = str(harness.REPOSITORY / "examples" / "machines" / "xeon-2-cores.json")

FLAGS = [
    ("no verb that exists", 2, ["VERB", "generat"], None),
    ("an unknown flag", 2, ["--frobnicate"], None),
    ("a misspelt flag", 2, ["--max-new-token", "5"], None),
    ("a flag's name with control characters", 2, ["--\x1b[31m\nflag"], None),
    ("a flag's name of 10,000 letters", 2, ["--" + "x" * 10_000], None),
    ("a flag without its value", 2, ["--seed"], None),
    ("a flag twice", 2, ["--seed", "1", "--seed", "2"], None),
    ("a word too many", 2, ["one", "two"], None),
    ("no input", 2, ["--input", "NONE"], None),
    ("an empty output", 2, ["--output", ""], None),
    ("an empty model, as of a variable that is not set", 2, ["--model", ""], None),
    ("an empty report", 2, ["--report", ""], None),
    ("an empty config file", 2, ["--config", ""], None),
    ("a key without a value in the config file", 2, CONFIG_FLAG, config_file('model = ""\n')),
    ("trailing letters after a number", 2, ["--max-new-tokens", "8x"], None),
    ("a number with a space", 2, ["--max-new-tokens", " 8"], None),
    ("a number over 64 bits", 2, ["--max-new-tokens", "99999999999999999999"], None),
    ("no new tokens", 2, ["--max-new-tokens", "0"], None),
    ("fewer than no new tokens", 2, ["--max-new-tokens", "-1"], None),
    ("more tokens at least than at most", 2, ["--min-new-tokens", "9"], None),
    ("a temperature that is no number", 2, ["--temperature", "nan"], None),
    ("a negative temperature", 2, ["--temperature", "-1"], None),
    ("an infinite temperature", 2, ["--temperature", "inf"], None),
    ("top-p over 1", 2, ["--top-p", "1.5"], None),
    ("a negative top-k", 2, ["--top-k", "-3"], None),
    ("negative logprobs", 2, ["--logprobs", "-2"], None),
    ("an empty stop string", 2, ["--stop", ""], None),
    ("17 stop strings", 2, [word for i in range(17) for word in ("--stop", str(i))], None),
    ("a negative seed", 2, ["--seed", "-1"], None),
    ("a batch of no rows", 2, ["--gpu-batch-size", "0"], None),
    ("a block of no batches", 2, ["--num-gpu-batches", "0"], None),
    ("a chunk of no tokens", 2, ["--prefill-chunk", "0"], None),
    ("no threads", 2, ["--threads", "0"], None),
    ("a million threads", 2, ["--threads", "1000000"], None),
    ("an unknown unit", 2, ["--cpu-memory", "10XB"], None),
    ("a negative size", 2, ["--cpu-memory", "-1GiB"], None),
    ("a size over 64 bits", 2, ["--disk-space", "99999999999TiB"], None),
    ("an unknown device", 2, ["--device", "tpu"], None),
    ("5-bit weights", 2, ["--weight-bits", "5"], None),
    ("5-bit KV", 2, ["--kv-bits", "5"], None),
    ("4-bit KV of a 16-bit type", 2, ["--kv-bits", "4", "--kv-dtype", "bf16"], None),
    ("an unknown KV policy", 2, ["--kv-policy", "oracle"], None),
    ("percentages over 100", 2, ["--percent", "120", "0", "0", "100", "0", "100"], None),
    ("percentages that sum over 100", 2, ["--percent", "60", "60", "0", "100", "0", "100"], None),
    ("two percentages of six", 2, ["--percent", "20", "80"], None),
    ("seven percentages", 2, ["--percent", "0", "100", "0", "100", "0", "100", "0"], None),
    ("six percentages twice", 2, 2 * ["--percent", "0", "100", "0", "100", "0", "100"], None),
    ("quiet and verbose", 2, ["--quiet", "--verbose"], None),
    ("attention on the CPU and not", 2, ["--no-cpu-attention", "--cpu-attention"], None),
    ("attention on the CPU with all KV on the GPU", 2, ["--cpu-attention", *KV_ON_GPU], None),
    ("rates of another arithmetic", 2, ["--cpu-compute", "bf16", "--machine", XEON], None),
    ("a policy that is a folder", 3, ["--policy", "{root}"], None),
    ("a policy that is a device", 3, ["--policy", "/dev/zero"], None),
    ("a machine that is a device", 3, ["--machine", "/dev/null"], None),
    ("a share that may be one percent or all", 2, ["--shadow", "1", "--kv-bits", "8"], None),
    ("a switch with another word", 2, ["--quiet=maybe"], None),
    ("a variable that is no number", 2, [], environment(threads="two")),
    ("a variable out of range", 2, [], environment(threads="0")),
    ("no such config file", 2, ["--config", "{root}/none.toml"], None),
    ("a config file that is a FIFO", 2, CONFIG_FLAG, fifo_as_config),
    ("a config file that is not TOML", 2, CONFIG_FLAG, config_file("threads = = 2\n")),
    ("a key beyond ASCII in the config file", 2, CONFIG_FLAG, config_file("\ufcffthreads = 2\n")),
    ("an unknown key in the config file", 2, CONFIG_FLAG, config_file("[generate]\nthread = 2\n")),
    ("an unknown table in the config file", 2, CONFIG_FLAG, config_file("[generates]\nthreads = 2\n")),
    ("a wrong type in the config file", 2, CONFIG_FLAG, config_file("threads = 2.5\n")),
    ("a date in the config file", 2, CONFIG_FLAG, config_file("threads = 2020-01-01\n")),
    ("a list in the config file", 2, CONFIG_FLAG, config_file("threads = [1, 2]\n")),
    ("a name that is no built-in shape", 12, ["--model", "opt-9999b", "--dummy-weights"], None),
    ("no such model", 12, ["--model", "{root}/nowhere"], None),
    ("a model that is a file", 12, ["--model", "{input}"], None),
    ("not enough CPU memory", 31, ["--cpu-memory", "4MiB"], None),
    ("a batch that does not fit", 31, ["--cpu-memory", "64MiB", "--gpu-batch-size", "64"], long_requests),
]

FILES = [
    ("no such input", 20, ["--input", "{root}/none.jsonl"], None),
    ("an input without an end", 20, ["--input", "/dev/zero"], None),
    ("an input that is a folder", 20, ["--input", "{root}/in"], folder_as_input),
    ("an output that is the input", 20, ["--output", "{input}", "--overwrite"], None),
    ("an output that is the input by a link", 20, ["--overwrite"], linked_output),
    ("an output that exists", 52, [], existing_output),
    ("an output that is a folder", 60, ["--overwrite"], folder_as_output),
    ("an output folder that does not exist", 60, ["--output", "{root}/none/out.jsonl"], None),
    ("an output folder that is a file", 60, ["--output", "{root}/a_file/out.jsonl"], file_as_folder),
    ("a report folder that does not exist", 60, ["--report", "{root}/none/r.json"], None),
    ("a report that is a folder", 60, ["--report", "{root}/out"], None),
]

CASES = FLAGS + FILES
GOOD_LINES = [{"prompt": "Once upon a time", "max_tokens": 2}, {"prompt": "In a far country", "max_tokens": 2}]


def command_line(words, root):
    """The good command line with a case's words in it."""
    flags = {"--input": str(root / "in.jsonl"), "--output": str(root / "out" / "out.jsonl"), "--max-new-tokens": "4"}
    paths = {"input": flags["--input"], "output": flags["--output"], "root": str(root)}
    words = [word.format(**paths) for word in words]
    verb = "generate"
    if words[:1] == ["VERB"]:
        verb, words = words[1], []
    kept = [word for flag, value in flags.items() if flag not in words for word in (flag, value)]
    return [verb, *kept, *([] if words == ["--input", "NONE"] else words)]


def write_good_input(root):
    (root / "in.jsonl").write_text("".join(json.dumps(line) + "\n" for line in GOOD_LINES))
