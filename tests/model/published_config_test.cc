// config.json of published models, as their makers wrote them, less the keys of other parts: each
// is read as the built-in shape of that name.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "src/checkpoint/model_config.h"
#include "src/store/shape_json.h"
#include "tests/temporary_folder.h"

namespace spillway {
namespace {

using nlohmann::json;

struct Published {
  const char* name;
  const char* config;
};

void PrintTo(const Published& published, std::ostream* out) { *out << published.name; }

class PublishedConfigTest : public testing::TestWithParam<Published> {};

// Shape without its name, and without types and token ids, which built-in shapes have of the
// family.
json Bare(const ModelShape& shape) {
  json written = ShapeToJson(shape);
  for (const char* key : {"name", "dtype", "bos", "eos", "pad"}) written.erase(key);
  return written;
}

TEST_P(PublishedConfigTest, IsReadAsTheBuiltInShape) {
  const TemporaryFolder folder(MemoryRoot());
  folder.Write("config.json", GetParam().config);
  EXPECT_EQ(Bare(ReadModelShape(folder.path())), Bare(*BuiltInShape(GetParam().name)));
}

constexpr const char* kMistral7B = R"({"architectures": ["MistralForCausalLM"],
  "attention_dropout": 0.0, "bos_token_id": 1, "eos_token_id": 2, "hidden_act": "silu",
  "hidden_size": 4096, "initializer_range": 0.02, "intermediate_size": 14336,
  "max_position_embeddings": 32768, "model_type": "mistral", "num_attention_heads": 32,
  "num_hidden_layers": 32, "num_key_value_heads": 8, "rms_norm_eps": 1e-05,
  "rope_theta": 1000000.0, "sliding_window": null, "tie_word_embeddings": false,
  "torch_dtype": "bfloat16", "transformers_version": "4.42.0.dev0", "use_cache": true,
  "vocab_size": 32768})";

constexpr const char* kMistralSmall = R"({"architectures": ["MistralForCausalLM"],
  "attention_dropout": 0.0, "bos_token_id": 1, "eos_token_id": 2, "head_dim": 128,
  "hidden_act": "silu", "hidden_size": 5120, "initializer_range": 0.02, "intermediate_size": 32768,
  "max_position_embeddings": 32768, "model_type": "mistral", "num_attention_heads": 32,
  "num_hidden_layers": 40, "num_key_value_heads": 8, "rms_norm_eps": 1e-05,
  "rope_theta": 100000000.0, "sliding_window": null, "tie_word_embeddings": false,
  "torch_dtype": "bfloat16", "transformers_version": "4.49.0.dev0", "use_cache": true,
  "vocab_size": 131072})";

constexpr const char* kQwen25 = R"({"architectures": ["Qwen2ForCausalLM"],
  "attention_dropout": 0.0, "bos_token_id": 151643, "eos_token_id": 151645, "hidden_act": "silu",
  "hidden_size": 3584, "initializer_range": 0.02, "intermediate_size": 18944,
  "max_position_embeddings": 32768, "max_window_layers": 28, "model_type": "qwen2",
  "num_attention_heads": 28, "num_hidden_layers": 28, "num_key_value_heads": 4,
  "rms_norm_eps": 1e-06, "rope_theta": 1000000.0, "sliding_window": 131072,
  "tie_word_embeddings": false, "torch_dtype": "bfloat16", "transformers_version": "4.43.1",
  "use_cache": true, "use_sliding_window": false, "vocab_size": 152064})";

constexpr const char* kQwen3 = R"({"architectures": ["Qwen3ForCausalLM"], "attention_bias": false,
  "attention_dropout": 0.0, "bos_token_id": 151643, "eos_token_id": 151645, "head_dim": 128,
  "hidden_act": "silu", "hidden_size": 4096, "initializer_range": 0.02, "intermediate_size": 12288,
  "max_position_embeddings": 40960, "max_window_layers": 36, "model_type": "qwen3",
  "num_attention_heads": 32, "num_hidden_layers": 36, "num_key_value_heads": 8,
  "rms_norm_eps": 1e-06, "rope_scaling": null, "rope_theta": 1000000, "sliding_window": null,
  "tie_word_embeddings": false, "torch_dtype": "bfloat16", "transformers_version": "4.51.0",
  "use_cache": true, "use_sliding_window": false, "vocab_size": 151936})";

constexpr const char* kGemma7B = R"({"architectures": ["GemmaForCausalLM"],
  "attention_bias": false, "attention_dropout": 0.0, "bos_token_id": 2, "eos_token_id": 1,
  "head_dim": 256, "hidden_act": "gelu", "hidden_activation": "gelu_pytorch_tanh",
  "hidden_size": 3072, "initializer_range": 0.02, "intermediate_size": 24576,
  "max_position_embeddings": 8192, "model_type": "gemma", "num_attention_heads": 16,
  "num_hidden_layers": 28, "num_key_value_heads": 16, "pad_token_id": 0, "rms_norm_eps": 1e-06,
  "rope_scaling": null, "rope_theta": 10000.0, "torch_dtype": "bfloat16",
  "transformers_version": "4.38.0.dev0", "use_cache": true, "vocab_size": 256000})";

