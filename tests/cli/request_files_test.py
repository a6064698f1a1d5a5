"""Files of requests as other tools write them: what is passed over is said once, what is no file of lines is refused once,
and what is said of a run's answers is so. Standard library only.

  python3 request_files_test.py path/to/spillway [unittest arguments]
"""

import gzip
import importlib.util
import io
import json
import pathlib
import re
import resource
import subprocess
import sys
import tarfile
import unittest

import harness
from generate_case import GenerateTest

PROMPT = {"prompt": "Once upon a time", "max_tokens": 3}
PLAIN = json.dumps(PROMPT) + "\n"


def short(**keys):
    return PROMPT | keys


def batch(name, **keys):
    return {"custom_id": name, "method": "POST", "url": "/v1/completions", "body": PROMPT | keys}


def tar_of(text):
    """The bytes of an archive of one file."""
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        member = tarfile.TarInfo("in.jsonl")
        member.size = len(text)
        tar.addfile(member, io.BytesIO(text.encode()))
    return archive.getvalue()


class RequestFileTest(GenerateTest):
    def warnings(self, records, *flags, status=0):
        """Warning lines of a run over `records`, and its output lines."""
        self.output.unlink(missing_ok=True)
        result = self.generate(self.write(records), *flags, "--quiet", status=status)
        lines = [line for line in result.stderr.decode().splitlines() if line.startswith("spillway: warning: ")]
        return lines, harness.read_jsonl(self.output)

    def refusal(self, name, content, *flags):
        """The one line that refuses a file, which leaves no output."""
        source = self.folder / name
        source.write_bytes(content)
        result = self.generate(source, *flags, status=20)
        self.assertEqual([path for path in self.folder.iterdir() if path != source], [])
        (line,) = result.stderr.decode().splitlines()
        self.assertLessEqual(len(line), 300)
        self.assertRegex(line, r"^spillway: error\[E-INPUT\]: [^;]+; \S")
        return line


