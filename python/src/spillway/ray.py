"""Ray Data: dataset.map_batches(SpillwayPredictor, fn_constructor_kwargs={...}, concurrency=N, batch_size=M).

Needs no import of ray: an actor is any class whose objects are called with a batch. The model is loaded with an actor's
first batch and stays.
"""

from spillway.engine import Engine
from spillway.errors import RequestError


def _items(column):
    """Values of a column as Python has them: arrays of NumPy become lists."""
    return [item.tolist() if hasattr(item, "tolist") else item for item in column]


class SpillwayPredictor:
    """Adds columns with the answers to a batch, a dict of columns.

    `input_column` holds prompts as Engine.generate takes them, or with verb="score" texts as Engine.score does;
    `context_column` then the contexts of the texts, where there are any. `options` are keys of each request; a column
    that is named in `option_columns` gives the key of its name, as a seed for each row. All else is as of Engine.

    Added are `generated_text`, `generated_tokens` (their number), `finish_reason`; or `logprob_sum`, `num_tokens`,
    `greedy_match`; and `error`: None, or why a row has no answer.
    """

    def __init__(self, model=None, *, verb="generate", input_column="prompt", context_column=None, option_columns=(),
                 options=None, **engine):
        if verb not in ("generate", "score"):
            raise ValueError(f'verb={verb!r}: "generate" or "score"')
        if context_column is not None and verb != "score":
            raise ValueError('context_column: belongs to verb="score"')
        self._engine = Engine(model, **engine)
        self._verb = verb
        self._input_column = input_column
        self._context_column = context_column
        self._option_columns = tuple(option_columns)
        self._options = dict(options or {})

    def __call__(self, batch):
        ask = self._engine.generate if self._verb == "generate" else self._engine.score
        answers = list(ask(self._requests(batch), on_error="return"))
        return {**batch, **(_completions(answers) if self._verb == "generate" else _scores(answers)),
                "error": [str(answer) if isinstance(answer, RequestError) else None for answer in answers]}

    def _requests(self, batch):
        inputs = _items(batch[self._input_column])
        columns = {name: _items(batch[name]) for name in self._option_columns}
        contexts = _items(batch[self._context_column]) if self._context_column else None
        for row, value in enumerate(inputs):
            request = self._request(value, contexts[row] if contexts else None)
            yield {**self._options, **{name: column[row] for name, column in columns.items()}, **request}

    def _request(self, value, context):
        if isinstance(value, dict):
            return value
        if context is not None:
            return {"context": context, "continuation": value}
        if isinstance(value, str):
            return {"prompt" if self._verb == "generate" else "text": value}
        is_chat = self._verb == "generate" and len(value) > 0 and isinstance(value[0], dict)
        return {"messages" if is_chat else "token_ids": value}


def _field(answers, name):
    return [None if isinstance(answer, RequestError) else getattr(answer, name) for answer in answers]


def _completions(answers):
    tokens = [None if ids is None else len(ids) for ids in _field(answers, "token_ids")]
    return {"generated_text": _field(answers, "text"), "generated_tokens": tokens,
            "finish_reason": _field(answers, "finish_reason")}


def _scores(answers):
    return {name: _field(answers, name) for name in ("logprob_sum", "num_tokens", "greedy_match")}
