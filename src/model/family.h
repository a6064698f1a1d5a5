// Family: all that is known of one kind of model: what its config.json says, what its layers
// compute, which sizes are built in. One file each in src/model/families. Plain values; any thread.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "spillway/model.h"
#include "src/base/json_node.h"

namespace spillway {

class ModelBuilder;

struct Family {
  std::string_view model_type;  // as in config.json

  // Sizes and switches; token ids, dtype and name are the caller's. Throws: Error
  // kModelInconsistent, kModelUnsupported.
  ModelShape (*read)(const JsonNode& config);

  // Adds the layers in execution order. Requires: a shape of this family.
  void (*add_layers)(const ModelShape& shape, ModelBuilder& model);

  // Built-in sizes, for plans and dummy weights; family and token ids are the caller's.
  std::vector<ModelShape> (*sizes)();

  // Token ids of the built-in sizes, and where config.json has none: transformers' defaults.
  TokenId bos = -1;
  TokenId eos = -1;
  TokenId pad = -1;

  // JSON of the sizes that the text part of a larger model has where its config.json leaves them
  // out, as transformers does with those of its class; empty: none is known to have it.
  std::string_view text_defaults = {};

  // Begin of the names of classes in "auto_map" that transformers has itself by now: published
  // folders still name the code that came with them, which nobody runs. Empty: a folder with code
  // is refused.
  std::string_view code_class = {};
};

// Families by model_type.
std::span<const Family* const> Families();

// Null when there is none of that type.
const Family* FindFamily(std::string_view model_type);

// Names of the families with the most similar names, for messages: "qwen3, qwen2, ...".
std::string FamiliesLike(std::string_view model_type);

// Far above any published model, and low enough that no product of two of them leaves 64 bits.
inline constexpr IntegerRange kLayerRange = {1, 4096};
inline constexpr IntegerRange kSizeRange = {1, 1 << 20};
inline constexpr IntegerRange kFfnRange = {1, 1 << 23};
inline constexpr IntegerRange kHeadRange = {1, 1 << 16};
inline constexpr IntegerRange kExpertRange = {1, 4096};  // of a layer
inline constexpr IntegerRange kVocabRange = {1, 1 << 24};
inline constexpr IntegerRange kPositionRange = {1, 1 << 24};
// Experts of all layers together: some times those of the largest published model, and few enough
// for the tables of a plan.
inline constexpr int64_t kMostExperts = 1 << 17;

// "relu", "gelu", "gelu_new", ... under `key`. Throws: Error kModelUnsupported.
Activation ReadActivation(const JsonNode& config, std::string_view key, std::string_view fallback);

// Key under which config.json names the type of its tensors: transformers 5 writes "dtype", earlier
// ones "torch_dtype".
const char* TypeKey(const JsonNode& config);

// That type by its plain name: "float16" for "torch.float16" and "half", and where there is none.
std::string NamedType(const JsonNode& config);

// "layer_norm_eps" or the like, from 0 to 1. Throws: Error kModelInconsistent.
double ReadEpsilon(const JsonNode& config, std::string_view key, double fallback);

// A switch that changes what is computed, of which only one value is known here.
// Throws: Error kModelUnsupported: it is set to the other.
void RequireSetting(const JsonNode& config, std::string_view key, bool value);

// Refuses a key that is neither among these nor known to change no result, unless it is null or
// false. Throws: Error kModelUnsupported.
void RefuseOtherKeys(const JsonNode& config, const std::vector<std::string_view>& known);

// A family's own names of settings that others call so, and values where config.json does not
// say.
struct RopeKeys {
  std::string_view theta = "rope_theta";
  std::string_view part = "partial_rotary_factor";
  double usual_part = 1.0;  // of a head turns
  double usual_theta = 10000.0;
};

// "rope_parameters", or "rope_theta" and "rope_scaling" as transformers wrote them before 5, for
// heads of `head_dim` elements. Throws: Error kModelInconsistent, kModelUnsupported.
Rope ReadRope(const JsonNode& config, int64_t head_dim, const RopeKeys& keys = {});

// Gives the shape these rotary positions. Where config.json tells by their factor alone how long a
// row they are made for ("yarn", "dynamic"), rows may be that long.
void SetRope(const Rope& rope, ModelShape& shape);

// hidden_size / num_heads, which config.json has under these keys.
// Throws: Error kModelInconsistent: it is no whole number.
struct HeadKeys {
  std::string_view hidden_size;
  std::string_view num_heads;
};
int64_t EvenHeadDim(const JsonNode& config, const HeadKeys& keys, const ModelShape& shape);

// A built-in size, with heads of hidden_size / num_heads and an MLP four times as wide.
struct NamedSize {
  std::string_view name;
  int64_t num_layers;
  int64_t hidden_size;
  int64_t num_heads;
};
ModelShape WithSize(ModelShape shape, const NamedSize& size);

}  // namespace spillway