class Keys(RequestFileTest):
    def test_a_key_that_nothing_knows_has_one_warning_for_the_whole_run(self):
        for records in ([short(row=n) if n in (2, 4, 5) else short() for n in range(1, 6)],
                        [batch(f"r{n}", **({"row": n} if n in (2, 4, 5) else {})) for n in range(1, 6)]):
            (warning,), lines = self.warnings(records)
            self.assertIn('in.jsonl: key "row" is not known and passed over in 3 lines, the first is line 2', warning)
            self.assertEqual(len({harness.choice(line)["text"] for line in lines}), 1)

    def test_with_strict_it_is_an_error_of_its_lines(self):
        records = [short(row=n) if n in (2, 4) else short(echo=False, other=None) for n in range(1, 6)]
        self.generate(self.write(records), "--strict", status=21)
        lines = harness.read_jsonl(self.output)
        errors = [line["error"] and line["error"]["code"] for line in lines]
        self.assertEqual(errors, [None, "surplus_key", None, "surplus_key", None])
        self.assertIn('unknown key "row"', lines[1]["error"]["message"])
        self.generate(self.write([short()]), "--strict", "--quiet", "--overwrite")

    def test_with_strict_a_line_that_cannot_run_stops_the_run(self):
        source = self.write([short(row=1), {"prompt": 5}, short(), {"prompt": 6, "row": 1}, short(row=1, promt="x")])
        result = self.generate(source, "--strict", status=20)
        self.assertIn(b"in.jsonl: 3 of 5 lines cannot run: line 2: ", result.stderr)
        self.assertEqual(len(result.stderr.splitlines()), 1)
        self.assertFalse(self.output.exists())
        self.assertIn(b"3 of 5 lines", harness.run(self.binary, ["plan", "--input", source, "--strict"]).stderr)

    def test_what_cannot_run_is_told_before_the_run(self):
        records = [short(), {"prompt": 5}, short(row=1), {"prompt": 6}, {"prompt": "far " * 900, "max_tokens": 2000}, short(max_tokens=7)]
        stderr = self.generate(self.write(records), "--no-progress", "--cpu-memory", "64MiB", status=21).stderr.decode()
        told = stderr[stderr.index("in.jsonl: 6 lines, 3 can run: "):].splitlines()
        self.assertRegex(told[0], r": \d+ tokens to read, at most \d+ to write; the longest row has \d+ \(line \d\)$")
        self.assertRegex(told[1], r"^  2 lines cannot run \(\w+\), the first: line 2: ")
        self.assertRegex(told[2], r"^  1 line cannot run: line 5: ")
        self.assertLessEqual(len(told), 10)

    def test_where_nothing_can_run_nothing_is_loaded(self):
        records = [{"id": 1, "body": n} for n in range(20)]
        result = self.generate(self.write(records), "--trace", self.folder / "t.json", status=21)
        self.assertIn(b"in.jsonl: 20 lines, 0 can run\n  20 lines cannot run (", result.stderr)
        self.assertEqual(sum(bool(line["error"]) for line in harness.read_jsonl(self.output)), 20)

    def test_every_key_has_its_own_warning(self):
        warnings, _ = self.warnings([short(id=7, row=1), short(text="x", **{"bad\x1b[31m\nkey": 1})])
        self.assertEqual([re.search(r'key (".*?") is', warning)[1] for warning in warnings],
                         ['"id"', '"row"', '"bad\\x1b[31m\\nkey"', '"text"'])
        self.assertIn('did you mean "custom_id"?', warnings[0])

    def test_values_that_change_nothing_have_none(self):
        keys = {"n": 1.0, "min_p": 0.0, "guided_json": None, "response_format": None, "logit_bias": {"5": 0}, "suffix": "",
                "use_beam_search": False, "service_tier": "auto", "user": 7, "stop": ["", "\n\n"], "logprobs": False,
                "max_completion_tokens": 3.0, "top_k": 0.0, "nobody_knows": None}
        records = [PROMPT, short(**keys), batch("b", **keys), batch("c", prompt=["Once upon a time"]) | {"metadata": {"a": "1"}}]
        warnings, lines = self.warnings(records)
        self.assertEqual(warnings, [])
        self.assertEqual(len({json.dumps(harness.choice(line)) for line in lines}), 1)

    def test_plan_says_it_too(self):
        result = harness.run(self.binary, ["plan", "--input", self.write([short(row=1)]), "--quiet"])
        self.assertIn(b'key "row" is not known', result.stderr)

    def test_strict_does_not_go_on_with_what_was_answered_without_it(self):
        source = self.write([short(row=1)])
        self.generate(source, "--quiet")
        self.generate(source, "--quiet", "--strict", "--resume", status=51)

    def test_score_passes_over_keys_too(self):
        source = self.write([{"text": "Once", "doc_id": 5, "echo": False, "context": None}, {"text": "Once", "top_p": 0.5}])
        result = harness.run(self.binary, ["score", "--input", source, "--output", self.output, "--quiet"])
        self.assertEqual(result.status, 21, result.stderr)
        self.assertIn(b'key "doc_id" is not known and passed over in 1 line, line 1', result.stderr)
        good, bad = harness.read_jsonl(self.output)
        self.assertEqual(good["num_tokens"], len(good["token_logprobs"]))
        self.assertEqual(bad["error"]["code"], "unsupported_value")
        strict = harness.run(self.binary, ["score", "--input", source, "--output", "-", "--quiet", "--strict"])
        self.assertEqual((strict.status, strict.stdout), (20, b""))  # for "top_p"

    def test_every_character_may_stand_in_a_prompt(self):
        """Those that end a string in C, or are called none, have tokens like others."""
        for text in ("a\0b", "a\ufffeb", "\ufdd0", "\uffff"):
            (choice,) = self.choices([{"prompt": text, "max_tokens": 1}])
            self.assertEqual(len(choice["token_ids"]), 1, repr(text))


