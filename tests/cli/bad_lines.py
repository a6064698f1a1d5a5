"""Input lines that cannot be run: (name, the line's bytes, what its error message must contain).

All of them go into one file, each between two good lines; the run ends with 21.
"""

import json

GOOD = {"prompt": "Once upon a time", "max_tokens": 2}


def short(**keys):
    """A good short-form line with some keys changed."""
    return json.dumps({"prompt": "Once upon a time", "max_tokens": 2} | keys).encode()


def bare(**keys):
    return json.dumps(keys).encode()


def batch(**changes):
    line = {"method": "POST", "url": "/v1/completions", "body": {"prompt": "a", "max_tokens": 2}}
    return json.dumps({key: value for key, value in (line | changes).items() if value is not None}).encode()


CASES = [
    ("not JSON", b"once upon a time", ""),
    ("cut in the middle", b'{"prompt":"a","max_to', ""),
    ("two objects", b'{"prompt":"a"}{"prompt":"b"}', ""),
    ("a list", b'["a"]', ""),
    ("a bare string", b'"a"', ""),
    ("another program's key", short(max_new_tokens=3), "did you mean \"max_tokens\""),
    ("a misspelt key", short(temprature=0.5), "did you mean \"temperature\""),
    ("a misspelt key with control characters", short(**{"stop\x1b": 1}), "stop\\x1b"),
    ("text in place of a prompt", bare(text="a"), "did you mean it by \"text\""),
    ("a key twice", b'{"prompt":"a","prompt":"b"}', "prompt"),
    ("neither prompt nor token_ids", bare(max_tokens=2), "prompt"),
    ("both prompt and token_ids", short(token_ids=[2, 5]), "token_ids"),
    ("a prompt that is a number", short(prompt=5), "prompt"),
    ("a prompt that is null", short(prompt=None), "prompt"),
    ("several prompts in one line", short(prompt=["a", "b"]), "prompt"),
    ("token_ids as text", bare(token_ids="2 5"), "token_ids"),
    ("no token ids", bare(token_ids=[]), "token_ids"),
    ("a fraction as token id", bare(token_ids=[2, 5.5]), "token_ids"),
    ("a negative token id", bare(token_ids=[2, -1]), "-1"),
    ("a token id past the vocabulary", bare(token_ids=[2, 4096]), "4096"),
    ("a token id over 64 bits", b'{"token_ids":[99999999999999999999999]}', ""),
    ("max_tokens 0", short(max_tokens=0), "max_tokens"),
    ("max_tokens -1", short(max_tokens=-1), "max_tokens"),
    ("max_tokens as text", short(max_tokens="2"), "max_tokens"),
    ("max_tokens 1.5", short(max_tokens=1.5), "max_tokens"),
    ("prompt and max_tokens over the positions", short(max_tokens=2048), "2048"),
    ("a prompt over the positions", bare(token_ids=[2] * 2100, max_tokens=1), "2100"),
    ("a negative temperature", short(temperature=-0.5), "temperature"),
    ("a temperature as text", short(temperature="hot"), "temperature"),
    ("a temperature of 1e999", b'{"prompt":"a","temperature":1e999}', ""),
    ("a temperature of NaN", b'{"prompt":"a","temperature":NaN}', ""),
    ("top_p 7", short(top_p=7), "top_p"),
    ("top_p 0", short(top_p=0), "top_p"),
    ("top_k -5", short(top_k=-5), "top_k"),
    ("a seed over 64 bits", b'{"prompt":"a","seed":18446744073709551616}', "seed"),
    ("a seed as text", short(seed="seven"), "seed"),
    ("logprobs -1", short(logprobs=-1), "logprobs"),
    ("logprobs true", short(logprobs=True), "logprobs"),
    ("logprobs 10^6", short(logprobs=10**6), "logprobs"),
    ("a stop that is a number", short(stop=5), "stop"),
    ("17 stop strings", short(stop=[str(i) for i in range(17)]), "stop"),
    ("ignore_eos as text", short(ignore_eos="yes"), "ignore_eos"),
    ("n 2", short(n=2), "n"),
    ("best_of 3", short(best_of=3), "best_of"),
    ("echo", short(echo=True), "echo"),
    ("a suffix", short(suffix="the end"), "suffix"),
    ("a presence penalty", short(presence_penalty=1), "presence_penalty"),
    ("a logit bias", short(logit_bias={"5": 1}), "logit_bias"),
    ("min_p", short(min_p=0.1), "min_p"),
    ("a grammar", short(guided_json={"type": "object"}), "guided_json"),
    ("a format", batch(body={"prompt": "a", "response_format": {"type": "json_object"}}), "response_format"),
    ("no start token", short(add_special_tokens=False), "add_special_tokens"),
    ("tools without messages", short(tools=[{"type": "function"}]), "tools"),
    ("a custom_id that is a number", short(custom_id=5), "custom_id"),
    ("another url", batch(url="/v1/embeddings"), "url"),
    ("a chat's url without messages", batch(url="/v1/chat/completions"), "messages"),
    ("messages without a chat template", bare(messages=[{"role": "user", "content": "a"}]), "chat template"),
    ("another method", batch(method="GET"), "method"),
    ("a url without a body", batch(body=None), "body"),
    ("a body that is a string", batch(body="a"), "body"),
    ("a misspelt key in the body", batch(body={"prompt": "a", "max_token": 2}), "did you mean \"max_tokens\""),
    ("messages beside a prompt", batch(body={"prompt": "a", "messages": []}), "messages"),
    ("a key of the body beside it", batch(prompt="a"), "prompt"),
    ("a custom_id in the body", batch(body={"prompt": "a", "custom_id": "b"}), "custom_id"),
    ("invalid UTF-8", b'{"prompt":"\xff\xfe"}', ""),
    ("an overlong encoding", b'{"prompt":"\xc0\xaf"}', ""),
    ("an encoded surrogate", b'{"prompt":"\xed\xa0\x80"}', ""),
    ("an escaped lone surrogate", rb'{"prompt":"\ud800"}', ""),
    ("a raw NUL", b'{"prompt":"a\0b"}', ""),
    ("a raw control character", b'{"prompt":"a\x01b"}', ""),
    ("nested 100,000 deep", b'{"prompt":' + b"[" * 100_000, ""),
    ("a number of 100,000 digits", b'{"prompt":"a","max_tokens":' + b"9" * 100_000 + b"}", ""),
    ("17 MiB in one line", b'{"prompt":"' + b"a" * (17 << 20) + b'"}', ""),
]
