"""The float32 reference: random models, their forms on disk, and greedy decoding with transformers.
Needs the PyPI packages torch, transformers, tokenizers, safetensors and numpy."""

import json

import numpy
import safetensors.torch
import torch
import transformers

from comparison import NUM_TOP

LOGIT_STD = 1.4  # top-2 gap below 0.02 in 2 to 4 % of the steps; an fp16 KV cache stays within 0.002
SCORE_STD = 0.9  # of attention scores before softmax
DTYPES = {"float16": torch.float16, "bfloat16": torch.bfloat16, "float32": torch.float32}


def opt_config(**overrides):
    """config.json's content, with the names and defaults of the published OPT checkpoints."""
    config = {
        "architectures": ["OPTForCausalLM"],
        "model_type": "opt",
        "activation_function": "relu",
        "bos_token_id": 2,
        "eos_token_id": 2,
        "pad_token_id": 1,
        "do_layer_norm_before": True,
        "enable_bias": True,
        "layer_norm_elementwise_affine": True,
        "_remove_final_layer_norm": False,
        "tie_word_embeddings": True,
        "max_position_embeddings": 336,
        "vocab_size": 384,
        "torch_dtype": "float16",
    } | overrides
    return {"word_embed_proj_dim": config["hidden_size"]} | config


def gpt2_config(**overrides):
    """config.json's content, with the names and defaults of the published GPT-2 checkpoints."""
    return {
        "architectures": ["GPT2LMHeadModel"],
        "model_type": "gpt2",
        "activation_function": "gelu_new",
        "bos_token_id": 2,
        "eos_token_id": 2,
        "layer_norm_epsilon": 1e-05,
        "n_positions": 336,
        "tie_word_embeddings": True,
        "vocab_size": 384,
        "torch_dtype": "float16",
    } | overrides


def llama_config(**overrides):
    """config.json's content, with the names of the published Llama checkpoints, as transformers wrote them before 5."""
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "attention_bias": False,
        "bos_token_id": 2,
        "eos_token_id": 2,
        "hidden_act": "silu",
        "max_position_embeddings": 336,
        "rms_norm_eps": 1e-05,
        "rope_theta": 10000.0,
        "tie_word_embeddings": False,
        "vocab_size": 384,
        "torch_dtype": "float16",
    } | overrides


def gpt_neox_config(**overrides):
    """config.json's content, with the names of the published Pythia checkpoints."""
    return {
        "architectures": ["GPTNeoXForCausalLM"],
        "model_type": "gpt_neox",
        "bos_token_id": 2,
        "eos_token_id": 2,
        "hidden_act": "gelu",
        "initializer_range": 0.02,
        "layer_norm_eps": 1e-05,
        "max_position_embeddings": 336,
        "rotary_emb_base": 10000,
        "rotary_pct": 0.25,
        "tie_word_embeddings": False,
        "use_cache": True,
        "use_parallel_residual": True,
        "vocab_size": 384,
        "torch_dtype": "float16",
    } | overrides


def phi3_config(**overrides):
    """config.json's content, with the names of the published Phi-3 checkpoints."""
    return {
        "architectures": ["Phi3ForCausalLM"],
        "model_type": "phi3",
        "attention_bias": False,
        "attention_dropout": 0.0,
        "auto_map": {"AutoConfig": "configuration_phi3.Phi3Config",
                     "AutoModelForCausalLM": "modeling_phi3.Phi3ForCausalLM"},
        "bos_token_id": 2,
        "embd_pdrop": 0.0,
        "eos_token_id": 2,
        "hidden_act": "silu",
        "initializer_range": 0.02,
        "max_position_embeddings": 336,
        "original_max_position_embeddings": 336,
        "pad_token_id": 1,
        "resid_pdrop": 0.0,
        "rms_norm_eps": 1e-05,
        "rope_scaling": None,
        "rope_theta": 10000.0,
        "sliding_window": None,
        "tie_word_embeddings": False,
        "use_cache": True,
        "vocab_size": 384,
        "torch_dtype": "float16",
    } | overrides


