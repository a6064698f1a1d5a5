"""Chats as transformers renders them, with a clock that stands still."""
import datetime

from transformers.utils import chat_template_utils

from conversations import NOW


class Clock(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return cls(*NOW)


chat_template_utils.datetime = Clock


def render(template, case, tokens):
    """{"text"} or {"error"}: what apply_chat_template gives with tokenize=False."""
    messages = [{key: value for key, value in message.items() if value is not None} for message in case["messages"]]
    try:
        rendered, _ = chat_template_utils.render_jinja_template(
            conversations=[messages], tools=case.get("tools"), documents=case.get("documents"), chat_template=template,
            continue_final_message=case.get("continue_final_message", False),
            add_generation_prompt=case.get("add_generation_prompt", True), **{**tokens, **case.get("variables", {})})
        return {"text": rendered[0]}
    except Exception as error:  # whatever a template makes Python raise
        return {"error": f"{type(error).__name__}: {error}"}
