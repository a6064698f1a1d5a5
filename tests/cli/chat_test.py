#!/usr/bin/env python3
"""Conversations through the program: the bundled model in a folder with a chat template of its own.
Usage: chat_test.py BINARY [unittest arguments]. Standard library only."""

import datetime
import json
import pathlib
import re
import sys
import unittest

import harness
from generate_case import GenerateTest

TEMPLATE = """{% for m in messages %}{{ m.role }}: {{ m.content }}
{% endfor %}
{% if tools %}{{ tools | tojson }}{% endif %}
{% if add_generation_prompt %}assistant:{% endif %}
"""
ASKED = {"messages": [{"role": "user", "content": "Tell me of the King"}], "max_tokens": 6}


class ChatTest(GenerateTest):
    def setUp(self):
        super().setUp()
        self.model = self.folder / "talker"
        self.model.mkdir()
        for path in harness.BUNDLED_MODEL.iterdir():
            if path.suffix != ".md":
                (self.model / path.name).symlink_to(path)
        (self.model / "chat_template.jinja").write_text(TEMPLATE, encoding="utf-8")

    def settings(self, **keys):
        """generation_config.json with these keys beside the end token."""
        path = self.model / "generation_config.json"
        path.unlink(missing_ok=True)
        path.write_text(json.dumps({"eos_token_id": 2} | keys), encoding="utf-8")

    def bodies(self, records, *flags, **options):
        return [line["response"] and line["response"]["body"] for line in
                self.lines(records, "--model", self.model, *flags, **options)]


class Answers(ChatTest):
    def test_a_conversation_is_answered_as_its_rendered_text_is(self):
        ids = self.rendered_ids("user: Tell me of the King\nassistant:")
        batch = {"custom_id": "c", "method": "POST", "url": "/v1/chat/completions", "body": ASKED | {"model": "any"}}
        chat, same, plain = self.bodies([ASKED, batch, {"token_ids": ids, "max_tokens": 6}])
        self.assertEqual(chat["object"], "chat.completion")
        self.assertEqual(set(chat), {"id", "object", "created", "model", "choices", "usage"})
        choice, expected = chat["choices"][0], plain["choices"][0]
        self.assertEqual(choice["message"], {"role": "assistant", "content": expected["text"], "refusal": None})
        self.assertEqual((choice["token_ids"], choice["finish_reason"]), (expected["token_ids"], "length"))
        self.assertEqual(chat["usage"], plain["usage"])
        self.assertEqual(same["choices"], chat["choices"])

    def rendered_ids(self, text):
        """The ids of `text` without the start token, by the merges of the vocabulary's own files."""
        (body,) = self.bodies([{"prompt": text, "max_tokens": 1}])
        vocabulary = json.loads((harness.BUNDLED_MODEL / "vocab.json").read_text(encoding="utf-8"))
        merges = [tuple(line.split(" ")) for line in (harness.BUNDLED_MODEL / "merges.txt").read_text(encoding="utf-8").splitlines()
                  if line and not line.startswith("#version")]
        ranks = {pair: rank for rank, pair in enumerate(merges)}
        ids = []
        for word in re.findall(r"'s|'t| ?[A-Za-z]+| ?[0-9]+| ?[^\sA-Za-z0-9]+|\s+(?!\S)|\s+", text):
            parts = list(word.replace(" ", "\u0120").replace("\n", "\u010a"))
            while len(parts) > 1:
                pairs = [(ranks.get(pair, len(ranks)), at) for at, pair in enumerate(zip(parts, parts[1:]))]
                rank, at = min(pairs)
                if rank == len(ranks):
                    break
                parts[at:at + 2] = [parts[at] + parts[at + 1]]
            ids += [vocabulary[part] for part in parts]
        self.assertEqual(len(ids) + 1, body["usage"]["prompt_tokens"])
        return ids

    def test_logprobs_have_the_form_of_chats(self):
        (body,) = self.bodies([ASKED | {"logprobs": True, "top_logprobs": 2}])
        content = body["choices"][0]["logprobs"]["content"]
        self.assertEqual(len(content), len(body["choices"][0]["token_ids"]))
        for entry in content:
            self.assertEqual(set(entry), {"token", "logprob", "bytes", "top_logprobs"})
            self.assertEqual(len(entry["top_logprobs"]), 2)
            self.assertEqual(entry["logprob"], entry["top_logprobs"][0]["logprob"])

    def test_bad_conversations_are_errors_of_their_lines(self):
        image = [{"type": "image_url", "image_url": {"url": "x"}}]
        lines = self.lines([ASKED, {"messages": [{"role": "user", "content": image}]}, {"messages": 5},
                            {"messages": [{"role": "user"}]}, ASKED], "--model", self.model, status=21)
        codes = [line["error"] and line["error"]["code"] for line in lines]
        self.assertEqual(codes[:3] + codes[4:], [None, "unsupported_content", "invalid_value", None])
        self.assertEqual(lines[0]["response"]["body"]["choices"], lines[4]["response"]["body"]["choices"])

    def test_a_system_message_changes_what_has_none(self):
        own = {"messages": [{"role": "system", "content": "Be kind."}, *ASKED["messages"]], "max_tokens": 6}
        given, kept = self.bodies([ASKED, own], "--system", "Be kind.")
        self.assertEqual(given["choices"], kept["choices"])
        (without,) = self.bodies([ASKED])
        self.assertLess(without["usage"]["prompt_tokens"], given["usage"]["prompt_tokens"])

    def test_reasoning_goes_apart_where_that_is_asked_for(self):
        (self.model / "chat_template.jinja").write_text(TEMPLATE.replace("assistant:", "assistant:<think>"), encoding="utf-8")
        (left,) = self.bodies([ASKED])
        (apart,) = self.bodies([ASKED], "--split-reasoning")
        self.assertNotIn("reasoning_content", left["choices"][0]["message"])
        message = apart["choices"][0]["message"]
        self.assertEqual(message["content"], "")
        self.assertEqual(message["reasoning_content"], left["choices"][0]["message"]["content"].strip("\r\n"))


