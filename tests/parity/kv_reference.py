"""Greedy decoding with a KV cache that evicts, in float32 and written for clarity: the oracle of the KV policies, for any
family of transformers. Needs the PyPI packages torch and transformers.

The rule is that of H2O (arXiv 2306.14048), made exact: a token's score is the attention it has received, summed over
queries and over the heads that share its K and V. After the prompt the recent tokens stay, and of the older ones the
heavy hitters; after each further token the lowest score among those that left the window goes. In a layer whose tokens see
a window of others, one that the next token does not see goes before all others.

transformers computes everything but the attention: queries and keys come to Row.attend turned to their true positions, or,
where the cache rolls, unturned: there a key is turned by its place among the tokens that are held, and a query likewise.
"""

import dataclasses
import functools

import torch
import transformers

from comparison import NUM_TOP

# A row is compared up to the first choice that a rounding could turn: two scores this close, relative to the larger.
FRAGILE_FRAC = 1e-3
ATTENTION = "evicting"


@dataclasses.dataclass
class Keep:
    """Tokens of each kind that a row keeps in a layer. `window`: tokens that a token sees there, itself included; 0: all."""

    sinks: int
    heavy: int
    recent: int
    window: int = 0

    @property
    def slots(self):
        return self.sinks + self.heavy + self.recent

    def within(self, window, row_tokens):
        """What a layer of this window keeps of a row of so many tokens in all: none that will not be seen again."""
        if not window or row_tokens <= window:
            return self
        slots = min(self.slots, window - 1)
        if self.sinks > 0 or slots == window - 1:
            return Keep(0, 0, slots, window)
        return Keep(0, self.heavy, self.recent, window)

    def as_flexgen(self):
        """h2o_flexgen's: one heavy token less, one recent more."""
        moved = 1 if self.heavy > 0 else 0
        return Keep(self.sinks, self.heavy - moved, self.recent + moved, self.window)


@dataclasses.dataclass
class Head:
    """Tokens that one KV head of one layer holds, newest last."""

    keys: torch.Tensor  # [held, head_dim]
    values: torch.Tensor
    scores: torch.Tensor
    positions: list

    @classmethod
    def empty(cls, size):
        return cls(torch.empty(0, size), torch.empty(0, size), torch.empty(0), [])

    def add(self, keys, values):
        first = self.positions[-1] + 1 if self.positions else 0  # the newest token always stays
        self.keys, self.values = torch.cat([self.keys, keys]), torch.cat([self.values, values])
        self.scores = torch.cat([self.scores, torch.zeros(len(keys))])
        self.positions = [*self.positions, *range(first, first + len(keys))]

    def take(self, slots):
        self.keys, self.values, self.scores = (t[slots] for t in (self.keys, self.values, self.scores))
        self.positions = [self.positions[slot] for slot in slots]

    def hidden(self, num_queries, window):
        """[query, held]: which tokens the newest so many do not see."""
        positions = torch.tensor(self.positions)
        distance = positions[-num_queries:, None] - positions
        return (distance < 0) | (distance >= (window or torch.inf))

    def standing(self, slot, window):
        """Score by which a token is compared: the lowest where the next token does not see it."""
        is_seen = not window or self.positions[slot] > self.positions[-1] + 1 - window
        return self.scores[slot].item() if is_seen else -torch.inf


def softmax(products, sinks):
    """Weights of [heads, queries, tokens], each head's beside a score more that has no value."""
    if sinks is None:
        return torch.softmax(products, -1)
    beside = sinks[:, None, None].expand(*products.shape[:2], 1)
    return torch.softmax(torch.cat([products, beside], -1), -1)[..., :-1]


class Turn:
    """The rotation of a model's heads, by half and half of their first dimensions."""

    def __init__(self, model):
        module = next(module for module in model.modules() if hasattr(module, "inv_freq"))
        self.frequencies, self.factor = module.inv_freq.float(), module.attention_scaling

    def unturned(self, heads):
        """What transformers turned to position 0, which multiplies by the factor alone."""
        size = 2 * len(self.frequencies)
        return torch.cat([heads[..., :size] / self.factor, heads[..., size:]], -1)

    def __call__(self, heads, first):
        """[..., tokens, head_dim], whose tokens' places begin with `first`."""
        half = len(self.frequencies)
        angles = (first + torch.arange(heads.shape[-2])).float()[:, None] * self.frequencies
        cosines, sines = angles.cos() * self.factor, angles.sin() * self.factor
        a, b = heads[..., :half], heads[..., half : 2 * half]
        return torch.cat([a * cosines - b * sines, b * cosines + a * sines, heads[..., 2 * half :]], -1)


