#include "src/model/families/llama_keys.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "spillway/error.h"

namespace spillway {
namespace {

constexpr std::array<std::string_view, 15> kShared = {"head_dim",
                                                      "hidden_size",
                                                      "intermediate_size",
                                                      "is_llama_config",
                                                      "rope_parameters",
                                                      "max_position_embeddings",
                                                      "num_hidden_layers",
                                                      "rms_norm_eps",
                                                      "num_attention_heads",
                                                      "rope_scaling",
                                                      "rope_theta",
                                                      "num_key_value_heads",
                                                      "tie_word_embeddings",
                                                      "partial_rotary_factor",
                                                      "original_max_position_embeddings"};

// A window of 1 would leave a token nothing but itself.
constexpr IntegerRange kWindowRange = {2, kPositionRange.high};

void ReadHeads(const JsonNode& config, const LlamaDefaults& defaults, ModelShape& shape) {
  shape.num_heads = config.Member("num_attention_heads").Integer(kHeadRange);
  shape.num_kv_heads =
      config.Integer("num_key_value_heads", kHeadRange,
                     defaults.num_kv_heads > 0 ? defaults.num_kv_heads : shape.num_heads);
  if (config.FindSet("head_dim") || defaults.head_dim != 0) {
    shape.head_dim = config.Integer("head_dim", kHeadRange, defaults.head_dim);
  } else {
    shape.head_dim = EvenHeadDim(config, {"hidden_size", "num_attention_heads"}, shape);
  }
  if (shape.num_heads % shape.num_kv_heads != 0) {
    config.Refuse("\"num_attention_heads\" is not a multiple of \"num_key_value_heads\"");
  }
  if (shape.head_dim % 2 != 0) config.Refuse("\"head_dim\" is odd, and its halves are turned");
}

// Those of one type of layers; the usual ones where only the other type has some.
nlohmann::json RopeParametersOf(const JsonNode& parameters, std::string_view layer_type) {
  if (const std::optional<JsonNode> of_type = parameters.FindSet(layer_type))
    return of_type->value();
  for (const char* other : {"full_attention", "sliding_attention"}) {
    if (parameters.FindSet(other)) return {{"rope_type", "default"}};
  }
  return parameters.Member(layer_type).value();  // refused
}

// Rotary keys of one type of layers. `older` are those that transformers wrote before 5; an older
// scaling beside them counts for each key that it has.
Rope ReadRopeOf(const JsonNode& config, const char* layer_type, nlohmann::json older,
                int64_t dims) {
  nlohmann::json keys = config.value();
  for (const char* key : {"rope_parameters", "rope_scaling", "rope_theta"}) keys.erase(key);
  if (const std::optional<JsonNode> parameters = config.FindSet("rope_parameters")) {
    keys["rope_parameters"] = RopeParametersOf(*parameters, layer_type);
    keys.erase("original_max_position_embeddings");  // transformers reads that of the type alone
    if (older.contains("rope_scaling") && older["rope_scaling"].is_object() &&
        keys["rope_parameters"].is_object()) {
      keys["rope_parameters"].update(older["rope_scaling"]);
      older.erase("rope_scaling");
    }
  }
  keys.update(older);
  return ReadRope(JsonNode(keys, config.origin()), dims);
}

nlohmann::json ValueOr(const JsonNode& config, std::string_view key, double fallback) {
  const std::optional<JsonNode> found = config.FindSet(key);
  return found ? found->value() : nlohmann::json(fallback);
}

}  // namespace

ModelShape ReadLlamaKeys(const JsonNode& config, const LlamaDefaults& defaults,
                         std::vector<std::string_view> own) {
  own.insert(own.end(), kShared.begin(), kShared.end());
  own.push_back(defaults.activation_key);
  RefuseOtherKeys(config, own);
  ModelShape shape = LlamaBlock(config.Member("vocab_size").Integer(kVocabRange), 0, 0.0);
  shape.num_layers = config.Member("num_hidden_layers").Integer(kLayerRange);
  shape.hidden_size = shape.embed_size = config.Member("hidden_size").Integer(kSizeRange);
  shape.ffn_size = config.Member("intermediate_size").Integer(kFfnRange);
  ReadHeads(config, defaults, shape);
  shape.max_positions =
      config.Integer("max_position_embeddings", kPositionRange, defaults.max_positions);
  shape.activation = ReadActivation(config, defaults.activation_key, defaults.activation);
  shape.norm_epsilon = ReadEpsilon(config, "rms_norm_eps", defaults.norm_epsilon);
  shape.tied_head = config.Boolean("tie_word_embeddings", defaults.tied_head);
  if (!defaults.own_rope)
    SetRope(ReadRope(config, shape.head_dim, {.usual_theta = defaults.theta}), shape);
  return shape;
}

std::vector<bool> ReadLayerTypes(const JsonNode& config, int64_t num_layers) {
  std::vector<bool> windowed;
  const std::optional<JsonNode> types = config.FindSet("layer_types");
  if (!types) return windowed;
  for (const JsonNode& item : types->Items()) {
    const std::string type = item.Text();
    windowed.push_back(type == "sliding_attention");
    if (windowed.back() || type == "full_attention") continue;
    config.Refuse(ErrorCode::kModelUnsupported,
                  fmt::format("\"layer_types\" has \"{}\", supported are full_attention and "
                              "sliding_attention",
                              Printable(type, 40)),
                  "choose another model");
  }
  if (std::ssize(windowed) == num_layers) return windowed;
  config.Refuse(
      fmt::format("\"layer_types\" has {} entries for {} layers", windowed.size(), num_layers));
}

void ReadRopesOfTypes(const JsonNode& config, const RopesOfTypes& of, ModelShape& shape) {
  nlohmann::json full = {{"rope_theta", ValueOr(config, "rope_theta", of.theta)}};
  if (const std::optional<JsonNode> scaling = config.FindSet("rope_scaling"))
    full["rope_scaling"] = scaling->value();
  SetRope(ReadRopeOf(config, "full_attention", std::move(full), shape.head_dim), shape);
  shape.window_rope =
      ReadRopeOf(config, "sliding_attention",
                 {{"rope_theta", ValueOr(config, of.window_key, of.window_theta)}}, shape.head_dim);
}

int64_t ReadWindow(const JsonNode& config, int64_t fallback) {
  const auto& members = config.value();
  const auto found = members.find("sliding_window");
  if (found == members.end()) return fallback;
  return found->is_null() ? 0 : config.Member("sliding_window").Integer(kWindowRange);
}

std::vector<bool> AllButEach(int64_t period, int64_t num_layers) {
  std::vector<bool> windowed;
  for (int64_t layer = 1; layer <= num_layers; ++layer) windowed.push_back(layer % period != 0);
  return windowed;
}

void SetWindows(const JsonNode& config, int64_t window, std::vector<bool> windowed,
                ModelShape& shape) {
  if (std::ranges::find(windowed, true) == windowed.end()) return;
  if (window == 0) config.Refuse("has sliding layers, but no \"sliding_window\"");
  shape.window = window < shape.max_positions ? window : 0;
  shape.windowed = std::move(windowed);
}

ModelShape WithLlamaSize(ModelShape shape, const LlamaSize& of) {
  shape = WithSize(std::move(shape), of.size);
  shape.num_kv_heads = of.num_kv_heads;
  shape.ffn_size = of.ffn_size;
  shape.tied_head = of.tied_head;
  if (of.head_dim != 0) shape.head_dim = of.head_dim;
  shape.rope.dims = shape.head_dim;
  return shape;
}

ModelShape LlamaBlock(int64_t vocab_size, int64_t max_positions, double theta) {
  ModelShape shape;
  shape.vocab_size = vocab_size;
  shape.max_positions = max_positions;
  shape.activation = Activation::kSilu;
  shape.norm = NormKind::kRms;
  shape.norm_epsilon = 1e-6;
  shape.linear_bias = false;
  shape.gated_mlp = true;
  shape.tied_head = false;
  shape.rope.theta = theta;
  return shape;
}

}  // namespace spillway
