#include "src/store/shape_json.h"

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <optional>
#include <utility>

#include "spillway/error.h"
#include "src/base/config_reader.h"
#include "src/model/family.h"

namespace spillway {
namespace {

using Json = nlohmann::json;

// As wide as config.json's: no product of two leaves 64 bits.
constexpr IntegerRange kLayers = {1, 4096};
constexpr IntegerRange kSizes = {1, 1 << 23};
constexpr IntegerRange kHeads = {1, 1 << 16};
constexpr IntegerRange kRows = {0, 1 << 24};

constexpr std::array<std::pair<Activation, std::string_view>, 4> kActivations = {{
    {Activation::kNone, "none"},
    {Activation::kRelu, "relu"},
    {Activation::kGelu, "gelu"},
    {Activation::kGeluTanh, "gelu_tanh"},
}};

constexpr std::array kDTypes = {DType::kF16, DType::kBF16};

[[noreturn]] void RefuseShape(const JsonNode& shape, std::string_view what) {
  shape.Refuse(what, "convert the model again");
}

Activation ReadActivation(const JsonNode& json) {
  const std::string found = json.Member("activation").Text();
  for (const auto& [activation, name] : kActivations) {
    if (name == found) return activation;
  }
  RefuseShape(json, fmt::format("\"activation\" is \"{}\", which is none", Printable(found, 40)));
}

DType ReadDType(const JsonNode& json) {
  const std::string found = json.Member("dtype").Text();
  for (const DType dtype : kDTypes) {
    if (DTypeName(dtype) == found) return dtype;
  }
  RefuseShape(json, fmt::format("\"dtype\" is \"{}\", which is none", Printable(found, 40)));
}

int ReadWeightBits(const JsonNode& json) {
  const std::optional<JsonNode> found = json.Find("weight_bits");
  if (!found) return 16;
  const int64_t bits = found->Integer({1, 16});
  if (bits == 8 || bits == 4) return static_cast<int>(bits);
  RefuseShape(json, fmt::format("\"weight_bits\" is {}, not 8 or 4", bits));
}

double ReadEpsilon(const JsonNode& json) {
  const std::optional<JsonNode> found = json.Find("norm_epsilon");
  const bool is_real = found && found->value().is_number_float();
  const double value = is_real ? found->value().get<double>() : 0.0;
  if (value > 0.0 && value < 1.0) return value;
  RefuseShape(json, "\"norm_epsilon\" is not a number between 0 and 1");
}

void ReadTokenIds(const JsonNode& json, ModelShape& shape) {
  const IntegerRange ids = {-1, shape.vocab_size - 1};
  shape.bos = static_cast<TokenId>(json.Member("bos").Integer(ids));
  shape.pad = static_cast<TokenId>(json.Member("pad").Integer(ids));
  const std::optional<JsonNode> eos = json.Find("eos");
  for (const int64_t id : eos ? DistinctIntegers(*eos, ids) : std::vector<int64_t>{})
    shape.eos.push_back(static_cast<TokenId>(id));
}

void CheckHeads(const ModelShape& shape, const JsonNode& json) {
  const bool fits = shape.num_heads * shape.head_dim == shape.hidden_size &&
                    shape.num_heads % shape.num_kv_heads == 0;
  if (!fits) RefuseShape(json, "the numbers of heads do not fit the hidden size");
}

}  // namespace

Json ShapeToJson(const ModelShape& shape) {
  const auto* activation = kActivations.begin();
  while (activation->first != shape.activation) ++activation;
  Json json = {{"name", shape.name},
               {"family", shape.family},
               {"num_layers", shape.num_layers},
               {"hidden_size", shape.hidden_size},
               {"ffn_size", shape.ffn_size},
               {"num_heads", shape.num_heads},
               {"num_kv_heads", shape.num_kv_heads},
               {"head_dim", shape.head_dim},
               {"vocab_size", shape.vocab_size},
               {"max_positions", shape.max_positions},
               {"position_offset", shape.position_offset},
               {"embed_size", shape.embed_size},
               {"activation", activation->second},
               {"pre_norm", shape.pre_norm},
               {"final_norm", shape.final_norm},
               {"norm_affine", shape.norm_affine},
               {"linear_bias", shape.linear_bias},
               {"tied_head", shape.tied_head},
               {"norm_epsilon", shape.norm_epsilon},
               {"dtype", DTypeName(shape.dtype)},
               {"bos", shape.bos},
               {"eos", shape.eos},
               {"pad", shape.pad}};
  // A store that is not quantised stays what it was before there were any.
  if (shape.weight_bits != 16) json["weight_bits"] = shape.weight_bits;
  return json;
}

ModelShape ShapeFromJson(const Json& document, const std::string& source) {
  const JsonOrigin origin = ConfigOrigin(source);
  const JsonNode json = ConfigRoot(document, origin);
  ModelShape shape;
  shape.name = json.Member("name").Text();
  shape.family = json.Member("family").Text();
  if (FindFamily(shape.family) == nullptr) {
    throw Error(ErrorCode::kModelUnsupported,
                fmt::format("{}: \"family\" is \"{}\", supported {}; choose a model of that family",
                            Printable(source), Printable(shape.family, 40), SupportedFamilies()));
  }
  shape.num_layers = json.Member("num_layers").Integer(kLayers);
  shape.hidden_size = json.Member("hidden_size").Integer(kSizes);
  shape.ffn_size = json.Member("ffn_size").Integer(kSizes);
  shape.num_heads = json.Member("num_heads").Integer(kHeads);
  shape.num_kv_heads = json.Member("num_kv_heads").Integer(kHeads);
  shape.head_dim = json.Member("head_dim").Integer(kSizes);
  shape.vocab_size = json.Member("vocab_size").Integer({1, kRows.high});
  shape.max_positions = json.Member("max_positions").Integer({1, kRows.high});
  shape.position_offset = json.Member("position_offset").Integer(kRows);
  shape.embed_size = json.Member("embed_size").Integer(kSizes);
  shape.activation = ReadActivation(json);
  shape.pre_norm = json.Boolean("pre_norm", true);
  shape.final_norm = json.Boolean("final_norm", true);
  shape.norm_affine = json.Boolean("norm_affine", true);
  shape.linear_bias = json.Boolean("linear_bias", true);
  shape.tied_head = json.Boolean("tied_head", true);
  shape.norm_epsilon = ReadEpsilon(json);
  shape.dtype = ReadDType(json);
  shape.weight_bits = ReadWeightBits(json);
  ReadTokenIds(json, shape);
  CheckHeads(shape, json);
  return shape;
}

}  // namespace spillway
