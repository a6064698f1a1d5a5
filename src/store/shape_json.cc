#include "src/store/shape_json.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "spillway/error.h"
#include "src/base/config_reader.h"
#include "src/model/family.h"

namespace spillway {
namespace {

using Json = nlohmann::json;

constexpr std::array<std::pair<Activation, std::string_view>, 7> kActivations = {{
    {Activation::kNone, "none"},
    {Activation::kRelu, "relu"},
    {Activation::kGelu, "gelu"},
    {Activation::kGeluTanh, "gelu_tanh"},
    {Activation::kSilu, "silu"},
    {Activation::kClampedSwish, "clamped_swish"},
    {Activation::kClampedOffset, "clamped_offset"},
}};

constexpr std::array<std::pair<RopeScalingKind, std::string_view>, 7> kRopeScalings = {{
    {RopeScalingKind::kNone, "none"},
    {RopeScalingKind::kLinear, "linear"},
    {RopeScalingKind::kLlama3, "llama3"},
    {RopeScalingKind::kYarn, "yarn"},
    {RopeScalingKind::kDynamic, "dynamic"},
    {RopeScalingKind::kLong, "long"},
    {RopeScalingKind::kStill, "still"},
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

// Range of a real number, ends included.
struct RealRange {
  double low;
  double high;
};
constexpr RealRange kAnyReal = {0.0, 1e12};

// A switch of two values, which a file must have; true there: the second.
template <typename T>
struct TwoOf {
  T first;
  T second;
};
template <typename T>
TwoOf(T, T) -> TwoOf<T>;  // clang 14, which builds the fuzz targets, deduces no aggregates

// Value of a field that a file has only where it is another.
template <typename T>
struct Usually {
  T value;
};
template <typename T>
Usually(T) -> Usually<T>;

template <typename Names>
std::string_view NameIn(const Names& names, typename Names::value_type::first_type value) {
  return std::ranges::find(names, value, &Names::value_type::first)->second;
}

struct FieldWriter {
  Json& json;

  void operator()(const char* key, const auto& value) const { json[key] = value; }
  void operator()(const char* key, int64_t value, IntegerRange) const { json[key] = value; }
  void operator()(const char* key, DType value) const { json[key] = DTypeName(value); }
  void operator()(const char* key, Activation value) const {
    json[key] = NameIn(kActivations, value);
  }
  void operator()(const char* key, RopeScalingKind value) const {
    json[key] = NameIn(kRopeScalings, value);
  }
  void operator()(const char* key, double value, RealRange) const { json[key] = value; }
  void operator()(const char* key, const std::vector<double>& value, int64_t) const {
    json[key] = value;
  }
  template <typename T>
  void operator()(const char* key, T value, TwoOf<T> of) const {
    json[key] = value == of.second;
  }
  template <typename T>
  void operator()(const char* key, const T& value, const Usually<T>& usually) const {
    if (value != usually.value) json[key] = value;
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
  void operator()(const char* key, double& value, RealRange range) const {
    value = json.Member(key).Number(range.low, range.high);
  }
  void operator()(const char* key, std::vector<double>& value, int64_t count) const {
    for (const JsonNode& item : json.Member(key).Items())
      value.push_back(item.Number(kAnyReal.low, kAnyReal.high));
    if (std::ssize(value) == count) return;
    RefuseShape(json, fmt::format("\"{}\" has {} numbers, not {}", key, value.size(), count));
  }
  template <typename T>
  void operator()(const char* key, T& value, TwoOf<T> of) const {
    value = json.Member(key).Boolean() ? of.second : of.first;
  }
  void operator()(const char* key, bool& value, Usually<bool> usually) const {
    value = json.Boolean(key, usually.value);
  }
  void operator()(const char* key, double& value, Usually<double> usually) const {
    const std::optional<JsonNode> found = json.Find(key);
    value = found ? found->Number(kAnyReal.low, kAnyReal.high) : usually.value;
  }
  void operator()(const char* key, int64_t& value, Usually<int64_t> usually) const {
    value = json.Integer(key, {0, kPositionRange.high}, usually.value);
  }
  void operator()(const char* key, std::vector<bool>& value,
                  const Usually<std::vector<bool>>&) const {
    if (const std::optional<JsonNode> found = json.Find(key)) {
      for (const JsonNode& item : found->Items()) value.push_back(item.Boolean());
    }
  }
  void operator()(const char* key, Activation& value) const { value = NamedIn(key, kActivations); }
  void operator()(const char* key, RopeScalingKind& value) const {
    value = NamedIn(key, kRopeScalings);
  }
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

// Fields of models with rotary positions, with the range of numbers; a store of any other stays as
// it was before there were any.
template <typename Shape, typename Visitor>
void VisitBlock(Shape& shape, Visitor visit) {
  visit("rms_norm", shape.norm, TwoOf{NormKind::kLayer, NormKind::kRms});
  visit("gated_mlp", shape.gated_mlp, TwoOf{false, true});
  visit("qkv_bias", shape.qkv_bias, TwoOf{false, true});
  visit("out_bias", shape.out_bias, TwoOf{false, true});
  visit("mlp_bias", shape.mlp_bias, TwoOf{false, true});
  visit("head_norm", shape.head_norm, Usually{false});
  visit("joint_head_norm", shape.joint_head_norm, Usually{false});
  visit("branch_norm", shape.branch_norm, Usually{false});
  visit("norm_offset", shape.norm_offset, Usually{0.0});
  visit("embed_scale", shape.embed_scale, Usually{1.0});
  visit("score_scale", shape.score_scale, Usually{0.0});
  visit("score_sinks", shape.score_sinks, Usually{false});
  visit("score_cap", shape.score_cap, Usually{0.0});
  visit("logit_cap", shape.logit_cap, Usually{0.0});
  visit("logit_scale", shape.logit_scale, Usually{1.0});
  visit("window", shape.window, Usually{int64_t{0}});
  visit("windowed", shape.windowed, Usually{std::vector<bool>()});
  visit("unturned", shape.unturned, Usually{std::vector<bool>()});
  visit("parallel_residual", shape.parallel_residual, Usually{false});
}

template <typename Shape, typename Visitor>
void VisitExperts(Shape& experts, Visitor visit) {
  visit("num", experts.num, kExpertRange);
  visit("top_k", experts.top_k, IntegerRange{1, experts.num});
  visit("ffn_size", experts.ffn_size, kFfnRange);
  visit("shared_ffn", experts.shared_ffn, IntegerRange{0, kFfnRange.high});
  visit("renormalise", experts.renormalise, TwoOf{false, true});
  visit("biased", experts.biased, Usually{false});
  visit("dense", experts.dense, Usually{std::vector<bool>()});
  visit("mxfp4", experts.mxfp4, Usually{false});
}

template <typename R, typename Visitor>
void VisitRope(R& rope, int64_t head_dim, Visitor visit) {
  auto& scaling = rope.scaling;
  visit("theta", rope.theta, kAnyReal);
  visit("dims", rope.dims, IntegerRange{0, head_dim});
  visit("neighbours", rope.pairs, TwoOf{RopePairs::kHalves, RopePairs::kNeighbours});
  visit("scaling", scaling.kind);
  visit("factor", scaling.factor, kAnyReal);
  visit("low_frequency", scaling.low_frequency, kAnyReal);
  visit("high_frequency", scaling.high_frequency, kAnyReal);
  visit("original_positions", scaling.original_positions, IntegerRange{0, kPositionRange.high});
  if (scaling.kind == RopeScalingKind::kYarn || scaling.kind == RopeScalingKind::kLong)
    visit("attention_factor", scaling.attention_factor, kAnyReal);
  if (scaling.kind == RopeScalingKind::kYarn) {
    visit("fast_turns", scaling.fast_turns, kAnyReal);
    visit("slow_turns", scaling.slow_turns, kAnyReal);
    visit("whole_pairs", scaling.whole_pairs, Usually{true});
  }
  if (scaling.kind == RopeScalingKind::kLong) {
    visit("short_factors", scaling.short_factors, rope.dims / 2);
    visit("long_factors", scaling.long_factors, rope.dims / 2);
  }
}

int ReadWeightBits(const JsonNode& json) {
  const std::optional<JsonNode> found = json.Find("weight_bits");
  if (!found) return 16;
  const int64_t bits = found->Integer({1, 16});
  if (bits == 8 || bits == 4) return static_cast<int>(bits);
  RefuseShape(json, fmt::format("\"weight_bits\" is {}, not 8 or 4", bits));
}

constexpr std::array kLayerCodes = {DType::kInt8,   DType::kInt4,   DType::kFp8,    DType::kGgufQ8,
                                    DType::kGgufQ4, DType::kGgufM4, DType::kGgufK4, DType::kGgufK6};

std::string LayerCodeNames() {
  std::vector<std::string_view> names;
  for (const DType dtype : kLayerCodes) names.push_back(DTypeName(dtype));
  return fmt::format("{}", fmt::join(names, ", "));
}

DType CodesOf(const JsonNode& json, const JsonNode& node, const char* key,
              const ModelShape& shape) {
  const std::string name = node.Text();
  if (name == DTypeName(shape.dtype)) return shape.dtype;
  const auto found = std::ranges::find(kLayerCodes, name, DTypeName);
  if (found != kLayerCodes.end()) return *found;
  RefuseShape(json, fmt::format("\"{}\" has \"{}\", which is neither {} nor of {}", key,
                                Printable(name, 40), DTypeName(shape.dtype), LayerCodeNames()));
}

std::optional<DType> FindCodes(const JsonNode& json, const char* key, const ModelShape& shape) {
  const std::optional<JsonNode> found = json.Find(key);
  if (!found) return std::nullopt;
  return CodesOf(json, *found, key, shape);
}

// A name, or one for each matrix. Requires: the rest of the shape is read.
std::vector<DType> ReadLayerCodes(const JsonNode& json, const ModelShape& shape) {
  const std::optional<JsonNode> found = json.Find("layer_codes");
  if (!found) return {};
  if (found->value().is_string()) return {CodesOf(json, *found, "layer_codes", shape)};
  std::vector<DType> codes;
  for (const JsonNode& node : found->Items())
    codes.push_back(CodesOf(json, node, "layer_codes", shape));
  const auto wanted = MatricesOfLayers(shape).size();
  if (codes.size() == wanted) return codes;
  RefuseShape(json,
              fmt::format("\"layer_codes\" has {} types for {} matrices", codes.size(), wanted));
}

Json LayerCodesJson(const std::vector<DType>& codes) {
  if (codes.size() == 1) return DTypeName(codes.front());
  Json names = Json::array();
  for (const DType dtype : codes) names.push_back(DTypeName(dtype));
  return names;
}

void ReadTokenIds(const JsonNode& json, ModelShape& shape) {
  const IntegerRange ids = {-1, shape.vocab_size - 1};
  shape.bos = static_cast<TokenId>(json.Member("bos").Integer(ids));
  shape.pad = static_cast<TokenId>(json.Member("pad").Integer(ids));
  const std::optional<JsonNode> eos = json.Find("eos");
  for (const int64_t id : eos ? DistinctIntegers(*eos, ids) : std::vector<int64_t>{})
    shape.eos.push_back(static_cast<TokenId>(id));
}

void ReadExperts(const JsonNode& json, ModelShape& shape) {
  VisitExperts(shape.experts, FieldReader{json});
  if (shape.experts.num * shape.num_layers > kMostExperts)
    RefuseShape(json, fmt::format("there are more than {} in all layers", kMostExperts));
  const std::vector<bool>& dense = shape.experts.dense;
  if (dense.empty() || std::ssize(dense) == shape.num_layers) return;
  RefuseShape(json, "\"dense\" is not one value for each layer");
}

void ReadBlock(const JsonNode& block, ModelShape& shape) {
  VisitBlock(shape, FieldReader{block});
  const JsonNode rope = block.Member("rope");
  VisitRope(shape.rope, shape.head_dim, FieldReader{rope});
  if (const std::optional<JsonNode> other = block.FindSet("window_rope")) {
    VisitRope(shape.window_rope.emplace(), shape.head_dim, FieldReader{*other});
  }
  if (const std::optional<JsonNode> experts = block.FindSet("experts"))
    ReadExperts(*experts, shape);
  const auto check = [&](const char* key, const std::vector<bool>& of_layers) {
    if (of_layers.empty() || std::ssize(of_layers) == shape.num_layers) return;
    RefuseShape(block, fmt::format("\"{}\" is not one value for each layer", key));
  };
  check("windowed", shape.windowed);
  check("unturned", shape.unturned);
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
  if (shape.rope.dims > 0) {
    // Objects from the start: one that nlohmann-json 3.11.2 makes of null by [] and for which there
    // is no memory ends in a crash.
    const auto part_of = [](Json& whole, const char* key) {
      return FieldWriter{whole[key] = Json::object()};
    };
    VisitBlock(shape, part_of(json, "block"));
    Json& block = json["block"];
    VisitRope(shape.rope, shape.head_dim, part_of(block, "rope"));
    if (shape.experts.num > 0) VisitExperts(shape.experts, part_of(block, "experts"));
    if (shape.window_rope)
      VisitRope(*shape.window_rope, shape.head_dim, part_of(block, "window_rope"));
  }
  // A store that is not quantised stays what it was before there were any.
  if (shape.weight_bits != 16) json["weight_bits"] = shape.weight_bits;
  if (!shape.layer_codes.empty()) json["layer_codes"] = LayerCodesJson(shape.layer_codes);
  if (shape.embedding_codes) json["embedding_codes"] = DTypeName(*shape.embedding_codes);
  if (shape.head_codes) json["head_codes"] = DTypeName(*shape.head_codes);
  return json;
}

ModelShape ShapeFromJson(const Json& document, const std::string& source) {
  const JsonOrigin origin = ConfigOrigin(source);
  const JsonNode json = ConfigRoot(document, origin);
  ModelShape shape;
  VisitFields(shape, FieldReader{json});
  if (FindFamily(shape.family) == nullptr) {
    json.Refuse(
        ErrorCode::kModelUnsupported,
        fmt::format("\"family\" is \"{}\", which is not supported", Printable(shape.family, 40)),
        "choose another model");
  }
  shape.weight_bits = ReadWeightBits(json);
  if (const std::optional<JsonNode> block = json.FindSet("block")) ReadBlock(*block, shape);
  ReadTokenIds(json, shape);
  CheckHeads(shape, json);
  shape.layer_codes = ReadLayerCodes(json, shape);
  shape.embedding_codes = FindCodes(json, "embedding_codes", shape);
  shape.head_codes = FindCodes(json, "head_codes", shape);
  return shape;
}

}  // namespace spillway
