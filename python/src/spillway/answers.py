"""Answers as values."""

import dataclasses
from typing import Any


@dataclasses.dataclass(frozen=True)
class Completion:
    """Answer to a prompt or a chat."""

    text: str  # of a chat: the message's content
    token_ids: list
    finish_reason: str  # "stop" or "length"
    prompt_tokens: int
    logprobs: Any  # as the program writes them; None where none were asked for
    body: dict  # the whole answer, as OpenAI's API has it
    choice: Any = None  # {"index", "logprob"} where the prompt named choices


@dataclasses.dataclass(frozen=True)
class Score:
    """Log-probabilities of a text."""

    logprob_sum: float
    num_tokens: int
    token_logprobs: list  # None for a token that has none before it
    greedy_match: bool  # every scored token is the likeliest
    context_tokens_cut: int  # from the left, as the context was too long


def completion_of(answer):
    body = answer["response"]["body"]
    choice = body["choices"][0]
    text = choice["text"] if "text" in choice else choice["message"]["content"]
    return Completion(text, choice["token_ids"], choice["finish_reason"], body["usage"]["prompt_tokens"],
                      choice["logprobs"], body, choice.get("choice"))


def score_of(answer):
    return Score(answer["logprob_sum"], answer["num_tokens"], answer["token_logprobs"], answer["greedy_match"],
                 answer.get("context_tokens_cut", 0))
