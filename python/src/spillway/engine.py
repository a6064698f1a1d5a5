"""Engine: a model that stays loaded and answers iterables of requests lazily, in their order."""

import collections
import numbers
import queue
import threading

from spillway.answers import completion_of, score_of
from spillway.errors import RequestError
from spillway.program import command_of, find_binary
from spillway.worker import Worker

# Requests that are sent and not yet yielded: as many as the program takes into one batch.
_WINDOW = 65536

# A pause of the caller's iterable that lets the program begin with what it has.
_PAUSE_MS = 1000


def _prompt_line(prompt, options):
    if isinstance(prompt, dict):
        return {**options, **prompt} if "body" not in prompt else prompt
    if isinstance(prompt, str):
        return {"prompt": prompt, **options}
    items = list(prompt)
    if items and all(isinstance(item, dict) for item in items):
        return {"messages": items, **options}
    return {"token_ids": [int(item) for item in items], **options}


def _text_line(text, options):
    if isinstance(text, dict):
        return {**options, **text}
    if isinstance(text, str):
        return {"text": text, **options}
    items = list(text)
    if len(items) == 2 and all(isinstance(item, str) for item in items):
        return {"context": items[0], "continuation": items[1], **options}
    if len(items) == 2 and not any(isinstance(item, numbers.Integral) for item in items):
        context, continuation = ([int(token) for token in item] for item in items)
        return {"context_token_ids": context, "continuation_token_ids": continuation, **options}
    return {"token_ids": [int(item) for item in items], **options}


class _Call:
    """One call of generate or score: a thread sends, answers come in any order, and leave in the requests'."""

    def __init__(self, worker, requests, line_of):
        self._worker = worker
        self._requests = requests
        self._line_of = line_of
        self._arrived = queue.SimpleQueue()  # (index, answer or exception); index None: all were sent
        self._room = threading.Semaphore(_WINDOW)
        self._stopped = False
        threading.Thread(target=self._send_all, daemon=True).start()

    def _send_all(self):
        count = 0
        try:
            for index, request in enumerate(self._requests):
                while not self._room.acquire(timeout=0.1):
                    if self._stopped:
                        return
                if self._stopped:
                    return
                line = self._line_of(request)
                self._worker.send(line, lambda answer, index=index: self._arrived.put((index, answer)))
                count = index + 1
            self._worker.flush()
            self._arrived.put((None, count))
        except Exception as error:  # pylint: disable=broad-except  # the caller's iterable may raise anything
            self._arrived.put((None, error))

    def answers(self):
        """Yields (index, answer) in order."""
        waiting = {}
        total = None
        index = 0
        try:
            while total is None or index < total:
                if index in waiting:
                    self._room.release()
                    yield index, waiting.pop(index)
                    index += 1
                    continue
                place, answer = self._arrived.get()
                if isinstance(answer, Exception):
                    raise answer
                if place is None:
                    total = answer
                else:
                    waiting[place] = answer
        finally:
            self._stopped = True


class Engine:
    """A model that stays loaded between calls.

    `model` is what --model takes; None is the bundled model. `flags` are the program's, with underscores:
    Engine(DIR, kv_policy="h2o", cpu_memory="8GiB", max_new_tokens=32, stop=["\\n"], percent=[0, 50, 0, 100, 0, 100]).

    The program starts with the first call, and again where `score` follows `generate` or the other way round: one model at a
    time is in memory. An engine is a context manager, can be pickled (it starts anew elsewhere), and its calls may come from
    several threads as long as they are of one kind.
    """

    def __init__(self, model=None, *, binary=None, **flags):
        self._binary = binary
        self._model = model
        self._flags = {"pause_ms": _PAUSE_MS, **flags}
        self._worker = None
        self._verb = ""
        self._lock = threading.Lock()
        self.summaries = collections.deque(maxlen=100)  # what the workers that have ended told at their end

    def generate(self, prompts, *, on_error="raise", **options):
        """Yields a Completion for each prompt, in order, as soon as it and those before it are there.

        A prompt is a text, a list of token ids, a list of messages ({"role", "content"}), or a dict: a line of the program's
        input. `options` are keys of such a line for all prompts: max_tokens, temperature, seed, stop, ...
        on_error="return" yields a RequestError in the place of a request that cannot run; "raise" raises it.
        Raises SpillwayError where the program ends.
        """
        return self._ask("generate", prompts, lambda prompt: _prompt_line(prompt, options), completion_of, on_error)

    def score(self, texts, *, on_error="raise", **options):
        """Yields a Score for each text, likewise.

        A text is a string, a pair (context, continuation) of strings or of lists of token ids, a list of token ids, or a dict.
        """
        return self._ask("score", texts, lambda text: _text_line(text, options), score_of, on_error)

    def close(self):
        """Ends the program; a later call starts it again."""
        with self._lock:
            self._close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def __getstate__(self):
        return {"_binary": self._binary, "_model": self._model, "_flags": self._flags}

    def __setstate__(self, state):
        self.__init__(state["_model"], binary=state["_binary"], **state["_flags"])

    def _close(self):
        if self._worker is None:
            return
        self._worker.close()
        if self._worker.summary:
            self.summaries.append(self._worker.summary)
        self._worker = None

    def _worker_of(self, verb):
        with self._lock:
            if self._worker is not None and (self._verb != verb or self._worker.ended):
                self._close()
            if self._worker is None:
                self._worker = Worker(command_of(self._binary or find_binary(), verb, self._model, self._flags))
                self._verb = verb
            return self._worker

    def _ask(self, verb, requests, line_of, value_of, on_error):
        if on_error not in ("raise", "return"):
            raise ValueError(f'on_error={on_error!r}: "raise" or "return"')
        return self._values(verb, requests, line_of, value_of, on_error)

    def _values(self, verb, requests, line_of, value_of, on_error):
        for index, answer in _Call(self._worker_of(verb), requests, line_of).answers():
            error = answer.get("error")
            if error is None:
                yield value_of(answer)
                continue
            fault = RequestError(error["message"].split(": ", 1)[-1], error["code"], index)
            if on_error == "raise":
                raise fault
            yield fault