def _config_of(model_type, architecture, **own):
    """Maker of a config.json's content with the keys of Llama's block, but for attention_bias."""

    def make(**overrides):
        shared = llama_config(architectures=[architecture], model_type=model_type) | own
        del shared["attention_bias"]
        if "rope_parameters" in overrides:
            del shared["rope_theta"]
        return shared | overrides

    return make


GEMMA = {"bos_token_id": 2, "pad_token_id": 0, "tie_word_embeddings": True, "rms_norm_eps": 1e-6}
GEMMA_ACTIVATION = {"hidden_act": "gelu_pytorch_tanh", "hidden_activation": "gelu_pytorch_tanh"}
CONFIGS = {
    "opt": opt_config,
    "gpt2": gpt2_config,
    "llama": llama_config,
    "gpt_neox": gpt_neox_config,
    "phi3": phi3_config,
    "mistral": _config_of("mistral", "MistralForCausalLM"),
    "qwen2": _config_of("qwen2", "Qwen2ForCausalLM", rms_norm_eps=1e-6),
    "qwen3": _config_of("qwen3", "Qwen3ForCausalLM", rms_norm_eps=1e-6),
    "mixtral": _config_of("mixtral", "MixtralForCausalLM", router_aux_loss_coef=0.02, output_router_logits=False),
    "qwen2_moe": _config_of("qwen2_moe", "Qwen2MoeForCausalLM", rms_norm_eps=1e-6, router_aux_loss_coef=0.001,
                            output_router_logits=False),
    "qwen3_moe": _config_of("qwen3_moe", "Qwen3MoeForCausalLM", rms_norm_eps=1e-6, router_aux_loss_coef=0.001,
                            output_router_logits=False),
    "gpt_oss": _config_of("gpt_oss", "GptOssForCausalLM", router_aux_loss_coef=0.9, output_router_logits=False,
                          experts_per_token=4, initial_context_length=4096, swiglu_limit=7.0),
    "exaone4": _config_of("exaone4", "Exaone4ForCausalLM"),
    "glm": _config_of("glm", "GlmForCausalLM", attention_bias=True, partial_rotary_factor=0.5, pad_token_id=1),
    "glm4": _config_of("glm4", "Glm4ForCausalLM", attention_bias=False, partial_rotary_factor=0.5, pad_token_id=1),
    "seed_oss": _config_of("seed_oss", "SeedOssForCausalLM", attention_bias=True, attention_out_bias=False, mlp_bias=False,
                           pad_token_id=1, rms_norm_eps=1e-6),
    "granite": _config_of("granite", "GraniteForCausalLM", attention_bias=False, mlp_bias=False),
    "granitemoe": _config_of("granitemoe", "GraniteMoeForCausalLM", attention_bias=False, router_aux_loss_coef=0.0,
                             output_router_logits=False),
    # With the keys of layers that it does not have, as published.
    "granitemoehybrid": _config_of("granitemoehybrid", "GraniteMoeHybridForCausalLM", attention_bias=False, num_local_experts=0,
                                   num_experts_per_tok=0, init_method="mup", normalization_function="rmsnorm",
                                   router_aux_loss_coef=0.01, output_router_logits=False, mamba_chunk_size=256,
                                   mamba_conv_bias=True, mamba_d_conv=4, mamba_d_head=16, mamba_d_state=256, mamba_expand=2,
                                   mamba_n_groups=1, mamba_n_heads=8, mamba_proj_bias=False),
    "olmo2": _config_of("olmo2", "Olmo2ForCausalLM", attention_bias=False),
    "olmo3": _config_of("olmo3", "Olmo3ForCausalLM", attention_bias=False),
    "smollm3": _config_of("smollm3", "SmolLM3ForCausalLM", attention_bias=False, mlp_bias=False, rms_norm_eps=1e-6,
                          pad_token_id=1),
    "gemma": _config_of("gemma", "GemmaForCausalLM", **GEMMA, hidden_act="gelu_pytorch_tanh"),
    "gemma2": _config_of("gemma2", "Gemma2ForCausalLM", **GEMMA, **GEMMA_ACTIVATION),
    "gemma3_text": _config_of("gemma3_text", "Gemma3ForCausalLM", **GEMMA, **GEMMA_ACTIVATION),
}


