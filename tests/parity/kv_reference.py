"""Greedy decoding with a KV cache that evicts, in float32 and written for clarity: the oracle of the KV policies.
Needs the PyPI packages torch and transformers.

The rule is that of H2O (arXiv 2306.14048), made exact: a token's score is the attention it has received, summed over
queries and over the heads that share its K and V. After the prompt the recent tokens stay, and of the older ones the
heavy hitters; after each further token the lowest score among those that left the window goes.
"""

import dataclasses

import torch

from comparison import NUM_TOP

# A row is compared up to the first choice that a rounding could turn: two scores this close, relative to the larger.
FRAGILE_FRAC = 1e-3


@dataclasses.dataclass
class Keep:
    """Tokens of each kind that a row keeps in every layer."""

    sinks: int
    heavy: int
    recent: int

    @property
    def slots(self):
        return self.sinks + self.heavy + self.recent


@dataclasses.dataclass
class Head:
    """Tokens that one KV head of one layer holds, newest last."""

    keys: torch.Tensor  # [held, head_dim]
    values: torch.Tensor
    scores: torch.Tensor
    positions: list

    def take(self, slots):
        self.keys, self.values, self.scores = (t[slots] for t in (self.keys, self.values, self.scores))
        self.positions = [self.positions[slot] for slot in slots]


class EvictingDecoder:
    """One row. `flexgen`: h2o_flexgen's variant, which keeps one heavy token less and one recent more, and lets every
    token that leaves the window take the place of the lightest heavy one."""

    def __init__(self, model, keep, uses_scores, flexgen=False):
        self.model = model.model.decoder
        self.lm_head = model.lm_head
        self.config = model.config
        moved = 1 if flexgen and keep.heavy > 0 else 0
        self.keep = Keep(keep.sinks, keep.heavy - moved, keep.recent + moved)
        self.competes = not flexgen or self.keep.heavy == 0
        self.uses_scores = uses_scores
        self.heads = [[] for _ in self.model.layers]
        self.num_tokens = 0
        self.is_fragile = False

    def note_margin(self, low, high):
        """True where the choice between these scores could go the other way in another order of sums."""
        if self.uses_scores and abs(high - low) <= FRAGILE_FRAC * max(abs(low), abs(high)):
            self.is_fragile = True

    def prefill(self, head):
        """Chooses what stays of a whole prompt."""
        keep, count = self.keep, len(head.positions)
        if count <= keep.slots:
            return
        middle = list(range(keep.sinks, count - keep.recent))
        ranked = sorted(middle, key=lambda slot: (-head.scores[slot].item(), slot))
        if 0 < keep.heavy < len(ranked):
            self.note_margin(head.scores[ranked[keep.heavy]].item(), head.scores[ranked[keep.heavy - 1]].item())
        chosen = sorted(ranked[: keep.heavy])
        head.take([*range(keep.sinks), *chosen, *range(count - keep.recent, count)])

    def evict(self, head):
        """After a single token."""
        keep = self.keep
        if len(head.positions) <= keep.slots:
            return
        limit = head.positions[-1] - keep.recent - (0 if self.competes else 1)
        old = [slot for slot, position in enumerate(head.positions) if keep.sinks <= position <= limit]
        ranked = sorted(old, key=lambda slot: (head.scores[slot].item(), -head.positions[slot]))
        if len(ranked) > 1:
            self.note_margin(head.scores[ranked[0]].item(), head.scores[ranked[1]].item())
        head.take([slot for slot in range(len(head.positions)) if slot != ranked[0]])

    def attend(self, layer, index, hidden):
        attention = layer.self_attn
        count, heads, size = hidden.shape[0], attention.num_heads, attention.head_dim
        query, key, value = (
            projection(hidden).view(count, heads, size)
            for projection in (attention.q_proj, attention.k_proj, attention.v_proj)
        )
        key, value = key.half().float(), value.half().float()  # as a 16-bit cache holds them
        is_prompt = self.num_tokens == 0
        out = torch.empty(count, heads, size)
        for number in range(heads):
            if is_prompt:
                self.heads[index].append(Head(torch.empty(0, size), torch.empty(0, size), torch.empty(0), []))
            head = self.heads[index][number]
            head.keys = torch.cat([head.keys, key[:, number]])
            head.values = torch.cat([head.values, value[:, number]])
            head.positions += range(self.num_tokens, self.num_tokens + count)
            scores = query[:, number] @ head.keys.T * size**-0.5
            if is_prompt:
                scores = scores.masked_fill(torch.ones(count, count, dtype=torch.bool).triu(1), float("-inf"))
            weights = torch.softmax(scores, -1)
            out[:, number] = weights @ head.values
            head.scores = torch.cat([head.scores, torch.zeros(count)])
            if self.uses_scores:
                head.scores = head.scores + weights.sum(0)
            self.prefill(head) if is_prompt else self.evict(head)
        return attention.out_proj(out.reshape(count, heads * size))

    def layer(self, layer, index, hidden):
        pre = layer.do_layer_norm_before
        residual = hidden
        hidden = residual + self.attend(layer, index, layer.self_attn_layer_norm(hidden) if pre else hidden)
        hidden = hidden if pre else layer.self_attn_layer_norm(hidden)
        residual = hidden
        inner = layer.activation_fn(layer.fc1(layer.final_layer_norm(hidden) if pre else hidden))
        hidden = residual + layer.fc2(inner)
        return hidden if pre else layer.final_layer_norm(hidden)

    def step(self, tokens):
        """Logits after these tokens, the prompt the first time and single ones afterwards."""
        model = self.model
        positions = torch.arange(self.num_tokens, self.num_tokens + len(tokens))
        hidden = model.embed_tokens(torch.tensor(tokens))
        if model.project_in is not None:
            hidden = model.project_in(hidden)
        hidden = hidden + model.embed_positions.weight[positions + model.embed_positions.offset]
        for index, layer in enumerate(model.layers):
            hidden = self.layer(layer, index, hidden)
        self.num_tokens += len(tokens)
        hidden = hidden[-1]
        if model.final_layer_norm is not None:
            hidden = model.final_layer_norm(hidden)
        if model.project_out is not None:
            hidden = model.project_out(hidden)
        return self.lm_head(hidden)


@torch.inference_mode()
def greedy(model, prompt, max_tokens, policy):
    """One row (comparison.py), cut before the first step that rests on a fragile choice. `policy`: arguments of
    EvictingDecoder after the model."""
    decoder = EvictingDecoder(model, *policy)
    row = {"prompt": prompt, "tokens": [], "top": []}
    fed = prompt
    while len(row["tokens"]) < max_tokens:
        logits = decoder.step(fed)
        # The choice of this step acts on the next one's logits.
        best, ids = torch.log_softmax(logits.double(), -1).sort(descending=True, stable=True)
        step = zip(ids[:NUM_TOP].tolist(), best[:NUM_TOP].tolist())
        row["top"].append([item for token, logprob in step for item in (token, round(logprob, 5))])
        fed = [row["top"][-1][0]]
        row["tokens"] += fed
        if decoder.is_fragile:
            break
    return row
