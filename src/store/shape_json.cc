#include "src/store/shape_json.h"

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <utility>

#include "spillway/error.h"
#include "src/base/config_reader.h"

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

[[noreturn]] void ThrowContradiction(const std::string& source, std::string_view what) {
  throw Error(ErrorCode::kModelInconsistent,
              fmt::format("{}: {}; convert the model again", Printable(source), what));
}

Activation ReadActivation(const ConfigReader& reader) {
  const std::string found = reader.Text("activation");
  for (const auto& [activation, name] : kActivations) {
    if (name == found) return activation;
  }
  ThrowContradiction(reader.source(),
                     fmt::format("\"activation\" is \"{}\", which is none", Printable(found, 40)));
}

DType ReadDType(const ConfigReader& reader) {
  const std::string found = reader.Text("dtype");
  for (const DType dtype : kDTypes) {
    if (DTypeName(dtype) == found) return dtype;
  }
  ThrowContradiction(reader.source(),
                     fmt::format("\"dtype\" is \"{}\", which is none", Printable(found, 40)));
}

int ReadWeightBits(const ConfigReader& reader) {
  if (!reader.Has("weight_bits")) return 16;
  const int64_t bits = reader.Integer("weight_bits", {1, 16});
  if (bits == 8 || bits == 4) return static_cast<int>(bits);
  ThrowContradiction(reader.source(), fmt::format("\"weight_bits\" is {}, not 8 or 4", bits));
}

double ReadEpsilon(const Json& json, const std::string& source) {
  const auto found = json.find("norm_epsilon");
  const double value = found != json.end() && found->is_number_float() ? found->get<double>() : 0.0;
  if (value > 0.0 && value < 1.0) return value;
  ThrowContradiction(source, "\"norm_epsilon\" is not a number between 0 and 1");
}

void ReadTokenIds(const ConfigReader& reader, ModelShape& shape) {
  const IntegerRange ids = {-1, shape.vocab_size - 1};
  shape.bos = static_cast<TokenId>(reader.Integer("bos", ids));
  shape.pad = static_cast<TokenId>(reader.Integer("pad", ids));
  for (const int64_t id : reader.Integers("eos", ids).value_or(std::vector<int64_t>{})) {
    shape.eos.push_back(static_cast<TokenId>(id));
  }
}

void CheckHeads(const ModelShape& shape, const std::string& source) {
  const bool fits = shape.num_heads * shape.head_dim == shape.hidden_size &&
                    shape.num_heads % shape.num_kv_heads == 0;
  if (!fits) ThrowContradiction(source, "the numbers of heads do not fit the hidden size");
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

ModelShape ShapeFromJson(const Json& json, const std::string& source) {
  const ConfigReader reader(json, source);
  ModelShape shape;
  shape.name = reader.Text("name");
  shape.family = reader.Text("family");
  // Those that Layers() knows; it takes no others.
  if (shape.family != "opt") {
    throw Error(
        ErrorCode::kModelUnsupported,
        fmt::format("{}: \"family\" is \"{}\", supported is \"opt\"; choose a model of that "
                    "family",
                    Printable(source), Printable(shape.family, 40)));
  }
  shape.num_layers = reader.Integer("num_layers", kLayers);
  shape.hidden_size = reader.Integer("hidden_size", kSizes);
  shape.ffn_size = reader.Integer("ffn_size", kSizes);
  shape.num_heads = reader.Integer("num_heads", kHeads);
  shape.num_kv_heads = reader.Integer("num_kv_heads", kHeads);
  shape.head_dim = reader.Integer("head_dim", kSizes);
  shape.vocab_size = reader.Integer("vocab_size", {1, kRows.high});
  shape.max_positions = reader.Integer("max_positions", {1, kRows.high});
  shape.position_offset = reader.Integer("position_offset", kRows);
  shape.embed_size = reader.Integer("embed_size", kSizes);
  shape.activation = ReadActivation(reader);
  shape.pre_norm = reader.Boolean("pre_norm", true);
  shape.final_norm = reader.Boolean("final_norm", true);
  shape.norm_affine = reader.Boolean("norm_affine", true);
  shape.linear_bias = reader.Boolean("linear_bias", true);
  shape.tied_head = reader.Boolean("tied_head", true);
  shape.norm_epsilon = ReadEpsilon(json, source);
  shape.dtype = ReadDType(reader);
  shape.weight_bits = ReadWeightBits(reader);
  ReadTokenIds(reader, shape);
  CheckHeads(shape, source);
  return shape;
}

}  // namespace spillway