def make_config(model_type, **overrides):
    return CONFIGS[model_type](**overrides)


def _final_rms(config):
    """About how large the head's input is: 1 after a norm; without one, as many branches as there are layers added up."""
    normed = not config["_remove_final_layer_norm"] or not config["do_layer_norm_before"]
    return 1.0 if normed else 2.5 * config["num_hidden_layers"] ** 0.5


def _initial_value(name, shape, config, generator):
    """One tensor, scaled by its role so that logits spread and greedy decoding wanders instead of repeating."""
    noise = torch.randn(shape, generator=generator)
    if "embed_tokens" in name or "lm_head" in name:
        return noise * LOGIT_STD / config["word_embed_proj_dim"] ** 0.5 / _final_rms(config)
    if "embed_positions" in name:
        return noise * 0.15
    if "layer_norm" in name:
        return 1 + 0.2 * noise if name.endswith("weight") else 0.1 * noise
    if name.endswith("bias"):
        return 0.1 * noise
    value = noise / shape[1] ** 0.5
    if "q_proj" in name or "k_proj" in name:
        return SCORE_STD * value
    if "fc2" in name:
        # A zero row sum: the mean of the activations would otherwise push every step towards the same token. A larger
        # branch before a pre-norm keeps a tied head from copying the last token out of the residual stream.
        return (2 if config["do_layer_norm_before"] else 1) * (value - value.mean(1, keepdim=True))
    return 1.4 * value if "fc1" in name else value


def _initial_gpt2_value(name, shape, config, generator):
    """Initial value of a tensor of GPT-2, whose matrices are transposed."""
    noise = torch.randn(shape, generator=generator)
    if "wte" in name or "lm_head" in name:
        return noise * LOGIT_STD / config["n_embd"] ** 0.5
    if "wpe" in name:
        return noise * 0.15
    if "ln_" in name:
        return 1 + 0.2 * noise if name.endswith("weight") else 0.1 * noise
    if name.endswith("bias"):
        return 0.1 * noise
    value = noise / shape[0] ** 0.5
    if "c_attn" in name:  # queries, keys and values side by side
        value[:, : 2 * config["n_embd"]] *= SCORE_STD
        return value
    if "mlp.c_proj" in name:
        return 2 * (value - value.mean(0, keepdim=True))
    return 1.4 * value if "c_fc" in name else value


def _initial_llama_value(name, shape, config, generator):
    """Initial value of a tensor of a model with Llama's names."""
    noise = torch.randn(shape, generator=generator)
    if "embed_tokens" in name or "lm_head" in name:
        return 0.8 * noise * LOGIT_STD / config["hidden_size"] ** 0.5
    if "norm" in name:
        return 1 + 0.1 * noise
    if name.endswith("bias"):
        return 0.1 * noise
    value = noise / shape[1] ** 0.5
    if "q_proj" in name or "k_proj" in name:
        return 0.7 * value
    return 1.5 * value if "down_proj" in name or "gate_proj" in name else value


def _initial_gpt_neox_value(name, shape, config, generator):
    """Initial value of a tensor of GPT-NeoX, whose queries, keys and values are interleaved by head."""
    noise = torch.randn(shape, generator=generator)
    if "embed_in" in name or "lm_head" in name or "embed_out" in name:
        return 0.9 * noise * LOGIT_STD / config["hidden_size"] ** 0.5
    if "layernorm" in name or "layer_norm" in name:
        return 1 + 0.2 * noise if name.endswith("weight") else 0.1 * noise
    if name.endswith("bias"):
        return 0.1 * noise
    value = noise / shape[1] ** 0.5
    if "query_key_value" in name:
        heads = value.view(config["num_attention_heads"], 3, -1, shape[1])
        heads[:, :2] *= SCORE_STD
        return value
    if "4h_to_h" in name:
        return 2 * (value - value.mean(1, keepdim=True))
    return 1.4 * value if "h_to_4h" in name else value


