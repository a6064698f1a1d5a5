"""Lines of a `score` input that cannot be scored: (name, the line's bytes, what its error message must contain).

All of them go into one file, each between two good lines; the run ends with 21.
"""

import json

GOOD = {"text": "Once upon a time"}


def line(**keys):
    return json.dumps(keys).encode()


CASES = [
    ("not JSON", b"once upon a time", ""),
    ("cut in the middle", b'{"text":"a","cust', ""),
    ("a list", b'["a"]', ""),
    ("no key at all", line(), "text"),
    ("a name alone", line(custom_id="a"), "text"),
    ("a prompt", line(prompt="a"), "prompt"),
    ("a key of generate", line(text="a", max_tokens=3), "max_tokens"),
    ("a misspelt key", line(text="a", contxt="b"), "did you mean \"context\""),
    ("a key twice", b'{"text":"a","text":"b"}', "text"),
    ("a text and token ids", line(text="a", token_ids=[2, 5]), "token_ids"),
    ("a text and a context", line(text="a", context="b", continuation="c"), "context"),
    ("a context without a continuation", line(context="a"), "continuation"),
    ("a continuation without a context", line(continuation="a"), "context"),
    ("a text that is a number", line(text=5), "text"),
    ("a text that is null", line(text=None), "text"),
    ("several texts", line(text=["a", "b"]), "text"),
    ("a context that is a number", line(context=5, continuation="a"), "context"),
    ("a continuation that is null", line(context="a", continuation=None), "continuation"),
    ("an empty continuation", line(context="a", continuation=""), "continuation"),
    ("a continuation that joins the context's last token", line(context="Once upon a ti", continuation="me"), "continuation"),
    ("token ids as text", line(token_ids="2 5"), "token_ids"),
    ("no token ids", line(token_ids=[]), "token_ids"),
    ("a fraction as token id", line(token_ids=[2, 5.5]), "token_ids"),
    ("a negative token id", line(token_ids=[2, -1]), "-1"),
    ("a token id past the vocabulary", line(token_ids=[2, 4096]), "4096"),
    ("token ids over the positions", line(token_ids=[2] * 2049), "2049"),
    ("a continuation over the positions", line(context="a", continuation=" word" * 3000), "2048"),
    ("a text over the positions", line(text="word " * 3000), "2048"),
    ("a custom_id that is a number", line(text="a", custom_id=5), "custom_id"),
    ("invalid UTF-8", b'{"text":"\xff\xfe"}', ""),
    ("a raw NUL", b'{"text":"a\0b"}', ""),
    ("nested 100,000 deep", b'{"text":' + b"[" * 100_000, ""),
    ("17 MiB in one line", b'{"text":"' + b"a" * (17 << 20) + b'"}', ""),
]
