#include "src/model/family.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "spillway/error.h"
#include "src/base/suggestion.h"

namespace spillway {
namespace {

// Bookkeeping, training, tokens, and how transformers runs a model.
constexpr std::array<std::string_view, 29> kHarmless = {"_attn_implementation_autoset",
                                                        "_name_or_path",
                                                        "architectures",
                                                        "attention_dropout",
                                                        "auto_map",   // the caller has judged it
                                                        "is_causal",  // as this
                                                        "bos_token_id",
                                                        "chunk_size_feed_forward",
                                                        "dtype",
                                                        "eos_token_id",
                                                        "hidden_dropout",
                                                        "initializer_range",
                                                        "is_decoder",
                                                        "model_type",
                                                        "output_attentions",
                                                        "output_hidden_states",
                                                        "pad_token_id",
                                                        "pretraining_tp",
                                                        "problem_type",
                                                        "quantization_config",  // likewise
                                                        "return_dict",
                                                        "tokenizer_class",
                                                        "torch_dtype",
                                                        "transformers_version",
                                                        "transformers.js_config",
                                                        "unsloth_fixed",
                                                        "unsloth_version",
                                                        "use_cache",
                                                        "vocab_size"};
// Keys of all models before transformers 5: of generation, which requests say here, of
// classifiers, and of what other frameworks do.
constexpr std::array<std::string_view, 42> kGeneral = {"_attn_implementation",
                                                       "attn_implementation",
                                                       "bad_words_ids",
                                                       "begin_suppress_tokens",
                                                       "decoder_start_token_id",
                                                       "diversity_penalty",
                                                       "do_sample",
                                                       "early_stopping",
                                                       "encoder_no_repeat_ngram_size",
                                                       "exponential_decay_length_penalty",
                                                       "finetuning_task",
                                                       "forced_bos_token_id",
                                                       "forced_eos_token_id",
                                                       "id2label",
                                                       "label2id",
                                                       "length_penalty",
                                                       "max_length",
                                                       "min_length",
                                                       "neftune_noise_alpha",
                                                       "no_repeat_ngram_size",
                                                       "num_beam_groups",
                                                       "num_beams",
                                                       "num_return_sequences",
                                                       "output_scores",
                                                       "prefix",
                                                       "pruned_heads",
                                                       "remove_invalid_values",
                                                       "repetition_penalty",
                                                       "return_dict_in_generate",
                                                       "sep_token_id",
                                                       "suppress_tokens",
                                                       "task_specific_params",
                                                       "temperature",
                                                       "tf_legacy_loss",
                                                       "top_k",
                                                       "top_p",
                                                       "torchscript",
                                                       "typical_p",
                                                       "use_bfloat16",
                                                       "_flash_attn_2_enabled",
                                                       "perceiver_config",
                                                       "pixel_shuffle_factor"};

}  // namespace

std::string FamiliesLike(std::string_view model_type) {
  constexpr std::size_t kMost = 6;
  std::vector<std::string> names;
  for (const Family* family : Families()) names.emplace_back(family->model_type);
  return fmt::format("{}", fmt::join(NearestWords(model_type, std::move(names), kMost), ", "));
}

Activation ReadActivation(const JsonNode& config, std::string_view key, std::string_view fallback) {
  constexpr std::array<std::pair<std::string_view, Activation>, 6> kNames = {{
      {"relu", Activation::kRelu},
      {"gelu", Activation::kGelu},
      {"gelu_new", Activation::kGeluTanh},
      {"gelu_fast", Activation::kGeluTanh},
      {"gelu_pytorch_tanh", Activation::kGeluTanh},
      {"silu", Activation::kSilu},
  }};
  const std::string found = config.Text(key, fallback);
  for (const auto& [name, activation] : kNames) {
    if (name == found) return activation;
  }
  config.Refuse(ErrorCode::kModelUnsupported,
                fmt::format("\"{}\" is \"{}\", supported are relu, gelu, gelu_new, gelu_fast, "
                            "gelu_pytorch_tanh and silu",
                            key, Printable(found, 40)),
                "choose another model");
}

const char* TypeKey(const JsonNode& config) {
  return config.Find("dtype") ? "dtype" : "torch_dtype";
}

std::string NamedType(const JsonNode& config) {
  constexpr std::string_view kModule = "torch.";
  constexpr std::array<std::pair<std::string_view, std::string_view>, 3> kOtherNames = {
      {{"half", "float16"}, {"float", "float32"}, {"double", "float64"}}};
  std::string name = config.Text(TypeKey(config), "float16");
  if (name.starts_with(kModule)) name.erase(0, kModule.size());
  for (const auto& [other, plain] : kOtherNames) {
    if (name == other) return std::string(plain);
  }
  return name;
}

double ReadEpsilon(const JsonNode& config, std::string_view key, double fallback) {
  const std::optional<JsonNode> value = config.Find(key);
  return value ? value->Number(0.0, 1.0) : fallback;
}

void RequireSetting(const JsonNode& config, std::string_view key, bool value) {
  if (config.Boolean(key, value) == value) return;
  config.Refuse(ErrorCode::kModelUnsupported,
                fmt::format("\"{}\" is {}, and only {} is supported", key, !value, value),
                "choose another model");
}

void RefuseOtherKeys(const JsonNode& config, const std::vector<std::string_view>& known) {
  const auto among = [](const auto& keys, const std::string& key) {
    return std::ranges::find(keys, key) != keys.end();
  };
  for (const auto& [key, value] : config.value().items()) {
    if (value.is_null() || value == false) continue;
    if (among(known, key) || among(kHarmless, key) || among(kGeneral, key)) continue;
    config.Refuse(ErrorCode::kModelUnsupported,
                  fmt::format("\"{}\" is not known here, and might change what the model answers",
                              Printable(key, 40)),
                  "remove it if it does not, or choose another model");
  }
}

int64_t EvenHeadDim(const JsonNode& config, const HeadKeys& keys, const ModelShape& shape) {
  if (shape.hidden_size % shape.num_heads == 0) return shape.hidden_size / shape.num_heads;
  config.Refuse(fmt::format("\"{}\" {} is not a multiple of \"{}\" {}", keys.hidden_size,
                            shape.hidden_size, keys.num_heads, shape.num_heads));
}

ModelShape WithSize(ModelShape shape, const NamedSize& size) {
  shape.name = size.name;
  shape.num_layers = size.num_layers;
  shape.hidden_size = shape.embed_size = size.hidden_size;
  shape.ffn_size = 4 * size.hidden_size;
  shape.num_heads = shape.num_kv_heads = size.num_heads;
  shape.head_dim = size.hidden_size / size.num_heads;
  return shape;
}

}  // namespace spillway
