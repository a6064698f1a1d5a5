"""Model "spillway" of lm-eval: `lm_eval --model spillway --model_args model=DIR,kv_policy=h2o --tasks ...`.

Where the wheel is not installed, `python -m spillway.lm_eval` is the same command. Needs lm-eval, and transformers for
the model's tokenizer; torch is not used.
"""

import logging
import sys

from lm_eval.api.model import TemplateLM
from lm_eval.api.registry import register_model
from lm_eval.models.utils import (
    handle_stop_sequences,
    normalize_gen_kwargs,
    postprocess_generated_text,
    resolve_max_length,
)
from lm_eval.utils import get_rolling_token_windows, make_disjoint_window
from transformers import AutoConfig, AutoTokenizer

from spillway.engine import Engine

_MAX_STOPS = 16  # that a request may have; further ones are cut off the text here
# What lm-eval passes where nothing is stated: the program then takes a GPU where there is one.
_DEFAULT_DEVICES = (None, "cuda", "cuda:0")
_LOG = logging.getLogger("spillway")
_SAMPLING = ("top_p", "top_k", "repetition_penalty", "seed")


def _without_added_tokens(windows):
    return [(list(context), list(continuation)) for context, continuation in map(make_disjoint_window, windows)]


@register_model("spillway")
class SpillwayLM(TemplateLM):
    """All requests of a call are one batch: they share the passes through the weights.

    `model` is a model folder, `tokenizer` another folder of one. `max_length`, `max_gen_toks`, `add_bos_token` and
    `prefix_token_id` are as of lm-eval's `hf`. All others are flags of the program, with underscores.
    """

    backend = "causal"

    def __init__(self, model, tokenizer=None, max_length=None, max_gen_toks=256, add_bos_token=None, prefix_token_id=None,
                 batch_size=None, max_batch_size=None, device=None, **flags):
        super().__init__()
        del max_batch_size
        if batch_size not in (None, 1, "1", "auto"):
            _LOG.warning("batch_size %s is not used: the program plans its batches; gpu_batch_size in --model_args states one",
                         batch_size)
        if device not in _DEFAULT_DEVICES:
            flags["device"] = device
        if tokenizer is not None:
            flags["tokenizer"] = tokenizer
        self._engine = Engine(model, **flags)
        self._model = model
        self.tokenizer = AutoTokenizer.from_pretrained(tokenizer or model)
        self._max_length = int(max_length) if max_length else resolve_max_length(
            AutoConfig.from_pretrained(model), self.tokenizer)
        self._max_gen_toks = int(max_gen_toks)
        self._add_bos_token = add_bos_token
        self._prefix_token_id = prefix_token_id

    @property
    def eot_token_id(self):
        return self.tokenizer.eos_token_id

    @property
    def prefix_token_id(self):
        if self._prefix_token_id is not None:
            return int(self._prefix_token_id)
        bos = self.tokenizer.bos_token_id
        return self.eot_token_id if bos is None else bos

    @property
    def max_length(self):
        return self._max_length

    @property
    def max_gen_toks(self):
        return self._max_gen_toks

    @property
    def tokenizer_name(self):
        return self.tokenizer.name_or_path.replace("/", "__")

    def apply_chat_template(self, chat_history, add_generation_prompt=True):
        return self.tokenizer.apply_chat_template(
            chat_history, tokenize=False, add_generation_prompt=add_generation_prompt,
            continue_final_message=not add_generation_prompt)

    def tok_encode(self, string, add_special_tokens=None, **_):
        """As lm-eval's `hf` encodes: a text that begins with the start token is given none."""
        if add_special_tokens is None and self.prefix_token_id is not None and string.startswith(
                self.tokenizer.decode(self.prefix_token_id)):
            add_special_tokens = False
        elif add_special_tokens is None:
            add_special_tokens = self._add_bos_token
        keywords = {} if add_special_tokens is None else {"add_special_tokens": add_special_tokens}
        return self.tokenizer.encode(string, **keywords)

    def _loglikelihood_tokens(self, requests, **_):
        """(log-probability, whether greedy) of each continuation; contexts are cut from the left."""
        pairs = [self._cut(context, continuation) for _, context, continuation in requests]
        results = []
        for (key, _, _), score in zip(requests, self._engine.score(pairs)):
            results.append((score.logprob_sum, score.greedy_match))
            if key is not None:  # None: a window of a longer text
                self.cache_hook.add_partial("loglikelihood", key, results[-1])
        return results

    def _cut(self, context, continuation):
        if len(continuation) > self.max_length:
            raise ValueError(f"a continuation of {len(continuation)} tokens is over max_length {self.max_length}")
        room = self.max_length + 1 - len(continuation)
        return context[-room:], continuation

    def loglikelihood_rolling(self, requests, disable_tqdm=False):
        windows = []
        counts = []
        for (text,) in (request.args for request in requests):
            of_text = _without_added_tokens(get_rolling_token_windows(
                token_list=self.tok_encode(text), prefix_token=self.prefix_token_id, max_seq_len=self.max_length,
                context_len=1))
            windows += of_text
            counts.append(len(of_text))
        scores = iter(self._loglikelihood_tokens([(None, *window) for window in windows]))
        results = [sum(next(scores)[0] for _ in range(count)) for count in counts]
        for request, result in zip(requests, results):
            self.cache_hook.add_partial("loglikelihood_rolling", request.args, result)
        return results

    def generate_until(self, requests, disable_tqdm=False):
        wanted = [self._generation(*request.args) for request in requests]
        answers = self._engine.generate(line for line, _ in wanted)
        results = []
        for request, (_, stops), answer in zip(requests, wanted, answers):
            text = self.tokenizer.decode(answer.token_ids, skip_special_tokens=True)
            results.append(postprocess_generated_text(text, stops, think_end_token=None))
            self.cache_hook.add_partial("generate_until", request.args, results[-1])
        return results

    def _generation(self, context, gen_kwargs):
        """The program's line for a request, and where its text ends."""
        settings = normalize_gen_kwargs(gen_kwargs, self.max_gen_toks)
        stops = settings.pop("until")
        max_tokens = settings.pop("max_gen_toks")
        temperature = settings.pop("temperature", 0.0) if settings.pop("do_sample", False) else 0.0
        unknown = sorted(set(settings) - set(_SAMPLING))
        if unknown:
            raise ValueError(f"generation settings {', '.join(unknown)}: not known to spillway")
        room = self.max_length - max_tokens
        if room <= 0:
            raise ValueError(f"max_gen_toks {max_tokens} leaves nothing of max_length {self.max_length} to the prompt")
        line = {"token_ids": self.tok_encode(context)[-room:], "max_tokens": max_tokens, "temperature": temperature,
                "stop": [stop for stop in stops if stop][:_MAX_STOPS], **settings}
        eos = self.tokenizer.decode([self.eot_token_id], skip_special_tokens=False)
        return line, handle_stop_sequences(list(stops), eos)


if __name__ == "__main__":
    from lm_eval.__main__ import cli_evaluate

    sys.exit(cli_evaluate())
