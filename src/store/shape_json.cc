#include "src/store/shape_json.h"

#include <fmt/format.h>

#include <array>
#include <optional>
#include <utility>

#include "spillway/error.h"
#include "src/base/config_reader.h"
#include "src/model/family.h"

namespace spillway {
namespace {

using Json = nlohmann::json;

constexpr std::array<std::pair<Activation, std::string_view>, 5> kActivations = {{
    {Activation::kNone, "none"},
    {Activation::kRelu, "relu"},
    {Activation::kGelu, "gelu"},
    {Activation::kGeluTanh, "gelu_tanh"},
    {Activation::kSilu, "silu"},
}};

constexpr std::array kDTypes = {std::pair{DType::kF16, DTypeName(DType::kF16)},
                                std::pair{DType::kBF16, DTypeName(DType::kBF16)}};

[[noreturn]] void RefuseShape(const JsonNode& shape, std::string_view what) {
  shape.Refuse(what, "convert the model again");
}

// Every field that has a key of its own, with the range of numbers: what is written is what is
// read. Weight bits and token ids are apart, since they are not always written, or depend on
// others.
template <typename Shape, typename Visitor>
void VisitFields(Shape& shape, Visitor visit) {
  visit("name", shape.name);
  visit("family", shape.family);
  visit("num_layers", shape.num_layers, kLayerRange);
  visit("hidden_size", shape.hidden_size, kSizeRange);
  visit("ffn_size", shape.ffn_size, kFfnRange);
  visit("num_heads", shape.num_heads, kHeadRange);
  visit("num_kv_heads", shape.num_kv_heads, kHeadRange);
  visit("head_dim", shape.head_dim, kSizeRange);
  visit("vocab_size", shape.vocab_size, kVocabRange);
  visit("max_positions", shape.max_positions, kPositionRange);
  visit("position_offset", shape.position_offset, IntegerRange{0, kPositionRange.high});
  visit("embed_size", shape.embed_size, kSizeRange);
  visit("activation", shape.activation);
  visit("pre_norm", shape.pre_norm);
  visit("final_norm", shape.final_norm);
  visit("norm_affine", shape.norm_affine);
  visit("linear_bias", shape.linear_bias);
  visit("tied_head", shape.tied_head);
  visit("norm_epsilon", shape.norm_epsilon);
  visit("dtype", shape.dtype);
}

struct FieldWriter {
  Json& json;

  void operator()(const char* key, const auto& value) const { json[key] = value; }
  void operator()(const char* key, int64_t value, IntegerRange) const { json[key] = value; }
  void operator()(const char* key, DType value) const { json[key] = DTypeName(value); }
  void operator()(const char* key, Activation value) const {
    const auto* named = kActivations.begin();
    while (named->first != value) ++named;
    json[key] = named->second;
  }
};

struct FieldReader {
  const JsonNode& json;

  void operator()(const char* key, std::string& value) const { value = json.Member(key).Text(); }
  void operator()(const char* key, bool& value) const { value = json.Boolean(key, true); }
  void operator()(const char* key, int64_t& value, IntegerRange range) const {
    value = json.Member(key).Integer(range);
  }
  void operator()(const char* key, double& value) const {
    const std::optional<JsonNode> found = json.Find(key);
    const bool is_real = found && found->value().is_number_float();
    value = is_real ? found->value().get<double>() : -1.0;
    if (value >= 0.0 && value <= 1.0) return;
    RefuseShape(json, fmt::format("\"{}\" is not a number between 0 and 1", key));
  }
  void operator()(const char* key, Activation& value) const { value = NamedIn(key, kActivations); }
  void operator()(const char* key, DType& value) const { value = NamedIn(key, kDTypes); }