constexpr const char* kGemma2 = R"({"architectures": ["Gemma2ForCausalLM"],
  "attention_bias": false, "attention_dropout": 0.0, "attn_logit_softcapping": 50.0,
  "bos_token_id": 2, "cache_implementation": "hybrid", "eos_token_id": 1,
  "final_logit_softcapping": 30.0, "head_dim": 128, "hidden_act": "gelu_pytorch_tanh",
  "hidden_activation": "gelu_pytorch_tanh", "hidden_size": 4608, "initializer_range": 0.02,
  "intermediate_size": 36864, "max_position_embeddings": 8192, "model_type": "gemma2",
  "num_attention_heads": 32, "num_hidden_layers": 46, "num_key_value_heads": 16, "pad_token_id": 0,
  "query_pre_attn_scalar": 144, "rms_norm_eps": 1e-06, "rope_theta": 10000.0,
  "sliding_window": 4096, "sliding_window_size": 4096, "torch_dtype": "bfloat16",
  "transformers_version": "4.42.0.dev0", "use_cache": true, "vocab_size": 256000,
  "_attn_implementation": "eager"})";

constexpr const char* kGemma3Small = R"({"architectures": ["Gemma3ForCausalLM"],
  "attention_bias": false, "attention_dropout": 0.0, "attn_logit_softcapping": null,
  "bos_token_id": 2, "cache_implementation": "hybrid", "eos_token_id": [1, 106],
  "final_logit_softcapping": null, "head_dim": 256, "hidden_activation": "gelu_pytorch_tanh",
  "hidden_size": 1152, "initializer_range": 0.02, "intermediate_size": 6912,
  "max_position_embeddings": 32768, "model_type": "gemma3_text", "num_attention_heads": 4,
  "num_hidden_layers": 26, "num_key_value_heads": 1, "pad_token_id": 0,
  "query_pre_attn_scalar": 256, "rms_norm_eps": 1e-06, "rope_local_base_freq": 10000,
  "rope_scaling": null, "rope_theta": 1000000, "sliding_window": 512, "sliding_window_pattern": 6,
  "torch_dtype": "bfloat16", "transformers_version": "4.50.0.dev0", "use_cache": true,
  "vocab_size": 262144})";

constexpr const char* kGemma3 = R"({"architectures": ["Gemma3ForConditionalGeneration"],
  "boi_token_index": 255999, "eoi_token_index": 256000, "eos_token_id": [1, 106],
  "image_token_index": 262144, "initializer_range": 0.02, "mm_tokens_per_image": 256,
  "model_type": "gemma3", "text_config": {"head_dim": 128, "hidden_size": 5376,
    "intermediate_size": 21504, "model_type": "gemma3_text", "num_attention_heads": 32,
    "num_hidden_layers": 62, "num_key_value_heads": 16, "query_pre_attn_scalar": 168,
    "rope_scaling": {"factor": 8.0, "rope_type": "linear"}, "sliding_window": 1024},
  "torch_dtype": "bfloat16", "transformers_version": "4.50.0.dev0",
  "vision_config": {"hidden_size": 1152, "model_type": "siglip_vision_model"}})";

constexpr const char* kMixtral = R"({"architectures": ["MixtralForCausalLM"],
  "attention_dropout": 0.0, "bos_token_id": 1, "eos_token_id": 2, "hidden_act": "silu",
  "hidden_size": 4096, "initializer_range": 0.02, "intermediate_size": 14336,
  "max_position_embeddings": 32768, "model_type": "mixtral", "num_attention_heads": 32,
  "num_experts_per_tok": 2, "num_hidden_layers": 32, "num_key_value_heads": 8,
  "num_local_experts": 8, "output_router_logits": false, "rms_norm_eps": 1e-05,
  "rope_theta": 1000000.0, "router_aux_loss_coef": 0.02, "sliding_window": null,
  "tie_word_embeddings": false, "torch_dtype": "bfloat16", "transformers_version": "4.36.0.dev0",
  "use_cache": true, "vocab_size": 32000})";

constexpr const char* kQwen3Experts = R"({"architectures": ["Qwen3MoeForCausalLM"],
  "attention_bias": false, "attention_dropout": 0.0, "bos_token_id": 151643,
  "decoder_sparse_step": 1, "eos_token_id": 151645, "head_dim": 128, "hidden_act": "silu",
  "hidden_size": 2048, "initializer_range": 0.02, "intermediate_size": 6144,
  "max_position_embeddings": 40960, "max_window_layers": 48, "mlp_only_layers": [],
  "model_type": "qwen3_moe", "moe_intermediate_size": 768, "norm_topk_prob": true,
  "num_attention_heads": 32, "num_experts": 128, "num_experts_per_tok": 8,
  "num_hidden_layers": 48, "num_key_value_heads": 4, "output_router_logits": false,
  "rms_norm_eps": 1e-06, "rope_scaling": null, "rope_theta": 1000000.0,
  "router_aux_loss_coef": 0.001, "sliding_window": null, "tie_word_embeddings": false,
  "torch_dtype": "bfloat16", "transformers_version": "4.51.0", "use_cache": true,
  "use_sliding_window": false, "vocab_size": 151936})";

INSTANTIATE_TEST_SUITE_P(
    All, PublishedConfigTest,
    testing::Values(Published{"mistral-7b", kMistral7B},
                    Published{"mistral-small-24b", kMistralSmall}, Published{"qwen2.5-7b", kQwen25},
                    Published{"qwen3-8b", kQwen3}, Published{"gemma-7b", kGemma7B},
                    Published{"gemma-2-27b", kGemma2}, Published{"gemma-3-1b", kGemma3Small},
                    Published{"gemma-3-27b", kGemma3}, Published{"mixtral-8x7b", kMixtral},
                    Published{"qwen3-30b-a3b", kQwen3Experts}));

}  // namespace
}  // namespace spillway