def _initial_phi3_value(name, shape, config, generator):
    """Initial value of a tensor of Phi-3: Llama's, with queries, keys and values in one, and gate and up in another."""
    value = _initial_llama_value(name, shape, config, generator)
    if "embed_tokens" in name or "lm_head" in name:
        return 0.8 * value
    if "qkv_proj" in name:
        head = config["hidden_size"] // config["num_attention_heads"]
        value[: (config["num_attention_heads"] + config["num_key_value_heads"]) * head] *= 0.7
    if "gate_up_proj" in name:
        value[: config["intermediate_size"]] *= 1.5
    return value


def _initial_gemma_value(name, shape, config, generator):
    """Initial value of a tensor of Gemma. Its states begin with large embeddings, so that what the layers add is made larger:
    a tied head would otherwise repeat the last token."""
    value = _initial_llama_value(name, shape, config, generator)
    if "embed_tokens" in name or "lm_head" in name:
        return 0.35 * value
    if name.endswith("norm.weight"):
        of_branch = "post_" in name
        return value - 1 + (1.9 if name.endswith("model.norm.weight") else 0.5 if of_branch else 0.0)
    return 2 * value if "o_proj.weight" in name or "down_proj.weight" in name else value


def _initial_olmo_value(name, shape, config, generator):
    """Initial value of a tensor of OLMo or EXAONE, whose parts add normed values to the states: embeddings are as large, and queries and
    keys, which are normed too, tell tokens apart."""
    value = _initial_llama_value(name, shape, config, generator)
    if "embed_tokens" in name:
        return 1.5 * value / value.std()
    return 1.4 * value if "q_norm" in name or "k_norm" in name else value


def _initial_expert_value(name, shape, config, generator):
    """Initial value of a tensor of a model with experts: Llama's, with those of all experts of a layer in stacks."""
    value = _initial_llama_value(name, shape, config, generator)
    if "experts." not in name:
        return value
    value *= (shape[1] / shape[2]) ** 0.5
    if "gate_up_proj" in name:
        value[:, : shape[1] // 2] *= 1.5
    return value


def _initial_gpt_oss_value(name, shape, config, generator):
    """Initial value of a tensor of gpt-oss: Llama's, with stacks of transposed matrices. Gates are large enough for some to be
    clamped, and sinks for some heads to attend to little else."""
    if name.endswith("sinks"):
        return 1 + torch.randn(shape, generator=generator)
    value = _initial_llama_value(name, shape, config, generator)
    if "gate_up_proj" in name and not name.endswith("bias"):
        value[..., ::2] *= 1.7
    return value


def _initial_hybrid_value(name, shape, config, generator):
    """Initial value of a tensor of Granite 4: Llama's, with gate and up in one."""
    value = _initial_llama_value(name.replace("output_linear", "down_proj"), shape, config, generator)
    if "input_linear" in name:
        value[: shape[0] // 2] *= 1.5
    return value


GRANITE_NAMES = {"experts.gate_up_proj": "input_linear.weight", "experts.down_proj": "output_linear.weight",
                 "router.weight": "router.layer.weight"}


def _granite_name(name):
    block, of_experts, part = name.partition("block_sparse_moe.")
    return block + of_experts + GRANITE_NAMES.get(part, part)


def split_experts(config, state):
    """The state with a matrix for each expert, as published files and transformers' own have them, but those of gpt-oss and
    Granite."""
    if config["model_type"] == "gpt_oss":
        return state
    if config["model_type"] == "granitemoe":
        return {_granite_name(name): tensor for name, tensor in state.items()}
    parts = {"mixtral": ("block_sparse_moe", "w1", "w3", "w2")}.get(config["model_type"], ("mlp", "gate_proj", "up_proj", "down_proj"))
    split = {}
    for name, tensor in state.items():
        layer, of_experts, stack = name.partition(".mlp.experts.")
        if not of_experts:
            split[name.replace(".mlp.gate.", f".{parts[0]}.gate.")] = tensor
            continue
        for expert, matrix in enumerate(tensor):
            prefix = f"{layer}.{parts[0]}.experts.{expert}"
            if stack == "down_proj":
                split[f"{prefix}.{parts[3]}.weight"] = matrix.contiguous()
                continue
            for part, rows in zip(parts[1:], matrix.chunk(2)):
                split[f"{prefix}.{part}.weight"] = rows.contiguous()
    return split


INITIAL_VALUES = {"opt": _initial_value, "gpt2": _initial_gpt2_value, "gpt_neox": _initial_gpt_neox_value, "phi3": _initial_phi3_value} | dict.fromkeys(
    ["gemma", "gemma2", "gemma3_text"], _initial_gemma_value) | dict.fromkeys(
    ["granitemoe", "mixtral", "qwen2_moe", "qwen3_moe"], _initial_expert_value) | dict.fromkeys(
    ["olmo2", "olmo3", "exaone4"], _initial_olmo_value) | {"gpt_oss": _initial_gpt_oss_value, "granitemoehybrid": _initial_hybrid_value}


# Names in published files that transformers 5 has given up in memory.
PUBLISHED_NAMES = {"gpt_neox": {"lm_head.weight": "embed_out.weight"}}


def random_state(config, seed):
    """Name -> tensor in the checkpoint's dtype, as published files name them; a tied head is not listed."""
    initial_value = INITIAL_VALUES.get(config["model_type"], _initial_llama_value)
    model = transformers.AutoModelForCausalLM.from_config(transformers.AutoConfig.for_model(**config))
    generator = torch.Generator().manual_seed(seed)
    dtype = DTYPES[config["torch_dtype"]]
    published = PUBLISHED_NAMES.get(config["model_type"], {})
    return {
        published.get(name, name): initial_value(name, parameter.shape, config, generator).to(dtype).contiguous()
        for name, parameter in model.named_parameters()
    }


def save_safetensors(folder, state):
    safetensors.torch.save_file(state, folder / "model.safetensors", metadata={"format": "pt"})


def save_sharded(folder, state, num_shards=3):
    names = sorted(state)
    weight_map = {}
    for shard in range(num_shards):
        file_name = f"model-{shard + 1:05}-of-{num_shards:05}.safetensors"
        part = {name: state[name] for name in names[shard::num_shards]}
        safetensors.torch.save_file(part, folder / file_name, metadata={"format": "pt"})
        weight_map |= dict.fromkeys(part, file_name)
    total = sum(tensor.numel() * tensor.element_size() for tensor in state.values())
    index = {"metadata": {"total_size": total}, "weight_map": dict(sorted(weight_map.items()))}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index, indent=1) + "\n")