class Templates(ChatTest):
    def test_without_a_template_each_conversation_is_an_error(self):
        (self.model / "chat_template.jinja").unlink()
        chat, plain = self.lines([ASKED, {"prompt": "Once", "max_tokens": 2}], "--model", self.model, status=21)
        self.assertEqual(chat["error"]["code"], "no_chat_template")
        self.assertIn("--chat-template", chat["error"]["message"])
        self.assertIsNone(plain["error"])

    def test_templates_without_a_default_are_named(self):
        (self.model / "chat_template.jinja").unlink()
        more = self.model / "additional_chat_templates"
        more.mkdir()
        for name in ("plain", "tool_use"):
            (more / f"{name}.jinja").write_text(TEMPLATE, encoding="utf-8")
        (chat,) = self.lines([ASKED], "--model", self.model, status=21)
        self.assertEqual(chat["error"]["code"], "no_chat_template")
        self.assertIn('the chat templates plain, tool_use, and none is "default"; give --chat-template NAME',
                      chat["error"]["message"])

    def test_a_given_file_of_json_is_no_template_itself(self):
        (template,) = self.bodies([ASKED])
        (self.model / "chat_template.jinja").unlink()
        given = self.model / "chat_template.json"
        given.write_text(json.dumps({"chat_template": TEMPLATE}), encoding="utf-8")
        for flags in ([], ["--chat-template", given]):
            (answered,) = self.bodies([ASKED], *flags)
            self.assertEqual(answered["choices"], template["choices"])
        given.write_text("{}", encoding="utf-8")
        result = self.generate(self.write([ASKED]), "--model", self.model, "--overwrite", "--chat-template", given, status=14)
        self.assertIn(b'is JSON without a "chat_template"', result.stderr)

    def test_a_file_or_a_name_may_be_given(self):
        (self.model / "chat_template.jinja").unlink()
        other = self.folder / "other.jinja"
        other.write_text(TEMPLATE, encoding="utf-8")
        (given,) = self.bodies([ASKED], "--chat-template", other)
        more = self.model / "additional_chat_templates"
        more.mkdir()
        (more / "plain.jinja").write_text(TEMPLATE, encoding="utf-8")
        (named,) = self.bodies([ASKED], "--chat-template", "plain")
        self.assertEqual(given["choices"], named["choices"])
        result = self.generate(self.write([ASKED]), "--model", self.model, "--overwrite", "--chat-template", "none", status=2)
        self.assertIn(b"(plain)", result.stderr)

    def test_a_template_that_is_not_supported_is_refused_by_line(self):
        (self.model / "chat_template.jinja").write_text("{{ messages }}\n{{ x | urlize }}", encoding="utf-8")
        result = self.generate(self.write([ASKED]), "--model", self.model, status=14)
        self.assertIn(b"line 2: the filter 'urlize' is not supported", result.stderr)
        self.assertFalse(self.output.exists())
        self.bodies([{"prompt": "Once", "max_tokens": 2}])

    def test_what_a_template_raises_is_the_error_of_its_line(self):
        (self.model / "chat_template.jinja").write_text(
            "{% if messages | length > 1 %}\n{{ raise_exception('one at a time') }}{% endif %}x", encoding="utf-8")
        fine, raised = self.lines([ASKED, {"messages": ASKED["messages"] * 2}], "--model", self.model, status=21)
        self.assertIsNone(fine["error"])
        self.assertEqual(raised["error"], {"code": "chat_template", "message": "line 2: chat template, line 2: one at a time"})

    def test_a_store_keeps_the_templates(self):
        more = self.model / "additional_chat_templates"
        more.mkdir()
        (more / "tool_use.jinja").write_text("tools " + TEMPLATE, encoding="utf-8")
        store = self.folder / "store"
        result = harness.run(self.binary, ["convert", "--model", self.model, "--output", store])
        self.assertEqual(result.status, 0, result.stderr)
        with_tools = ASKED | {"tools": [{"type": "function"}]}
        folder = self.bodies([ASKED, with_tools])
        stored = [line["response"]["body"] for line in self.lines([ASKED, with_tools], "--model", store)]
        for one, other in zip(folder, stored, strict=True):
            self.assertEqual((one["choices"], one["usage"]), (other["choices"], other["usage"]))
        self.assertNotEqual(folder[0]["usage"], folder[1]["usage"])

    def test_plans_count_the_tokens_of_conversations(self):
        report = self.folder / "plan.json"
        source = self.write([ASKED | {"max_tokens": 100}])
        result = harness.run(self.binary, ["plan", "--model", self.model, "--input", source, "--report", report], cwd=self.folder)
        self.assertEqual(result.status, 0, result.stderr)
        (body,) = self.bodies([ASKED])
        slots = json.loads(report.read_text(encoding="utf-8"))["kv"]["slots_per_row"]
        self.assertGreaterEqual(slots, body["usage"]["prompt_tokens"] + 99)

    def test_a_run_is_resumed_only_with_the_same_template(self):
        records = [ASKED] * 3
        source = self.write(records)
        self.generate(source, "--model", self.model, "--quiet")
        done = self.output.read_bytes()
        self.generate(source, "--model", self.model, "--quiet", "--resume")
        self.assertEqual(self.output.read_bytes(), done)
        for flags in (["--system", "x"], ["--split-reasoning"], ["--stop-token-ids", "5"], ["--repetition-penalty", "1.1"]):
            self.generate(source, "--model", self.model, "--quiet", "--resume", *flags, status=51)

    def test_the_date_that_templates_are_told_is_kept(self):
        (self.model / "chat_template.jinja").write_text("{{ strftime_now('%Y-%m-%d') }} " + TEMPLATE, encoding="utf-8")
        one, other = (self.bodies([ASKED], "--chat-date", date)[0] for date in ("2020-01-01", "2020-11-11"))
        self.assertNotEqual(one["usage"]["prompt_tokens"], 0)
        self.generate(self.write([ASKED]), "--model", self.model, "--overwrite", "--quiet", "--chat-date", "2020-01-01")
        self.assertEqual(harness.read_jsonl(self.output)[0]["response"]["body"]["choices"], one["choices"])
        self.generate(self.write([ASKED]), "--model", self.model, "--resume", "--quiet", "--chat-date", "2020-11-11", status=51)
        result = self.generate(self.write([ASKED]), "--model", self.model, "--overwrite", "--chat-date", "yesterday", status=2)
        self.assertIn(b"YYYY-MM-DD", result.stderr)
        self.assertIsNotNone(other)

    def test_a_finished_run_of_an_earlier_day_is_known_again(self):
        (self.model / "chat_template.jinja").write_text("{{ strftime_now('%Y-%m-%d') }} " + TEMPLATE, encoding="utf-8")
        day = (datetime.date.today() - datetime.timedelta(days=3)).isoformat()
        self.generate(self.write([ASKED]), "--model", self.model, "--quiet", "--chat-date", day)
        self.generate(self.write([ASKED]), "--model", self.model, "--quiet", "--resume")