class CustomIds(RequestFileTest):
    def test_two_lines_with_one_are_refused(self):
        same = PLAIN + "".join(json.dumps(short(custom_id="a")) + "\n" for _ in range(2))
        self.assertIn('custom_id "a" is that of lines 2 and 3', self.refusal("in.jsonl", same.encode()))
        clash = PLAIN + json.dumps(short(custom_id="1")) + "\n"
        self.assertIn('custom_id "1" is that of lines 1 and 2', self.refusal("in.jsonl", clash.encode()))

    def test_they_run_where_the_flag_allows_it(self):
        _, lines = self.warnings([short(custom_id="a"), short(custom_id="a")], "--allow-duplicate-ids")
        self.assertEqual([line["custom_id"] for line in lines], ["a", "a"])

    def test_score_and_plan_refuse_them_too(self):
        source = self.write([{"text": "a", "custom_id": "x", "prompt": "a"}] * 2)
        for verb in ("score", "plan"):
            result = harness.run(self.binary, [verb, "--input", source, "--quiet"])
            self.assertEqual(result.status, 20, result.stderr)
            self.assertIn(b'custom_id "x"', result.stderr)


class Forms(RequestFileTest):
    def test_other_forms_are_refused_once(self):
        array = json.dumps([PROMPT, PROMPT], indent=1).encode()
        for name, content, word in [
                ("in.jsonl", b"\xff\xfe" + PLAIN.encode("utf-16-le"), "UTF-16"), ("in.parquet", b"PAR1\0\0PAR1", "Parquet"),
                ("in.json", array, "JSON array"), ("in.json", json.dumps(PROMPT, indent=1).encode(), "over several lines"),
                ("in.csv", b"prompt,max_tokens\nOnce,3\n", "CSV"), ("in.jsonl", b"Once upon a time\nThe end\n", "plain text"),
                ("in.tar.gz", gzip.compress(tar_of(PLAIN)), "is a tar archive; unpack it"),
                ("in.txt", b"version https://git-lfs.github.com/spec/v1\noid sha256:ab\nsize 9\n", "run git lfs pull"),
                ("in.jsonl.gz", gzip.compress(PLAIN.encode())[:-9], "gzip"), ("in.gz", gzip.compress(array), "JSON array")]:
            with self.subTest(name=name, word=word):
                self.assertIn(word, self.refusal(name, content))
                (self.folder / name).unlink()

    def test_every_verb_of_requests_refuses_them(self):
        source = self.folder / "in.jsonl"
        source.write_bytes(tar_of(PLAIN))
        for words in (["tokenize", "--input"], ["plan", "--input"], ["score", "--input"], ["inspect"],
                      ["calibrate", "--output", self.folder / "k.json", "--kv-bytes", "50%", "--input"]):
            result = harness.run(self.binary, [*words, source])
            self.assertEqual(result.status, 20, (words, result.stderr))
            self.assertIn(b"in.jsonl: is a tar archive; unpack it", result.stderr)

    def test_standard_input_is_named(self):
        result = harness.run(self.binary, ["generate", "--input", "-", "--quiet"], stdin=b"a,b\n1,2\n")
        self.assertEqual(result.status, 20)
        self.assertIn(b"standard input: is comma-separated", result.stderr)

    def test_a_file_with_bad_lines_is_none_of_them(self):
        source = self.folder / "in.jsonl"
        source.write_text("this is no request\n" + PLAIN)
        self.generate(source, "--quiet", status=21)

    def test_gzip_is_read_as_what_it_holds(self):
        content = "".join(json.dumps(short(custom_id=f"r{n}")) + "\n" for n in range(40)).encode()
        plain, packed = self.folder / "in.jsonl", self.folder / "in.jsonl.gz"
        plain.write_bytes(content)
        packed.write_bytes(gzip.compress(content[:500]) + gzip.compress(content[500:]))
        self.generate(plain, "--quiet")
        expected = self.output.read_bytes()
        for source in (packed, pathlib.Path("/dev/stdin")):
            self.generate(source, "--quiet", "--overwrite", stdin=packed.read_bytes())
            self.assertEqual(self.output.read_bytes(), expected, source)
        self.generate(packed, "--quiet", "--resume")  # the input is the same, whatever its form

    def test_white_space_and_the_mark_of_old_editors_are_no_requests(self):
        for content, ids in [(PLAIN + "\f\n" + PLAIN, ["1", "3"]), (PLAIN.replace("\n", "\v\n"), ["1"]),
                             (PLAIN + "\x1a", ["1"]), (PLAIN.replace("\n", "\r") * 2, ["1", "2"])]:
            source = self.folder / "in.jsonl"
            source.write_bytes(content.encode())
            self.generate(source, "--quiet", "--overwrite")
            self.assertEqual([line["custom_id"] for line in harness.read_jsonl(self.output)], ids)