FP4_VALUES = torch.tensor([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0])


def to_mxfp4(matrices):
    """Blocks [..., groups, 16] and scales [..., groups] of the nearest values, of matrices [..., inputs]."""
    groups = matrices.float().unflatten(-1, (-1, 32))
    exponents = torch.floor(torch.log2(groups.abs().amax(-1))) - 2
    scaled = groups / torch.exp2(exponents)[..., None]
    codes = (scaled.abs()[..., None] - FP4_VALUES).abs().argmin(-1) + 8 * (scaled < 0)
    return (codes[..., ::2] + 16 * codes[..., 1::2]).to(torch.uint8), (exponents + 127).to(torch.uint8)


def save_mxfp4(folder, state):
    """As gpt-oss is published: stacks of experts' matrices in codes, with a row for each output."""
    coded = {}
    for name, tensor in state.items():
        if not name.endswith(("gate_up_proj", "down_proj")):
            coded[name] = tensor
            continue
        coded[f"{name}_blocks"], coded[f"{name}_scales"] = to_mxfp4(tensor.transpose(1, 2).contiguous())
    save_sharded(folder, coded, 2)


def save_torch_zip(folder, state):
    """The first published form: keys without "model.", and the tied head listed as a second view of one storage."""
    old = {name.removeprefix("model."): tensor for name, tensor in state.items()}
    if "decoder.embed_tokens.weight" in old:
        old.setdefault("lm_head.weight", old["decoder.embed_tokens.weight"])
    torch.save(old, folder / "pytorch_model.bin")


def save_numpy(folder, state):
    """FlexGen's form: one .npy without extension per tensor, its own name of the last norm, the head written out."""
    arrays = {name.removeprefix("model."): tensor.numpy() for name, tensor in state.items()}
    arrays.setdefault("lm_head.weight", arrays["decoder.embed_tokens.weight"])
    for name, array in arrays.items():
        with (folder / name.replace("decoder.final_layer_norm", "decoder.layer_norm")).open("wb") as file:
            numpy.save(file, array)


