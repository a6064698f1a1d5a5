"""`spillway generate` on comparison rows: requests in, output lines out. Standard library only."""

import pathlib
import tempfile

import comparison
import harness


def token_requests(rows, max_tokens):
    return [{"token_ids": row["prompt"], "max_tokens": max_tokens, "ignore_eos": row["ignore_eos"]} for row in rows]


def text_requests(rows, max_tokens):
    return [{"prompt": row["text"], "max_tokens": max_tokens, "ignore_eos": row["ignore_eos"]} for row in rows]


def flag_words(flags):
    """Words of a golden file's flags: files of the repository by their paths."""
    return [harness.REPOSITORY / word if str(word).startswith("tests/") else word for word in flags]


def generate(binary, model, requests, flags=()):
    with tempfile.TemporaryDirectory() as folder:
        source = harness.write_jsonl(pathlib.Path(folder) / "in.jsonl", requests)
        target = pathlib.Path(folder) / "out.jsonl"
        result = harness.run(
            binary,
            ["generate", "--model", model, "--input", source, "--output", target]
            + ["--logprobs", comparison.NUM_TOP, "--quiet", *flag_words(flags)],
        )
        assert result.status == 0, f"exit {result.status}: {result.stderr.decode(errors='replace')}"
        return harness.read_jsonl(target)


def row(line):
    """The comparison row of an output line. Tokens of logprobs are texts there, so only their order is kept."""
    choice = harness.choice(line)
    logprobs = choice["logprobs"]
    top = []
    for chosen, best in zip(logprobs["token_logprobs"], logprobs["top_logprobs"]):
        ranked = sorted(best.values(), reverse=True)
        assert ranked[0] == chosen, f"line {line['custom_id']}: a greedy token with logprob {chosen} under {ranked[0]}"
        top.append([item for logprob in ranked for item in (None, logprob)])
    return {"tokens": choice["token_ids"], "top": top}


def comparable(golden, rows):
    """Rows as far as the golden ones go: of a policy that evicts they end where a rounding could change what is evicted."""
    if "flags" not in golden:
        return rows
    steps = [len(reference["tokens"]) for reference in golden["rows"]]
    return [{"tokens": row["tokens"][:end], "top": row["top"][:end]} for row, end in zip(rows, steps)]
