"""Chats as transformers' apply_chat_template renders them, with a clock that stands still."""
import datetime

from transformers import PreTrainedTokenizerBase
from transformers.utils import chat_template_utils

from conversations import NOW


class Clock(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return cls(*NOW)


chat_template_utils.datetime = Clock


class TemplateTokenizer(PreTrainedTokenizerBase):
    """What apply_chat_template asks of a tokenizer that is to give text: its special tokens, and no vocabulary."""

    def __init__(self, tokens):
        self.tokens = tokens
        self.chat_template = None

    @property
    def special_tokens_map(self):
        return self.tokens


def render(template, case, tokens):
    """{"text"} or {"error"}: what apply_chat_template gives with tokenize=False."""
    try:
        text = TemplateTokenizer(tokens).apply_chat_template(
            case["messages"], tools=case.get("tools"), documents=case.get("documents"), chat_template=template,
            continue_final_message=case.get("continue_final_message", False),
            add_generation_prompt=case.get("add_generation_prompt", True), tokenize=False, **case.get("variables", {}))
        return {"text": text}
    except Exception as error:  # whatever a template makes Python raise
        return {"error": f"{type(error).__name__}: {error}"}
