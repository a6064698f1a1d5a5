#!/usr/bin/env python3
"""Writes golden/: what transformers renders of the templates and conversations beside this file, and of the snippets.
cases.jsonl has the conversations, <template>.jsonl the texts in their order; of what fails only that it does."""
import json
import pathlib

import conversations
import reference
import snippets

HERE = pathlib.Path(__file__).parent


def write(name, lines):
    text = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
    (HERE / "golden" / f"{name}.jsonl").write_text(text, encoding="utf-8")


def outcome(template, case):
    rendered = reference.render(template, case, conversations.TOKENS)
    return rendered if "text" in rendered else {"error": True}


def complete(case):
    return {"now": conversations.NOW, "special_tokens": conversations.TOKENS, "add_generation_prompt": True, **case}


def main():
    (HERE / "golden").mkdir(exist_ok=True)
    write("cases", [{"case": name, **complete(case)} for name, case in conversations.CASES.items()])
    for path in sorted((HERE / "templates").glob("*.jinja")):
        template = path.read_text(encoding="utf-8")
        write(path.stem, [{"case": name, **outcome(template, case)} for name, case in conversations.CASES.items()])
    write("snippets", [{"template": source, **complete(snippets.CASE), **outcome(source, snippets.CASE)}
                       for source in snippets.SNIPPETS])


if __name__ == "__main__":
    main()