class Answers(RequestFileTest):
    def test_empty_completions_are_counted(self):
        report = self.folder / "report.json"
        stop = [short(stop=["a", "e", "i", "o", "u", " ", ",", "."], custom_id="empty")]
        for others, warned in ((2, True), (30, False)):
            warnings, lines = self.warnings(stop + [PROMPT] * others, "--report", report)
            self.assertEqual(harness.choice(lines[0])["text"], "")
            self.assertEqual(json.loads(report.read_text())["workload"]["num_empty_completions"], 1)
            self.assertEqual([f"1 of {others + 1} completions are empty" in warning for warning in warnings], [True] * warned)
        result = self.generate(self.write(stop), "--overwrite", "--no-progress")
        self.assertIn(b"1 completions, 0 errors, 1 completions empty", result.stdout)

    def test_without_a_tokenizer_no_text_is_missed(self):
        warnings, _ = self.warnings([{"token_ids": [2, 5], "max_tokens": 2}], "--tokenizer", "none")
        self.assertEqual(warnings, [])

    def test_what_a_full_disk_is_said_to_have_is_there(self):
        source = self.write([{"prompt": f"Once upon a time {n}", "max_tokens": 2 + n % 7} for n in range(300)])
        words = [self.binary, "generate", "--input", source, "--output", self.output, "--quiet"]
        limit = 20_000
        done = subprocess.run([str(word) for word in words], capture_output=True, env=harness.clean_environment(), check=False,
                              preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)))
        self.assertEqual(done.returncode, 32, done.stderr)
        said = re.search(rb"(\d+) finished lines are in (\S+?)[;,]", done.stderr)
        part = pathlib.Path(said[2].decode())
        self.assertEqual(int(said[1]), part.read_bytes().count(b"\n"))
        ahead = re.search(rb", (\d+) more in", done.stderr)
        if ahead:
            kept = (self.folder / "out.jsonl.ahead").read_bytes().count(b"\n") - 1
            self.assertLessEqual(int(ahead[1]), kept)

    def test_a_tokenizer_of_another_size_is_warned_of(self):
        other = harness.REPOSITORY / "tests" / "parity" / "models" / "llama-plain"
        result = self.generate(self.write([PROMPT]), "--tokenizer", other, "--quiet")
        self.assertRegex(result.stderr.decode(), r"the tokenizer has \d+ ids and the model 4096; it may be another model's")

    @unittest.skipUnless(importlib.util.find_spec("openai"), "no package openai")
    def test_openai_reads_the_answers(self):
        from openai.types import Completion
        for line in self.lines([short(logprobs=2), batch("b")]):
            body = Completion.model_validate(line["response"]["body"], strict=True)
            self.assertEqual(body.choices[0].finish_reason, "length")


class Contexts(RequestFileTest):
    def test_a_context_over_the_window_is_cut_and_said_to_be(self):
        source = self.write([{"context": "word " * 3000, "continuation": " king"}, {"context": "a", "continuation": " b"}])
        result = harness.run(self.binary, ["score", "--input", source, "--output", self.output, "--quiet"])
        self.assertEqual(result.status, 0, result.stderr)
        self.assertIn(b"cut from the left to fit the model's positions in 1 line, line 1", result.stderr)
        cut, whole = harness.read_jsonl(self.output)
        self.assertNotIn("context_tokens_cut", whole)
        self.assertGreater(cut["context_tokens_cut"], 900)
        self.assertEqual(cut["num_tokens"], 2)


if __name__ == "__main__":
    RequestFileTest.binary = pathlib.Path(sys.argv.pop(1)).resolve()
    unittest.main()