 private:
  template <typename Names>
  typename Names::value_type::first_type NamedIn(const char* key, const Names& names) const {
    const std::string found = json.Member(key).Text();
    for (const auto& [value, name] : names) {
      if (name == found) return value;
    }
    RefuseShape(json, fmt::format("\"{}\" is \"{}\", which is none", key, Printable(found, 40)));
  }
};

constexpr std::array<std::pair<RopeScalingKind, std::string_view>, 3> kRopeScalings = {{
    {RopeScalingKind::kNone, "none"},
    {RopeScalingKind::kLinear, "linear"},
    {RopeScalingKind::kLlama3, "llama3"},
}};

// Fields of models with rotary positions; a store of any other stays as it was before there were
// any.
Json BlockToJson(const ModelShape& shape) {
  const RopeScaling& scaling = shape.rope.scaling;
  const auto* named = kRopeScalings.begin();
  while (named->first != scaling.kind) ++named;
  return {{"rms_norm", shape.norm == NormKind::kRms},
          {"gated_mlp", shape.gated_mlp},
          {"qkv_bias", shape.qkv_bias},
          {"out_bias", shape.out_bias},
          {"mlp_bias", shape.mlp_bias},
          {"rope",
           {{"theta", shape.rope.theta},
            {"dims", shape.rope.dims},
            {"neighbours", shape.rope.pairs == RopePairs::kNeighbours},
            {"scaling", named->second},
            {"factor", scaling.factor},
            {"low_frequency", scaling.low_frequency},
            {"high_frequency", scaling.high_frequency},
            {"original_positions", scaling.original_positions}}}};
}

RopeScalingKind ReadScalingKind(const JsonNode& rope) {
  const std::string found = rope.Member("scaling").Text();
  for (const auto& [kind, name] : kRopeScalings) {
    if (name == found) return kind;
  }
  RefuseShape(rope, fmt::format("\"scaling\" is \"{}\", which is none", Printable(found, 40)));
}

void ReadBlock(const JsonNode& block, ModelShape& shape) {
  constexpr double kMost = 1e12;
  shape.norm = block.Member("rms_norm").Boolean() ? NormKind::kRms : NormKind::kLayer;
  shape.gated_mlp = block.Member("gated_mlp").Boolean();
  shape.qkv_bias = block.Member("qkv_bias").Boolean();
  shape.out_bias = block.Member("out_bias").Boolean();
  shape.mlp_bias = block.Member("mlp_bias").Boolean();
  const JsonNode rope = block.Member("rope");
  shape.rope.theta = rope.Member("theta").Number(0.0, kMost);
  shape.rope.dims = rope.Member("dims").Integer({0, shape.head_dim});
  shape.rope.pairs =
      rope.Member("neighbours").Boolean() ? RopePairs::kNeighbours : RopePairs::kHalves;
  shape.rope.scaling = {ReadScalingKind(rope), rope.Member("factor").Number(0.0, kMost),
                        rope.Member("low_frequency").Number(0.0, kMost),
                        rope.Member("high_frequency").Number(0.0, kMost),
                        rope.Member("original_positions").Integer({0, kPositionRange.high})};
}

int ReadWeightBits(const JsonNode& json) {
  const std::optional<JsonNode> found = json.Find("weight_bits");
  if (!found) return 16;
  const int64_t bits = found->Integer({1, 16});
  if (bits == 8 || bits == 4) return static_cast<int>(bits);
  RefuseShape(json, fmt::format("\"weight_bits\" is {}, not 8 or 4", bits));
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
  const bool even = shape.num_heads * shape.head_dim == shape.hidden_size;
  const bool fits = (even || shape.rope.dims > 0) && shape.num_heads % shape.num_kv_heads == 0;
  if (!fits) RefuseShape(json, "the numbers of heads do not fit the hidden size");
}

}  // namespace

Json ShapeToJson(const ModelShape& shape) {
  Json json = {{"bos", shape.bos}, {"eos", shape.eos}, {"pad", shape.pad}};
  VisitFields(shape, FieldWriter{json});
  if (shape.rope.dims > 0) json["block"] = BlockToJson(shape);
  // A store that is not quantised stays what it was before there were any.
  if (shape.weight_bits != 16) json["weight_bits"] = shape.weight_bits;
  return json;
}

ModelShape ShapeFromJson(const Json& document, const std::string& source) {
  const JsonOrigin origin = ConfigOrigin(source);
  const JsonNode json = ConfigRoot(document, origin);
  ModelShape shape;
  VisitFields(shape, FieldReader{json});
  if (FindFamily(shape.family) == nullptr) {
    json.Refuse(ErrorCode::kModelUnsupported,
                fmt::format("\"family\" is \"{}\", supported {}", Printable(shape.family, 40),
                            SupportedFamilies()),
                "choose a model of that family");
  }
  shape.weight_bits = ReadWeightBits(json);
  if (const std::optional<JsonNode> block = json.FindSet("block")) ReadBlock(*block, shape);
  ReadTokenIds(json, shape);
  CheckHeads(shape, json);
  return shape;
}

}  // namespace spillway