class Row:
    """One row. `keep`: of a layer without a window, or what (layer, KV head) keeps. `flexgen`: h2o_flexgen's variant, which lets every token that leaves the
    recent ones take the place of the lightest heavy one. `turn`: of a cache that rolls."""

    def __init__(self, keep, uses_scores, flexgen, row_tokens, turn=None):
        self.keep, self.uses_scores, self.flexgen, self.row_tokens, self.turn = keep, uses_scores, flexgen, row_tokens, turn
        self.heads = {}  # by layer and KV head
        self.is_fragile = False

    def note_margin(self, low, high):
        """Marks where the choice between these scores could go the other way in another order of sums."""
        if self.uses_scores and low > -torch.inf and abs(high - low) <= FRAGILE_FRAC * max(abs(low), abs(high)):
            self.is_fragile = True

    def after_prompt(self, head, keep):
        """Chooses what stays of a whole prompt."""
        count = len(head.positions)
        if count <= keep.slots:
            return
        standing = functools.partial(head.standing, window=keep.window)
        ranked = sorted(range(keep.sinks, count - keep.recent), key=lambda slot: (-standing(slot), slot))
        if 0 < keep.heavy < len(ranked):
            self.note_margin(standing(ranked[keep.heavy]), standing(ranked[keep.heavy - 1]))
        chosen = sorted(ranked[: keep.heavy])
        head.take([*range(keep.sinks), *chosen, *range(count - keep.recent, count)])

    def after_token(self, head, keep):
        """Evicts one token where there is one too many."""
        if len(head.positions) <= keep.slots:
            return
        competes = not self.flexgen or keep.heavy == 0
        limit = head.positions[-1] - keep.recent - (0 if competes else 1)
        standing = functools.partial(head.standing, window=keep.window)
        old = [slot for slot, position in enumerate(head.positions) if keep.sinks <= position <= limit]
        ranked = sorted(old, key=lambda slot: (standing(slot), -head.positions[slot]))
        if len(ranked) > 1:
            self.note_margin(standing(ranked[0]), standing(ranked[1]))
        head.take([slot for slot in range(len(head.positions)) if slot != ranked[0]])

    def keep_in(self, place, window):
        keep = self.keep(*place) if callable(self.keep) else self.keep
        keep = keep.within(window, self.row_tokens)
        return keep.as_flexgen() if self.flexgen else keep

    def attend(self, module, query, key, value, mask, scaling, sliding_window=None, softcap=None, s_aux=None,
               **_):
        """transformers' attention of one row: query [1, heads, tokens, head_dim], key and value with the KV heads."""
        out = []
        for number, queries in enumerate(query[0].chunk(key.shape[1])):
            place = (module.layer_idx, number)
            keep = self.keep_in(place, sliding_window)
            is_prompt = place not in self.heads
            head = self.heads.setdefault(place, Head.empty(key.shape[-1]))
            new = key[0, number] if self.turn is None else self.turn.unturned(key[0, number])
            head.add(new.half().float(), value[0, number].half().float())  # as a 16-bit cache holds them
            keys = head.keys
            if self.turn is not None:
                keys = self.turn(keys, 0)
                queries = self.turn(self.turn.unturned(queries), len(keys) - queries.shape[1])
            products = queries @ keys.T * scaling
            products = products if softcap is None else softcap * torch.tanh(products / softcap)
            products = products.masked_fill(head.hidden(queries.shape[1], sliding_window), -torch.inf)
            weights = softmax(products, None if s_aux is None else s_aux.chunk(key.shape[1])[number])
            if self.uses_scores:
                head.scores = head.scores + weights.sum((0, 1))
            out.append(weights @ head.values)
            self.after_prompt(head, keep) if is_prompt else self.after_token(head, keep)
        return torch.cat(out).transpose(0, 1)[None], None


@torch.inference_mode()
def greedy(model, prompt, max_tokens, policy, num_top=NUM_TOP, rolls=False):
    """One row (comparison.py), cut before the first step that rests on a fragile choice. `policy`: (what Row keeps, whether scores decide, whether h2o_flexgen's variant)."""
    state = Row(*policy, len(prompt) + max_tokens, Turn(model) if rolls else None)
    transformers.AttentionInterface.register(ATTENTION, state.attend)
    model.set_attn_implementation(ATTENTION)
    row = {"prompt": prompt, "tokens": [], "top": []}
    fed, first = prompt, 0
    while len(row["tokens"]) < max_tokens:
        positions = (0 if rolls else 1) * torch.arange(first, first + len(fed))[None]
        logits = model(torch.tensor([fed]), position_ids=positions, use_cache=False, logits_to_keep=1).logits[0, -1]
        first += len(fed)
        # The choice of this step acts on the next one's logits.
        best, ids = torch.log_softmax(logits.double(), -1).sort(descending=True, stable=True)
        step = zip(ids[:num_top].tolist(), best[:num_top].tolist())
        row["top"].append([item for token, logprob in step for item in (token, round(logprob, 5))])
        fed = [row["top"][-1][0]]
        row["tokens"] += fed
        if state.is_fragile:
            break
    return row
