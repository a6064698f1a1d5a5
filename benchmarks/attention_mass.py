"""How concentrated attention is: the share of the softmax mass on the top x % of the tokens, layer by layer. Computed with
transformers in float32 and eager mode, which returns attention weights. Used by kv_quality.py."""

SHARES = [0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.6, 0.8, 1.0]
WINDOW = 640  # tokens; queries are those of the second half
NUM_WINDOWS = 8


def measure(model_folder, text_file):
    """{"kept_frac", "own": by layer, "heavy": by layer}, shares of mass at each of kept_frac; or why there is none.

    own: each query's own top tokens, of those that it sees. heavy: one set for all queries, the tokens of the prompt that
    have received most attention from the prompt, as H2O ranks them; the mass that later queries put on the prompt is 1.
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
    own, heavy = [], []
    for index in range(count):
        window = tokens[index * WINDOW : (index + 1) * WINDOW].clone()
        window[0] = tokens[0]  # the start token, which the tokenizer puts first
        with torch.inference_mode():
            layers = model(window[None], output_attentions=True).attentions
        own.append([own_curve(torch, layer[0]) for layer in layers])
        heavy.append([heavy_curve(torch, layer[0]) for layer in layers])
    return {
        "kept_frac": SHARES,
        "num_windows": count,
        "own": torch.tensor(own).mean(0).tolist(),
        "heavy": torch.tensor(heavy).mean(0).tolist(),
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


def heavy_curve(torch, weights):
    """weights [heads, queries, keys]; the prompt's keys in the order of the prompt's column sums."""
    half = WINDOW // 2
    order = weights[:, :half, :half].sum(1).argsort(-1, descending=True)
    later = weights[:, half:, :half].sum(1).gather(-1, order)
    mass = later.cumsum(-1) / later.sum(-1, keepdim=True)
    return [mass[:, max(1, round(share * half)) - 1].mean().item() for share in SHARES]
