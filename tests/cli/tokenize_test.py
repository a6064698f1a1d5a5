"""`tokenize`: the ids that `generate` and `score` compute with, of prompts and conversations of any length; bad lines; its
output. Standard library only.

  python3 tokenize_test.py path/to/spillway [unittest arguments]
"""

import json
import pathlib
import sys
import unittest

import harness

TEXT = "Once upon a time there was a king"


class TokenizeTest(harness.VerbTest):
    def tokenize(self, records, *words, status=0):
        source = harness.write_jsonl(self.folder / "in.jsonl", records)
        result = self.run_verb("tokenize", "--input", source, *words, status=status)
        return [json.loads(line) for line in result.stdout.splitlines()], result.stderr.decode()

    def test_ids_are_those_that_are_computed(self):
        (line,), _ = self.tokenize([{"prompt": TEXT}])
        source = harness.write_jsonl(self.folder / "score.jsonl", [{"text": TEXT}])
        score = json.loads(self.run_verb("score", "--input", source, "--quiet").stdout)
        self.assertEqual(line["num_tokens"], len(line["token_ids"]))
        self.assertEqual(line["num_tokens"], score["num_tokens"] + 1)  # the first has no score
        by_ids = harness.write_jsonl(self.folder / "ids.jsonl", [{"prompt": TEXT}, {"token_ids": line["token_ids"]}])
        answers = [json.loads(answer)["response"]["body"]["choices"][0]["token_ids"]
                   for answer in self.run_verb("generate", "--input", by_ids, "--quiet").stdout.splitlines()]
        self.assertEqual(*answers)

    def test_conversations_and_given_ids(self):
        template = self.folder / "chat.jinja"
        template.write_text("{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}")
        lines, _ = self.tokenize([{"messages": [{"role": "user", "content": "Hi"}]}, {"prompt": "user: Hi\n"},
                                  {"token_ids": [2, 5, 9], "custom_id": "x"}], "--chat-template", template)
        self.assertEqual(lines[0]["token_ids"], lines[1]["token_ids"][1:])  # the template has no start token
        self.assertEqual(lines[2], {"custom_id": "x", "num_tokens": 3, "token_ids": [2, 5, 9]})

    def test_sums_longest_and_errors(self):
        lines, said = self.tokenize([{"prompt": TEXT}, {"prompt": 5}, {"prompt": "king " * 4000}], "--counts", status=21)
        self.assertEqual(set(lines[0]), {"custom_id", "num_tokens"})
        self.assertEqual(lines[1]["error"]["code"], "invalid_value")
        self.assertGreater(lines[2]["num_tokens"], 3000)  # more than the model takes
        total = lines[0]["num_tokens"] + lines[2]["num_tokens"]
        self.assertIn(f"2 prompts of {total} tokens, ", said)
        self.assertIn(f"{lines[2]['num_tokens']} in the longest (line 3)", said)
        self.assertIn("; 1 too long for an answer; 1 errors\n", said)

    def test_inspect_sums_counts_up(self):
        output = self.folder / "counts.jsonl"
        lines, _ = self.tokenize([{"prompt": 5}, {"prompt": TEXT}, {"prompt": "king"}], "--counts", status=21)
        harness.write_jsonl(output, lines)  # the first line has no count
        total, longest = lines[1]["num_tokens"] + lines[2]["num_tokens"], lines[1]["num_tokens"]
        shown = self.run_verb("inspect", output).stdout.decode()
        self.assertRegex(shown, f"^tokens +3 lines: 2 prompts, 1 errors; {total} in all, the longest {longest}\n")
        self.assertNotIn("generate", shown)

    def test_inspect_of_plain_lines(self):
        for name in ("p.txt", "empty.TXT"):
            (self.folder / name).write_text("" if name == "empty.TXT" else "Hello\n\nW\u00f6rld\n")
        shown = self.run_verb("inspect", self.folder / "p.txt").stdout.decode()
        self.assertIn("2 lines: 2 prompts, 0 chats", shown)
        self.assertIn("10 in all, the longest 5", shown)
        self.assertIn("score --model DIR --perplexity", shown)
        self.assertIn("0 lines: 0 prompts", self.run_verb("inspect", self.folder / "empty.TXT").stdout.decode())
        (self.folder / "wide.txt").write_text("Hello\n", encoding="utf-16")
        self.assertIn("UTF-16", self.refusal(20, "inspect", self.folder / "wide.txt"))

    def test_a_cut_prompt_is_what_generate_reads(self):
        (line,), _ = self.tokenize([{"prompt": "king " * 4000}], "--truncate", "left", "--counts")
        self.assertEqual(line["num_tokens"], 2048 - 64)  # what the answer leaves
        self.assertGreater(line["prompt_tokens_cut"], 1000)

    def test_the_output_is_whole_or_not_there(self):
        output = self.folder / "ids.jsonl"
        self.tokenize([{"prompt": TEXT}], "--output", output, "--quiet")
        self.assertEqual(len(harness.read_jsonl(output)), 1)
        self.tokenize([{"prompt": TEXT}], "--output", output, status=52)
        self.tokenize([{"prompt": TEXT}, {"prompt": "a"}], "--output", output, "--overwrite", "--quiet")
        self.assertEqual(len(harness.read_jsonl(output)), 2)
        self.assertEqual(sorted(path.name for path in self.folder.glob("ids*")), ["ids.jsonl"])
        source = self.folder / "in.jsonl"
        before = source.read_bytes()
        self.run_verb("tokenize", "--input", source, "--output", source, "--overwrite", status=20)
        self.assertEqual(source.read_bytes(), before)
        self.assertEqual(self.run_verb("tokenize", status=2).error_lines(),
                         [b"spillway: error[E-FLAG]: --input: give the file of prompts (- is standard input)"])


if __name__ == "__main__":
    TokenizeTest.binary = pathlib.Path(sys.argv.pop(1)).resolve()
    unittest.main()
