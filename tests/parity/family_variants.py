"""Small models of the families that share Llama's block, for make_golden.py: name -> (form on disk, seed, config). Each
family has grouped queries, another form of its own, and windows shorter than the prompts where it has windows; keys are
written as transformers 5 writes them in some, as earlier versions did in others."""

SMALL = {"hidden_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 96, "num_hidden_layers": 2}
WIDE = {"hidden_size": 48, "num_attention_heads": 2, "num_key_value_heads": 1, "intermediate_size": 80, "num_hidden_layers": 2}
FOURS = {"hidden_size": 64, "num_attention_heads": 8, "num_key_value_heads": 2, "head_dim": 16, "intermediate_size": 96,
         "num_hidden_layers": 2}
FULL = "full_attention"
SLIDING = "sliding_attention"
DEFAULT_ROPE = {"rope_type": "default", "rope_theta": 10000.0}
# Experts of Qwen: more than the layers that they are dealt to, in no multiple of them.
EXPERTS = {"num_experts": 11, "num_experts_per_tok": 3, "moe_intermediate_size": 32, "decoder_sparse_step": 1}

FAMILY_VARIANTS = {
    # Version 0.1: every layer has a window.
    "mistral-windowed": ("safetensors", 21, SMALL | {"model_type": "mistral", "sliding_window": 12}),
    # As Nemo: heads that are narrower together than the hidden states.
    "mistral-narrow-heads": ("sharded", 22, WIDE | {
        "model_type": "mistral", "head_dim": 16, "sliding_window": None, "rope_theta": 1000000.0, "torch_dtype": "bfloat16"}),
    # A window that no row is longer than.
    "mistral-wide-window": ("safetensors", 23, SMALL | {
        "model_type": "mistral", "sliding_window": 4096, "tie_word_embeddings": True, "rope_scaling": {
            "rope_type": "linear", "factor": 4.0}}),
    "qwen2-grouped-tied": ("safetensors", 24, SMALL | {
        "model_type": "qwen2", "tie_word_embeddings": True, "rope_theta": 1000000.0, "sliding_window": 131072,
        "max_window_layers": 1, "use_sliding_window": False, "torch_dtype": "bfloat16"}),
    "qwen2-windowed": ("sharded", 55, SMALL | {
        "model_type": "qwen2", "num_hidden_layers": 3, "use_sliding_window": True, "sliding_window": 9,
        "max_window_layers": 1}),
    "qwen2-scaled": ("safetensors", 26, WIDE | {
        "model_type": "qwen2", "layer_types": [FULL, FULL], "rope_parameters": {
            "rope_type": "llama3", "rope_theta": 10000.0, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
            "original_max_position_embeddings": 64}}),
    "qwen3-grouped-tied": ("safetensors", 47, SMALL | {
        "model_type": "qwen3", "head_dim": 32, "tie_word_embeddings": True, "rope_theta": 1000000.0,
        "torch_dtype": "bfloat16"}),
    "qwen3-biased": ("sharded", 28, WIDE | {
        "model_type": "qwen3", "head_dim": 40, "attention_bias": True, "rope_parameters": {
            "rope_type": "linear", "factor": 2.0, "rope_theta": 10000.0}}),
    "qwen3-windowed": ("safetensors", 71, SMALL | {
        "model_type": "qwen3", "head_dim": 24, "num_hidden_layers": 3, "use_sliding_window": True, "sliding_window": 20,
        "layer_types": [SLIDING, FULL, SLIDING]}),
    # As 2B: one head of keys. "gelu" is written for the tanh form.
    "gemma-one-key-head": ("safetensors", 30, WIDE | {
        "model_type": "gemma", "head_dim": 32, "hidden_act": "gelu", "torch_dtype": "bfloat16"}),
    "gemma-biased-untied": ("sharded", 31, SMALL | {
        "model_type": "gemma", "head_dim": 24, "attention_bias": True, "tie_word_embeddings": False}),
    "gemma-scaled": ("safetensors", 32, WIDE | {
        "model_type": "gemma", "head_dim": 32, "num_key_value_heads": 2, "hidden_size": 40, "rope_parameters": {
            "rope_type": "linear", "factor": 4.0, "rope_theta": 10000.0}}),
    "gemma2-windowed-capped": ("safetensors", 53, WIDE | {
        "model_type": "gemma2", "head_dim": 32, "num_hidden_layers": 3, "query_pre_attn_scalar": 24, "sliding_window": 8,
        "attn_logit_softcapping": 1.5, "final_logit_softcapping": 4.0, "torch_dtype": "bfloat16"}),
    "gemma2-full": ("sharded", 34, SMALL | {
        "model_type": "gemma2", "head_dim": 24, "query_pre_attn_scalar": 10,
        "num_hidden_layers": 3,
        "layer_types": [FULL, FULL, FULL], "rope_parameters": DEFAULT_ROPE, "attn_logit_softcapping": None,
        "final_logit_softcapping": 3.0}),
    "gemma2-capped": ("safetensors", 355, SMALL | {
        "model_type": "gemma2", "head_dim": 32, "num_hidden_layers": 3, "sliding_window": 4096,
        "attn_logit_softcapping": 2.0, "query_pre_attn_scalar": 8,
        "final_logit_softcapping": None}),
    # Two sorts of rotary positions, no window in effect.
    "gemma3-wide-window": ("safetensors", 76, WIDE | {
        "model_type": "gemma3_text", "head_dim": 32, "num_hidden_layers": 3, "query_pre_attn_scalar": 28,
        "sliding_window": 512, "layer_types": [SLIDING, FULL, SLIDING], "rope_parameters": {
            FULL: {"rope_type": "linear", "factor": 8.0, "rope_theta": 1000000.0}, SLIDING: DEFAULT_ROPE},
        "torch_dtype": "bfloat16"}),
    "gemma3-windowed": ("sharded", 37, WIDE | {
        "model_type": "gemma3_text", "head_dim": 32, "num_hidden_layers": 4, "query_pre_attn_scalar": 32,
        "sliding_window": 10, "sliding_window_pattern": 2, "rope_theta": 1000000.0, "rope_local_base_freq": 10000.0,
        "rope_scaling": {"rope_type": "linear", "factor": 8.0}}),
    "gemma3-full": ("safetensors", 158, SMALL | {
        "model_type": "gemma3_text", "head_dim": 24, "query_pre_attn_scalar": 24, "layer_types": [FULL, FULL],
        "final_logit_softcapping": 5.0, "attention_bias": True}),
    # Four query heads to each head of keys: h2o's scores are sums over them (make_kv_golden.py).
    "llama-groups-of-four": ("safetensors", 86, FOURS | {
        "model_type": "llama", "tie_word_embeddings": True, "rope_theta": 500000.0}),
    "mistral-groups-windowed": ("sharded", 82, FOURS | {
        "model_type": "mistral", "sliding_window": 40, "torch_dtype": "bfloat16"}),
    "gemma3-groups-windowed": ("safetensors", 83, WIDE | {
        "model_type": "gemma3_text", "head_dim": 32, "num_attention_heads": 4, "query_pre_attn_scalar": 32,
        "sliding_window": 24, "num_hidden_layers": 3, "layer_types": [SLIDING, SLIDING, FULL], "rope_parameters": {
            FULL: {"rope_type": "default", "rope_theta": 1000000.0}, SLIDING: DEFAULT_ROPE}}),
    "olmo2-plain": ("safetensors", 131, FOURS | {
        "model_type": "olmo2", "num_key_value_heads": 8, "rope_theta": 500000.0, "torch_dtype": "bfloat16"}),
    "olmo2-grouped-biased": ("sharded", 132, SMALL | {
        "model_type": "olmo2", "attention_bias": True, "rope_parameters": {
            "rope_type": "llama3", "rope_theta": 10000.0, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
            "original_max_position_embeddings": 64}}),
    # As published: YaRN in the layers without a window alone.
    "olmo3-windowed": ("safetensors", 153, FOURS | {
        "model_type": "olmo3", "num_hidden_layers": 3, "sliding_window": 24, "rope_theta": 500000, "torch_dtype": "bfloat16",
        "layer_types": [SLIDING, SLIDING, FULL], "rope_scaling": {
            "rope_type": "yarn", "factor": 8.0, "original_max_position_embeddings": 64, "attention_factor": 1.2079441541679836,
            "beta_fast": 32.0, "beta_slow": 1.0}}),
    "olmo3-typed": ("sharded", 134, SMALL | {
        "model_type": "olmo3", "num_hidden_layers": 3, "sliding_window": 9, "layer_types": [FULL, SLIDING, FULL],
        "rope_parameters": {FULL: {"rope_type": "linear", "factor": 2.0, "rope_theta": 20000.0}, SLIDING: DEFAULT_ROPE}}),
    # As published: the fourth layer knows no positions.
    "smollm3-plain": ("safetensors", 135, FOURS | {
        "model_type": "smollm3", "num_hidden_layers": 4, "tie_word_embeddings": True, "rope_theta": 5000000.0,
        "no_rope_layer_interval": 4, "no_rope_layers": [1, 1, 1, 0], "layer_types": [FULL] * 4, "max_window_layers": 28, "pretraining_tp": 2,
        "use_sliding_window": False, "sliding_window": None, "torch_dtype": "bfloat16"}),
    "smollm3-windowed": ("sharded", 146, SMALL | {
        "model_type": "smollm3", "num_hidden_layers": 4, "no_rope_layer_interval": 2, "use_sliding_window": True,
        "sliding_window": 20, "attention_bias": True, "mlp_bias": True}),
    # As the releases of 2024: biases, and as published, fewer KV heads than usual.
    "glm-biased": ("safetensors", 161, FOURS | {"model_type": "glm", "torch_dtype": "bfloat16"}),
    "glm4-plain": ("safetensors", 162, FOURS | {"model_type": "glm4", "torch_dtype": "bfloat16"}),
    "glm4-scaled": ("sharded", 163, SMALL | {
        "model_type": "glm4", "head_dim": 32, "attention_bias": True, "rope_parameters": {
            "rope_type": "linear", "factor": 2.0, "rope_theta": 20000.0, "partial_rotary_factor": 0.25}}),
    # As published: layers without a window know no positions.
    "exaone4-hybrid": ("safetensors", 164, FOURS | {
        "model_type": "exaone4", "num_hidden_layers": 3, "sliding_window": 24, "sliding_window_pattern": "LLLG",
        "layer_types": [SLIDING, SLIDING, FULL], "rope_theta": 1000000, "torch_dtype": "bfloat16", "rope_scaling": {
            "rope_type": "llama3", "factor": 16.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
            "original_max_position_embeddings": 64}}),
    "exaone4-full": ("sharded", 165, SMALL | {
        "model_type": "exaone4", "sliding_window": None, "layer_types": [FULL, FULL]}),
    "seedoss-plain": ("safetensors", 166, FOURS | {
        "model_type": "seed_oss", "rope_theta": 10000000.0, "residual_dropout": 0.1, "torch_dtype": "bfloat16"}),
    "granite-tied": ("safetensors", 137, FOURS | {
        "model_type": "granite", "tie_word_embeddings": True, "embedding_multiplier": 0.8, "residual_multiplier": 0.7,
        "attention_multiplier": 0.2, "logits_scaling": 0.7, "rope_theta": 10000000.0, "torch_dtype": "bfloat16"}),
    # As published, a vocabulary that is no multiple of 4.
    "granite-biased": ("sharded", 138, SMALL | {
        "model_type": "granite", "attention_bias": True, "mlp_bias": True, "vocab_size": 387, "embedding_multiplier": 12, "logits_scaling": 1.5,
        "residual_multiplier": 0.22, "attention_multiplier": 0.0625}),
    "granite4-plain": ("safetensors", 169, FOURS | {
        "model_type": "granitemoehybrid", "tie_word_embeddings": True, "embedding_multiplier": 0.8, "residual_multiplier": 0.7,
        "attention_multiplier": 0.2, "logits_scaling": 0.7, "rope_theta": 10000000.0, "torch_dtype": "bfloat16",
        "position_embedding_type": "rope", "layer_types": ["attention"] * 2, "shared_intermediate_size": 96}),
    # No layer knows positions.
    "granite4-unturned": ("sharded", 170, SMALL | {
        "model_type": "granitemoehybrid", "attention_bias": True, "embedding_multiplier": 1.5, "residual_multiplier": 0.5,
        "attention_multiplier": 0.3, "logits_scaling": 1.2, "num_hidden_layers": 3, "position_embedding_type": None,
        "layer_types": [FULL] * 3, "shared_intermediate_size": 80, "mamba_d_head": "auto"}),
}

# As published, but of a shorter context.
YARN = {"rope_type": "yarn", "factor": 32.0, "original_max_position_embeddings": 64, "beta_fast": 32.0, "beta_slow": 1.0,
        "truncate": False}

EXPERT_VARIANTS = {
    "granitemoe-plain": ("safetensors", 171, FOURS | {
        "model_type": "granitemoe", "num_local_experts": 8, "num_experts_per_tok": 4, "intermediate_size": 48,
        "tie_word_embeddings": True, "embedding_multiplier": 0.8, "residual_multiplier": 0.7, "attention_multiplier": 0.2,
        "logits_scaling": 0.7, "rope_theta": 10000000.0, "torch_dtype": "bfloat16"}),
    "granitemoe-biased": ("sharded", 174, SMALL | {
        "model_type": "granitemoe", "attention_bias": True, "num_local_experts": 5, "num_experts_per_tok": 2,
        "intermediate_size": 40, "embedding_multiplier": 1.5, "residual_multiplier": 0.5, "attention_multiplier": 0.3,
        "logits_scaling": 1.2}),
    "mixtral-plain": ("safetensors", 91, FOURS | {
        "model_type": "mixtral", "num_local_experts": 8, "num_experts_per_tok": 2, "intermediate_size": 48,
        "rope_theta": 1000000.0, "sliding_window": None, "torch_dtype": "bfloat16"}),
    "mixtral-windowed": ("sharded", 92, SMALL | {
        "model_type": "mixtral", "num_local_experts": 5, "num_experts_per_tok": 3, "intermediate_size": 40,
        "sliding_window": 12}),
    # Experts in stacks, as transformers 5 holds them; one expert a token.
    "mixtral-stacked": ("stacked", 93, WIDE | {
        "model_type": "mixtral", "num_local_experts": 4, "num_experts_per_tok": 1, "intermediate_size": 56,
        "tie_word_embeddings": True}),
    "qwen3moe-plain": ("safetensors", 94, FOURS | EXPERTS | {
        "model_type": "qwen3_moe", "norm_topk_prob": True, "max_window_layers": 2, "rope_theta": 1000000.0,
        "torch_dtype": "bfloat16"}),
    # Experts in the second and fourth layer, of which the fourth has an MLP again.
    "qwen3moe-dense-between": ("sharded", 95, SMALL | EXPERTS | {
        "model_type": "qwen3_moe", "head_dim": 24, "norm_topk_prob": False, "num_hidden_layers": 4, "decoder_sparse_step": 2,
        "mlp_only_layers": [3], "attention_bias": True}),
    "qwen3moe-stacked-windowed": ("stacked", 168, SMALL | EXPERTS | {
        "model_type": "qwen3_moe", "head_dim": 24, "norm_topk_prob": True, "use_sliding_window": True, "sliding_window": 56,
        "tie_word_embeddings": True}),
    "qwen2moe-plain": ("safetensors", 97, FOURS | EXPERTS | {
        "model_type": "qwen2_moe", "norm_topk_prob": False, "shared_expert_intermediate_size": 80,
        "torch_dtype": "bfloat16"}),
    # Windows in every other layer.
    "qwen2moe-windowed": ("sharded", 121, SMALL | EXPERTS | {
        "model_type": "qwen2_moe", "norm_topk_prob": True, "shared_expert_intermediate_size": 48, "num_hidden_layers": 3,
        "use_sliding_window": True, "sliding_window": 24, "max_window_layers": 3}),
    "qwen2moe-stacked-dense": ("stacked", 99, WIDE | EXPERTS | {
        "model_type": "qwen2_moe", "norm_topk_prob": True, "shared_expert_intermediate_size": 24, "mlp_only_layers": [0],
        "qkv_bias": False}),
    # As gpt-oss-20b: windows in every other layer, YaRN, biases, an eighth of the heads for keys.
    "gptoss-plain": ("safetensors", 105, FOURS | {
        "model_type": "gpt_oss", "num_key_value_heads": 1, "num_hidden_layers": 3, "num_local_experts": 8,
        "num_experts_per_tok": 4, "intermediate_size": 48, "sliding_window": 40, "attention_bias": True,
        "layer_types": [SLIDING, FULL, SLIDING], "rope_theta": 150000, "rope_scaling": YARN, "torch_dtype": "bfloat16"}),
    # Heads that are wider together than the hidden states, more experts than layers of them, keys of transformers 5.
    "gptoss-wide": ("sharded", 103, WIDE | {
        "model_type": "gpt_oss", "head_dim": 32, "num_local_experts": 11, "num_experts_per_tok": 2, "sliding_window": 12,
        "intermediate_size": 40, "rope_parameters": YARN | {"rope_theta": 150000.0}}),
    # As published: experts in codes of 4 bits.
    "gptoss-mxfp4": ("mxfp4", 104, SMALL | {
        "model_type": "gpt_oss", "head_dim": 32, "num_local_experts": 6, "num_experts_per_tok": 4, "sliding_window": 24,
        "attention_bias": True, "layer_types": [FULL, SLIDING], "rope_theta": 150000, "rope_scaling": YARN,
        "torch_dtype": "bfloat16", "quantization_config": {
            "quant_method": "mxfp4", "modules_to_not_convert": [
                "model.layers.*.self_attn", "model.layers.*.mlp.router", "model.embed_tokens", "lm_head"]}}),
}
