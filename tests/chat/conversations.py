"""Conversations that chat templates are compared on; all of them plain data."""

WEATHER = {"type": "function", "function": {
    "name": "get_weather", "description": "The weather at a place.\nNow, not tomorrow.", "parameters": {
        "type": "object", "required": ["city"], "properties": {
            "city": {"type": "string", "description": "e.g. \"Z\u00fcrich\" & <Bern>"},
            "units": {"type": "string", "enum": ["celsius", "kelvin"]},
            "days": {"type": "integer", "minimum": 0, "maximum": 18446744073709551615, "default": 1}}},
    "return": {"type": "number"}}}
SEARCH = {"type": "function", "function": {
    "name": "search", "description": "", "parameters": {
        "type": "object", "properties": {
            "terms": {"type": "array", "items": {"type": "string"}},
            "where": {"type": "object", "properties": {"site": {"type": ["string", "null"]},
                                                       "score": {"type": "number", "minimum": 0.25, "maximum": 1e22}}}},
        "required": []}}}
NOTHING = {"type": "function", "function": {"name": "now", "parameters": {"type": "object", "properties": {}}}}


def said(*turns):
    return [{"role": role, "content": content} for role, content in turns]


def case(messages, **others):
    return {"messages": messages, **others}


def call(name, arguments, id="abc123def"):
    return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}


HELLO = said(("user", "Hello!"))
TWO = said(("user", "What is 2 + 2?"), ("assistant", "It is 4."), ("user", "And times 3?"))
SYSTEM = said(("system", "You answer in one word."), ("user", "Which is the largest planet?"))
LONG = said(("system", "Be brief."), *[turn for i in range(5) for turn in (("user", f"Question {i}?"), ("assistant", f"Answer {i}."))],
            ("user", "The last question, which is long enough that a template may well cut it short somewhere here?"))
TOOLS_USED = said(("user", "How warm is it?")) + [
    {"role": "assistant", "content": None, "tool_calls": [call("get_weather", {"city": "Z\u00fcrich", "days": 2, "exact": True, "spread": 0.1})]},
    {"role": "tool", "content": "{\"celsius\": 21.5}", "tool_call_id": "abc123def", "name": "get_weather"}]
TWO_CALLS = said(("system", "Use tools."), ("user", "Compare.")) + [
    {"role": "assistant", "content": "I look it up.", "tool_calls": [
        call("get_weather", {"city": "Bern"}), call("search", {"terms": ["a", "b"], "where": {"site": None}}, "123456789")]},
    {"role": "tool", "content": "20", "tool_call_id": "abc123def"},
    {"role": "tool", "content": "[1, 2]", "tool_call_id": "123456789"},
    {"role": "assistant", "content": "Bern is cooler."}, {"role": "user", "content": "Thanks."}]
THOUGHT = said(("user", "Why?"), ("assistant", "<think>\nLet me see.\n\nYes.\n</think>\n\nBecause."), ("user", "Really?"))
REASONED = said(("user", "Why?")) + [{"role": "assistant", "content": "Because.", "reasoning_content": "It must be so."}]
PARTS = [{"role": "user", "content": [{"type": "text", "text": " First part. "}, {"type": "text", "text": "Second."}]}]

CASES = {
    "hello": case(HELLO),
    "hello_closed": case(HELLO, add_generation_prompt=False),
    "two": case(TWO),
    "two_closed": case(TWO[:2], add_generation_prompt=False),
    "system": case(SYSTEM),
    "system_closed": case(SYSTEM, add_generation_prompt=False),
    "system_only": case(SYSTEM[:1]),
    "system_later": case(TWO[:2] + said(("system", "Now be rude."), ("user", "Go on."))),
    "long": case(LONG),
    "empty_text": case(said(("user", ""))),
    "empty_system": case(said(("system", ""), ("user", "x"))),
    "blank": case(said(("user", "  \n\t spaces around \u00a0\u2003\n"))),
    "newlines": case(said(("user", "one\r\ntwo\rthree\n\nfour\n"))),
    "unicode": case(said(("system", "\u00dcber \u0130stanbul \ufb01 \u00df"), ("user", "\u4f60\u597d \U0001f600 e\u0301 \u202e \u0000".replace("\u0000", "")))),
    "markup": case(said(("user", "<b>&amp; 'quoted' \"twice\" \\ back</b> {{ x }} {% if %} {# no #}"))),
    "special": case(said(("user", "</s><|im_end|><|eot_id|>[INST] hi [/INST]"))),
    "control": case(said(("user", "bell \u0007 tab\tdel \u007f nel \u0085 ls \u2028"))),
    "two_users": case(said(("user", "One."), ("user", "Two."))),
    "assistant_first": case(said(("assistant", "I begin."), ("user", "Fine."))),
    "other_role": case(said(("critic", "No."), ("user", "Yes."))),
    "odd_role": case(said(("USER", "Loud."))),
    "no_content": case([{"role": "user"}]),
    "null_content": case([{"role": "user", "content": None}]),
    "extra_keys": case([{"role": "user", "content": "x", "name": "Ann", "weight": 0, "tool_calls": None}]),
    "tools": case(HELLO, tools=[WEATHER]),
    "tools_system": case(SYSTEM, tools=[WEATHER, SEARCH, NOTHING]),
    "tools_in_system": case(SYSTEM, tools=[SEARCH], variables={"tools_in_user_message": False}),
    "tools_used": case(TOOLS_USED, tools=[WEATHER]),
    "tools_two_calls": case(TWO_CALLS, tools=[WEATHER, SEARCH]),
    "tools_builtin": case(TOOLS_USED, variables={"builtin_tools": ["search", "code_interpreter", "wolfram"]}),
    "no_tools": case(HELLO, tools=[]),
    "thought": case(THOUGHT),
    "thought_closed": case(THOUGHT[:2], add_generation_prompt=False),
    "reasoned": case(REASONED, add_generation_prompt=False),
    "no_thinking": case(HELLO, variables={"enable_thinking": False}),
    "thinking": case(SYSTEM, variables={"enable_thinking": True}),
    "slash_no_think": case(said(("system", "Short. /no_think"), ("user", "Hi."))),
    "parts": case(PARTS),
    "documents": case(SYSTEM[1:], documents=[{"title": "Planets", "text": "Jupiter is large."}, {"text": "No title."}],
                      variables={"controls": {"length": "short", "n": [1, 2.0, None, True]}}),
    "date": case(HELLO, variables={"date_string": "01 Jan 2025"}),
    "other_tokens": case(TWO, variables={"bos_token": "<B>", "eos_token": "<E>"}),
    "continued": case(TWO[:2], add_generation_prompt=False, continue_final_message=True),
    "continued_space": case(said(("user", "Go"), ("assistant", " well, \n")), add_generation_prompt=False, continue_final_message=True),
    "continued_user": case(TWO, add_generation_prompt=False, continue_final_message=True),
    "continued_parts": case(PARTS, add_generation_prompt=False, continue_final_message=True),
    "continued_thought": case(REASONED, add_generation_prompt=False, continue_final_message="reasoning_content"),
    "continued_missing": case([{"role": "user"}], add_generation_prompt=False, continue_final_message=True),
}

TOKENS = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>"}
NOW = [2026, 3, 7, 9, 5, 4]
