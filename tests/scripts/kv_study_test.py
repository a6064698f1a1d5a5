"""benchmarks/kv_study.py: what it makes of documents and of figures. The measuring itself needs a model with a tokenizer.json.
Standard library only.

  python3 kv_study_test.py
"""

import json
import pathlib
import sys
import tempfile
import types
import unittest

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
sys.dont_write_bytecode = True
sys.path.insert(0, str(REPOSITORY / "benchmarks"))

import kv_study  # noqa: E402


def perplexity(loss, share):
    return {"loss": loss, "error": 0.002, "perplexity": 20.0, "kv_bytes_frac": share}


RESULT = {
    "prompts": [128, 448],
    "settings": {
        "16 bits": {"perplexity": {"128": perplexity(0, 1.0), "448": perplexity(0, 1.0)}},
        "8,4 bits": {"perplexity": {"128": perplexity(0.004, 0.406), "448": perplexity(0.0067, 0.406)},
                     "summaries": {"same_token_frac": 0.97, "same_token_error": None, "divergence": 0.0086,
                                   "divergence_error": 0.0007, "answers": {"mean_tokens": 42.7, "mean_tokens_full": 41.3}}},
    },
}


class KvStudy(unittest.TestCase):
    def test_a_row_for_each_setting(self):
        head, rule, full, coded = kv_study.table_of(RESULT).splitlines()
        self.assertEqual(head.count("|"), rule.count("|"))
        self.assertEqual({row.count("|") for row in (head, full, coded)}, {8})
        self.assertIn("perplexity 20.000", full)
        self.assertEqual(coded, "| 8,4 bits | 41% | +0.40 % (0.20) | +0.67 % (0.20) | 97.0 % (0.0) | 0.0086 (0.0007) | "
                                "42.7, full 41.3 |")

    def test_documents_are_those_of_the_file_or_pieces_of_the_text(self):
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            text, file = folder / "text.txt", folder / "articles.jsonl"
            text.write_text("word " * 5000)
            lines = ["###\nArticle: A first one.\n\nSummarize the above article.", "A second one, bare."]
            file.write_text("".join(json.dumps({"article": line}) + "\n" for line in lines))
            options = types.SimpleNamespace(text=text, documents=None, documents_count=4, model=folder)
            pieces = kv_study.documents_of(options)
            self.assertEqual([len(piece) for piece in pieces], [kv_study.DOCUMENT_CHARACTERS] * 4)
            options.documents = file
            self.assertEqual(kv_study.documents_of(options), ["A first one.", "A second one, bare."])
            self.assertIn("prompt", kv_study.request_of("text", options))
            (folder / "chat_template.jinja").write_text("x")
            self.assertIn("messages", kv_study.request_of("text", options))


if __name__ == "__main__":
    unittest.main()