SAVERS = {
    "safetensors": save_safetensors,
    "stacked": save_safetensors,  # experts as they are in memory
    "sharded": save_sharded,
    "mxfp4": save_mxfp4,
    "torch_zip": save_torch_zip,
    "numpy": save_numpy,
}


def _load_numpy(folder):
    config = transformers.OPTConfig.from_pretrained(folder)
    model = transformers.OPTForCausalLM(config)
    state = {"lm_head.weight": torch.from_numpy(numpy.load(folder / "lm_head.weight"))}
    for path in folder.glob("decoder.*"):
        name = path.name.replace("decoder.layer_norm", "decoder.final_layer_norm")
        state["model." + name] = torch.from_numpy(numpy.load(path))
    model.load_state_dict(state)
    model.tie_weights()
    return model


def load(folder):
    """The checkpoint as it lies on disk, then float32, with plain attention."""
    if (folder / "decoder.embed_tokens.weight").exists():
        model = _load_numpy(folder)
    else:
        model, info = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype="auto", output_loading_info=True)
        assert not info["missing_keys"] and not info["mismatched_keys"], info
    model.set_attn_implementation("eager")
    return model.float().eval()


class RoundingCache(transformers.DynamicCache):
    """Keys and values as an engine with a 16-bit KV cache sees them."""

    def __init__(self, dtype):
        super().__init__()
        self.dtype = dtype

    def update(self, key_states, value_states, *args, **kwargs):
        key, value = (states.to(self.dtype).float() for states in (key_states, value_states))
        return super().update(key, value, *args, **kwargs)


def round_matrices(model, dtype):
    """Matrices as an engine that holds them in `dtype` computes with them; vectors stay float32."""
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.copy_(parameter.to(dtype).float())


def hold_rope(model, length):
    """Has a row of `length` tokens, its prompt and all that it may generate, turned by the same frequencies from its
    first token to its last one, as Spillway does. transformers would choose anew at every step."""
    parameters = getattr(model.config, "rope_parameters", None) or {}
    if parameters.get("rope_type") not in ("dynamic", "longrope"):
        return
    rotary = next(module for module in model.modules() if hasattr(module, "original_inv_freq"))
    init = transformers.modeling_rope_utils.ROPE_INIT_FUNCTIONS[parameters["rope_type"]]
    rotary.inv_freq, rotary.attention_scaling = init(model.config, "cpu", seq_len=length)
    rotary.rope_type = "held"


@torch.inference_mode()
def closest_choice(model, tokens):
    """The least difference, over tokens and layers, between the scores of the last expert chosen and of the next one."""
    gaps = []

    def note(module, _, output):
        best = output[0].sort(descending=True).values
        if module.top_k < best.shape[-1]:
            gaps.append((best[:, module.top_k - 1] - best[:, module.top_k]).min().item())

    hooks = [module.register_forward_hook(note) for module in model.modules() if type(module).__name__.endswith("Router")]
    model(torch.tensor([tokens]))
    for hook in hooks:
        hook.remove()
    return min(gaps)


@torch.inference_mode()
def greedy(model, prompt, max_tokens, eos=None, cache_dtype=None):
    """One row (comparison.py). Stops after `eos`; among equal logits the lowest id wins."""
    cache = RoundingCache(cache_dtype) if cache_dtype else transformers.DynamicCache()
    hold_rope(model, len(prompt) + max_tokens)
    row = {"prompt": prompt, "tokens": [], "top": []}
    fed = prompt
    while len(row["tokens"]) < max_tokens and (not row["tokens"] or row["tokens"][-1] != eos):
        logits = model(torch.tensor([fed]), past_key_values=cache, use_cache=True, logits_to_keep=1).logits[0, -1]
        best, ids = torch.log_softmax(logits.double(), -1).sort(descending=True, stable=True)
        step = zip(ids[:NUM_TOP].tolist(), best[:NUM_TOP].tolist())
        row["top"].append([item for token, logprob in step for item in (token, round(logprob, 5))])
        fed = [row["top"][-1][0]]
        row["tokens"] += fed
    return row
