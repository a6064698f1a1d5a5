"""Concentration of attention: the share of the softmax mass on the top x % of the tokens, layer by layer. Computed with
transformers in float32 and eager mode, which returns attention weights. Used by kv_quality.py."""

SHARES = [0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.6, 0.8, 1.0]
WINDOW = 640  # tokens; queries are those of the second half
NUM_WINDOWS = 8


def measure(model_folder, text_file):
    """{"kept_frac", "own": by layer, "kept": by layer}, shares of mass at each of kept_frac; or why there is none.

    own: each query's own top tokens, of those that it sees. kept: the tokens that H2O would keep at that budget, half of
    them the most recent, half those that have received most attention; nothing is evicted while the sums are taken.
    """
    try:
        import torch
        import transformers
    except ImportError as error:
        return str(error)
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    tokenizer = transformers.AutoTokenizer.from_pretrained(model_folder)
    model = transformers.AutoModelForCausalLM.from_pretrained(
        model_folder, dtype=torch.float32, attn_implementation="eager"
    ).eval()
    tokens = tokenizer(text_file.read_text(encoding="utf-8"), return_tensors="pt").input_ids[0]
    count = min(NUM_WINDOWS, len(tokens) // WINDOW)
    if count == 0:
        return f"the text has {len(tokens)} tokens, fewer than {WINDOW}"
    own, kept = [], []
    for index in range(count):
        window = tokens[index * WINDOW : (index + 1) * WINDOW].clone()
        window[0] = tokens[0]  # the start token, which the tokenizer puts first
        with torch.inference_mode():
            layers = model(window[None], output_attentions=True).attentions
        own.append([own_curve(torch, layer[0]) for layer in layers])
        kept.append([kept_curve(torch, layer[0]) for layer in layers])
    return {
        "kept_frac": SHARES,
        "num_windows": count,
        "own": torch.tensor(own).mean(0).tolist(),
        "kept": torch.tensor(kept).mean(0).tolist(),
    }


def own_curve(torch, weights):
    """weights [heads, queries, keys]; each query's largest weights first, over the keys that it sees."""
    half = WINDOW // 2
    mass = weights[:, half:].sort(-1, descending=True).values.cumsum(-1)
    visible = torch.arange(half + 1, WINDOW + 1)
    return [at_share(torch, mass, share, visible) for share in SHARES]


def at_share(torch, mass, share, visible):
    last = (share * visible).ceil().long().clamp(min=1) - 1
    return mass.gather(-1, last.expand(mass.shape[0], -1)[..., None]).mean().item()


def kept_curve(torch, weights):
    """weights [heads, queries, keys]; the mass on what H2O would keep: half recent, half of the largest sums so far."""
    half = WINDOW // 2
    later = weights[:, half:]
    sums = weights.cumsum(1)[:, half - 1 : -1]  # what each key has received before each query
    visible = torch.arange(half + 1, WINDOW + 1)[:, None]
    age = visible - 1 - torch.arange(WINDOW)  # of a key, negative for those that come later
    curve = []
    for share in SHARES:
        kept = (share * visible).ceil().long()
        heavy = kept // 2
        recent = (age >= 0) & (age < kept - heavy)
        order = sums.masked_fill(recent | (age < 0), -1.0).argsort(-1, descending=True)
        first = torch.arange(WINDOW) < heavy
        mass = (later * recent).sum(-1) + (later.gather(-1, order) * first).sum(-1)
        curve.append(mass.mean().item())
    return curve
