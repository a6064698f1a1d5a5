"""Greedy generation against the golden rows of the float32 reference: with the full KV cache (make_golden.py) and with KV
policies that evict (make_kv_golden.py). Standard library only.

  python3 parity_test.py path/to/spillway [golden name ...]
"""

import json
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "cli"))

import comparison
import engine


def check_text(golden, lines):
    """Prompts given as text reach the same ids, and their completions the same text, as with the reference tokenizer."""
    failures = []
    for reference, line in zip(golden["rows"], lines):
        body = line["response"]["body"]
        name = f"prompt {reference['text'][:40]!r}"
        if body["usage"]["prompt_tokens"] != len(reference["prompt"]):
            failures.append(f"{name}: {body['usage']['prompt_tokens']} tokens, expected {len(reference['prompt'])}")
        choice = body["choices"][0]
        if choice["token_ids"] == reference["tokens"] and choice["text"] != reference["completion"]:
            failures.append(f"{name}: completion {choice['text']!r}, expected {reference['completion']!r}")
    return failures


def check(binary, path):
    golden = json.loads(path.read_text(encoding="utf-8"))
    model = HERE.parents[1] / golden["model"]
    requests = engine.token_requests(golden["rows"], golden["max_tokens"])
    rows = [engine.row(line) for line in engine.generate(binary, model, requests, golden.get("flags", []))]
    rows = engine.comparable(golden, rows)
    summary = comparison.compare(golden["rows"], rows, golden["logprob_tolerance"])
    if "text" in golden["rows"][0]:
        text_lines = engine.generate(binary, model, engine.text_requests(golden["rows"], golden["max_tokens"]))
        text_rows = [engine.row(line) for line in text_lines]
        by_text = comparison.compare(golden["rows"], text_rows, golden["logprob_tolerance"])
        summary.failures += by_text.failures + check_text(golden, text_lines)
    print(comparison.table_line(path.stem, summary), flush=True)
    return summary.failures


def main():
    binary, names = sys.argv[1], sys.argv[2:]
    paths = [
        path
        for folder in ("golden", "golden_kv")
        for path in sorted((HERE / folder).glob("*.json"))
        if not names or path.stem in names
    ]
    if not paths:
        sys.exit(f"no golden file is called {' or '.join(names)}")
    print(comparison.TABLE_HEAD)
    failures = [f"{path.stem}, {failure}" for path in paths for failure in check(binary, path)]
    for failure in failures[:40]:
        print(failure)
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
