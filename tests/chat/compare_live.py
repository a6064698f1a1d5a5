#!/usr/bin/env python3
"""Compares rendered chats with transformers, on the templates and conversations of the golden files and on small ones
that go through the language. Usage: compare_live.py TOOL [MORE_TEMPLATES...]; 77: transformers is not installed."""
import json
import pathlib
import subprocess
import sys

HERE = pathlib.Path(__file__).parent
sys.path.insert(0, str(HERE))

try:
    import reference
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)
import conversations
import snippets


def requests(templates):
    for name, source in templates.items():
        for title, case in conversations.CASES.items():
            yield f"{name} {title}", source, case
    for number, source in enumerate(snippets.SNIPPETS):
        yield f"snippet {number} {source!r}", source, snippets.CASE


def main():
    tool, *more = sys.argv[1:]
    templates = {path.stem: path.read_text(encoding="utf-8") for path in sorted((HERE / "templates").glob("*.jinja"))}
    for path in map(pathlib.Path, more):
        text = path.read_text(encoding="utf-8")
        templates[path.stem] = json.loads(text)["chat_template"] if path.suffix == ".json" else text
    asked = list(requests(templates))
    lines = [json.dumps({"template": source, "now": conversations.NOW, "special_tokens": conversations.TOKENS,
                         "add_generation_prompt": True, **case}) for _, source, case in asked]
    output = subprocess.run([tool], input="\n".join(lines) + "\n", capture_output=True, text=True, check=True).stdout
    different = 0
    for (title, source, case), line in zip(asked, output.split("\n")[:-1], strict=True):
        ours = json.loads(line)
        theirs = reference.render(source, case, conversations.TOKENS)
        if ours.get("text") != theirs.get("text"):
            different += 1
            print(f"{title}\n  transformers: {theirs}\n  spillway:     {ours}")
    print(f"{len(asked)} renderings, {different} differ")
    return 1 if different or not asked else 0


if __name__ == "__main__":
    sys.exit(main())