class Settings(ChatTest):
    PROMPT = {"prompt": "Once upon a time", "max_tokens": 8}

    def report(self, records, *flags):
        path = self.folder / "report.json"
        self.lines(records, "--model", self.model, "--report", path, *flags)
        return json.loads(path.read_text(encoding="utf-8"))["sampling"]

    def test_settings_hold_where_a_model_samples(self):
        self.settings(temperature=0.7, top_p=0.9)
        greedy = self.report([self.PROMPT])
        self.assertEqual((greedy["temperature"], greedy["top_p"], greedy["from_generation_config"]), (0.0, 0.9, ["top_p"]))
        self.settings(do_sample=True, temperature=0.7, top_p=0.9, max_new_tokens=5)
        sampled = self.report([self.PROMPT])
        self.assertEqual((sampled["temperature"], sampled["top_p"], sampled["top_k"], sampled["max_tokens"]), (0.7, 0.9, 50, 5))
        self.assertEqual(sampled["from_generation_config"], ["temperature", "top_p", "top_k", "max_new_tokens"])

    def test_flags_beat_settings_and_lines_beat_flags(self):
        self.settings(do_sample=True, temperature=1.5)
        line = {"prompt": "Once upon a time", "max_tokens": 20}
        self.assertEqual(self.report([line], "--temperature", "0")["temperature"], 0.0)
        (greedy,) = self.choices([line])
        with_settings, by_line = self.choices([line, line | {"temperature": 0}], "--model", self.model)
        self.assertNotEqual(with_settings["token_ids"], greedy["token_ids"])
        self.assertEqual(by_line["token_ids"], greedy["token_ids"])
        (by_flag,) = self.choices([line], "--model", self.model, "--temperature", "0")
        self.assertEqual(by_flag["token_ids"], greedy["token_ids"])
        (ignored,) = self.choices([line], "--model", self.model, "--ignore-generation-config")
        self.assertEqual(ignored["token_ids"], greedy["token_ids"])

    def test_what_is_not_supported_is_refused_unless_ignored(self):
        self.settings(num_beams=4)
        result = self.generate(self.write([self.PROMPT]), "--model", self.model, status=11)
        self.assertIn(b"num_beams", result.stderr)
        self.bodies([self.PROMPT], "--ignore-generation-config")

    def test_end_tokens_are_the_models(self):
        (free,) = self.choices([self.PROMPT])
        self.settings(eos_token_id=[2, free["token_ids"][3]])
        (ended,) = self.choices([self.PROMPT], "--model", self.model)
        self.assertEqual((ended["token_ids"], ended["finish_reason"]), (free["token_ids"][:4], "stop"))

    def test_stop_tokens_of_lines_and_flags_end_rows(self):
        (free,) = self.choices([self.PROMPT])
        stop = free["token_ids"][3]
        (by_line,) = self.choices([self.PROMPT | {"stop_token_ids": [stop], "ignore_eos": True}])
        (by_flag,) = self.choices([self.PROMPT], "--stop-token-ids", f"4000,{stop}")
        for ended in (by_line, by_flag):
            self.assertEqual((ended["token_ids"], ended["finish_reason"]), (free["token_ids"][:4], "stop"))
        result = self.generate(self.write([self.PROMPT]), "--overwrite", "--stop-token-ids", "9999", status=2)
        self.assertIn(b"0 to 4095", result.stderr)

    def test_a_repetition_penalty_changes_what_repeats(self):
        line = {"prompt": "the the the the", "max_tokens": 40}
        (free,) = self.choices([line])
        (by_line,) = self.choices([line | {"repetition_penalty": 2.0}])
        self.settings(repetition_penalty=2.0)
        (by_model,) = self.choices([line], "--model", self.model)
        self.assertEqual(by_line["token_ids"], by_model["token_ids"])
        self.assertGreater(len(set(by_line["token_ids"])), len(set(free["token_ids"])))


if __name__ == "__main__":
    GenerateTest.binary = pathlib.Path(sys.argv.pop(1)).resolve()
    unittest.main()
