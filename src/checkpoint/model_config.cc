#include "src/checkpoint/model_config.h"

#include <fmt/format.h>

#include <array>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>
#include <vector>

#include "spillway/error.h"
#include "src/base/config_reader.h"
#include "src/checkpoint/bounded_json.h"
#include "src/checkpoint/model_folder.h"
#include "src/checkpoint/numpy_folder.h"

namespace spillway {
namespace {

constexpr int64_t kMaxConfigBytes = 1 << 20;

// Far above any published model, and low enough that no product of two of them leaves 64 bits.
constexpr IntegerRange kLayerRange = {1, 4096};
constexpr IntegerRange kSizeRange = {1, 1 << 20};
constexpr IntegerRange kFfnRange = {1, 1 << 23};
constexpr IntegerRange kHeadRange = {1, 1 << 16};
constexpr IntegerRange kVocabRange = {1, 1 << 24};
constexpr IntegerRange kPositionRange = {1, 1 << 24};

// What changes the meaning of the tensors in a way that we do not know.
void RefuseUnsupported(const JsonNode& config) {
  for (const char* key : {"quantization_config", "auto_map"}) {
    if (!config.Find(key)) continue;
    throw Error(ErrorCode::kModelUnsupported,
                fmt::format("{}: has \"{}\", which is not supported ({}); use the original model",
                            Printable(config.origin().name), key,
                            std::string_view(key) == "auto_map" ? "code of its own is never run"
                                                                : "quantised by another program"));
  }
  const std::string family = config.Member("model_type").Text();
  if (family == "opt") return;
  throw Error(
      ErrorCode::kModelUnsupported,
      fmt::format(
          "{}: \"model_type\" is \"{}\", supported is \"opt\"; choose a model of that family",
          Printable(config.origin().name), Printable(family, 40)));
}

Activation ReadActivation(const JsonNode& config) {
  constexpr std::array<std::pair<std::string_view, Activation>, 5> kNames = {{
      {"relu", Activation::kRelu},
      {"gelu", Activation::kGelu},
      {"gelu_new", Activation::kGeluTanh},
      {"gelu_fast", Activation::kGeluTanh},
      {"gelu_pytorch_tanh", Activation::kGeluTanh},
  }};
  const std::string found = config.Text("activation_function", "relu");
  for (const auto& [name, activation] : kNames) {
    if (name == found) return activation;
  }
  throw Error(ErrorCode::kModelUnsupported,
              fmt::format("{}: \"activation_function\" is \"{}\", supported are relu, gelu, "
                          "gelu_new, gelu_fast and "
                          "gelu_pytorch_tanh; choose another model",
                          Printable(config.origin().name), Printable(found, 40)));
}

// transformers 5 writes "dtype", earlier ones "torch_dtype". bf16 stays bf16: fp16 does not have
// its range.
DType ReadDType(const JsonNode& config) {
  const char* key = config.Find("dtype") ? "dtype" : "torch_dtype";
  const std::string found = config.Text(key, "float16");
  if (found == "bfloat16") return DType::kBF16;
  if (found == "float16" || found == "float32" || found == "auto") return DType::kF16;
  throw Error(
      ErrorCode::kModelUnsupported,
      fmt::format(
          "{}: \"{}\" is \"{}\", supported are float16, bfloat16 and float32; convert the model",
          Printable(config.origin().name), key, Printable(found, 40)));
}

void CheckDivides(const JsonNode& config, int64_t hidden_size, int64_t num_heads) {
  if (hidden_size % num_heads == 0) return;
  config.Refuse(fmt::format("\"hidden_size\" {} is not a multiple of \"num_attention_heads\" {}",
                            hidden_size, num_heads));
}

void ReadTokenIds(const JsonNode& config, ModelShape& shape) {
  // -1 is an old spelling of "none"; OPTConfig's defaults are the other fallbacks.
  const IntegerRange ids = {-1, shape.vocab_size - 1};
  const auto fallback = [&](int64_t id) { return id < shape.vocab_size ? id : -1; };
  shape.bos = static_cast<TokenId>(config.Integer("bos_token_id", ids, fallback(2)));
  shape.pad = static_cast<TokenId>(config.Integer("pad_token_id", ids, fallback(1)));
  const std::optional<JsonNode> eos = config.Find("eos_token_id");
  for (const int64_t id : eos ? DistinctIntegers(*eos, ids) : std::vector{fallback(2)}) {
    if (id >= 0) shape.eos.push_back(static_cast<TokenId>(id));
  }
}

// Generation settings beat the model's own, as in transformers' generate().
void ReadGenerationEos(const ModelFolder& folder, ModelShape& shape) {
  constexpr auto kName = "generation_config.json";
  if (!folder.Has(kName)) return;
  const nlohmann::json document = ReadBoundedJson(folder.Open(kName), kMaxConfigBytes);
  const JsonOrigin origin = ConfigOrigin(kName);
  const auto eos = ConfigRoot(document, origin).Find("eos_token_id");
  if (!eos) return;
  shape.eos.clear();
  for (const int64_t id : DistinctIntegers(*eos, {0, shape.vocab_size - 1}))
    shape.eos.push_back(static_cast<TokenId>(id));
}

ModelShape ReadOpt(const JsonNode& config) {
  ModelShape shape;
  shape.family = "opt";
  shape.num_layers = config.Member("num_hidden_layers").Integer(kLayerRange);
  shape.hidden_size = config.Member("hidden_size").Integer(kSizeRange);
  shape.ffn_size = config.Member("ffn_dim").Integer(kFfnRange);
  shape.num_heads = config.Member("num_attention_heads").Integer(kHeadRange);
  CheckDivides(config, shape.hidden_size, shape.num_heads);
  shape.num_kv_heads = shape.num_heads;
  shape.head_dim = shape.hidden_size / shape.num_heads;
  shape.vocab_size = config.Member("vocab_size").Integer(kVocabRange);
  shape.max_positions = config.Member("max_position_embeddings").Integer(kPositionRange);
  shape.position_offset = 2;
  shape.embed_size = config.Integer("word_embed_proj_dim", kSizeRange, shape.hidden_size);
  shape.activation = ReadActivation(config);
  shape.pre_norm = config.Boolean("do_layer_norm_before", true);
  shape.final_norm = shape.pre_norm && !config.Boolean("_remove_final_layer_norm", false);
  shape.norm_affine = config.Boolean("layer_norm_elementwise_affine", true);
  shape.linear_bias = config.Boolean("enable_bias", true);
  shape.tied_head = config.Boolean("tie_word_embeddings", true);
  shape.dtype = ReadDType(config);
  ReadTokenIds(config, shape);
  return shape;
}

}  // namespace

ModelShape ReadModelShape(const std::filesystem::path& path) {
  const ModelFolder folder(path);
  constexpr auto kName = "config.json";
  if (!folder.Has(kName)) {
    if (std::optional<ModelShape> shape = NumpyFolderShape(folder)) return *shape;
    throw Error(ErrorCode::kModelMissing,
                fmt::format("{}: has no config.json; give --model a Hugging Face model folder",
                            Printable(folder.name())));
  }
  const nlohmann::json document = ReadBoundedJson(folder.Open(kName), kMaxConfigBytes);
  const JsonOrigin origin = ConfigOrigin(kName);
  const JsonNode config = ConfigRoot(document, origin);
  RefuseUnsupported(config);
  ModelShape shape = ReadOpt(config);
  shape.name = folder.name();
  ReadGenerationEos(folder, shape);
  return shape;
}

}  // namespace spillway
