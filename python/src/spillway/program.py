"""The spillway program: where it is, and its command line as Python writes it."""

import os
import pathlib
import shutil

# The wheel's own. Its share/ beside bin/ has the bundled model.
_PACKAGED = pathlib.Path(__file__).parent / "_program" / "bin" / "spillway"

# Flags that `score` does not have.
_ONLY_GENERATE = {"max_new_tokens", "min_new_tokens", "temperature", "top_p", "top_k", "stop", "stop_token_ids",
                  "repetition_penalty", "ignore_generation_config", "ignore_eos", "logprobs", "split_reasoning"}
_ONLY_SCORE = {"prefill"}

# Switches that are on unless they are turned off.
_TURNED_OFF = {"overlap", "cpu_attention", "parse_special", "progress"}


def find_binary():
    """The path of the program: SPILLWAY_BINARY, the wheel's, or the first on PATH."""
    named = os.environ.get("SPILLWAY_BINARY")
    if named:
        return named
    if _PACKAGED.exists():
        return str(_PACKAGED)
    found = shutil.which("spillway")
    if found is None:
        raise FileNotFoundError("no spillway program: install the wheel, put spillway on PATH, or set SPILLWAY_BINARY")
    return found


def _words_of(name, value):
    flag = "--" + name.replace("_", "-")
    if value is None or value is False:
        return ["--no-" + flag[2:]] if value is False and name in _TURNED_OFF else []
    if value is True:
        return [flag] if name not in _TURNED_OFF - {"cpu_attention"} else []
    if isinstance(value, (list, tuple)):
        if name == "percent":
            return [flag, *map(str, value)]
        if name == "stop":
            return [word for text in value for word in (flag, str(text))]
        return [flag, ",".join(map(str, value))]
    return [flag, str(value)]


def command_of(binary, verb, model, flags):
    """The command line of a worker. `flags` are those of both verbs, with underscores; a verb gets its own of them."""
    others = _ONLY_SCORE if verb == "generate" else _ONLY_GENERATE
    words = [binary, verb, "--stream", "--no-progress"]
    if model is not None:
        words += ["--model", os.fspath(model)]
    for name, value in flags.items():
        if name not in others:
            words += _words_of(name, value)
    return words
