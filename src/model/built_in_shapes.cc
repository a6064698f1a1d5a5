#include <array>

#include "spillway/model.h"

namespace spillway {
namespace {

struct OptSize {
  std::string_view name;
  int64_t num_layers;
  int64_t hidden_size;
  int64_t num_heads;
};

// Table 1 of the OPT paper, with the head counts of the published checkpoints.
constexpr std::array kOptSizes = {
    OptSize{"opt-125m", 12, 768, 12},   OptSize{"opt-350m", 24, 1024, 16},
    OptSize{"opt-1.3b", 24, 2048, 32},  OptSize{"opt-2.7b", 32, 2560, 32},
    OptSize{"opt-6.7b", 32, 4096, 32},  OptSize{"opt-13b", 40, 5120, 40},
    OptSize{"opt-30b", 48, 7168, 56},   OptSize{"opt-66b", 64, 9216, 72},
    OptSize{"opt-175b", 96, 12288, 96},
};

ModelShape MakeOptShape(const OptSize& size) {
  ModelShape shape;
  shape.name = size.name;
  shape.family = "opt";
  shape.num_layers = size.num_layers;
  shape.hidden_size = size.hidden_size;
  shape.ffn_size = 4 * size.hidden_size;
  shape.num_heads = size.num_heads;
  shape.num_kv_heads = size.num_heads;
  shape.head_dim = size.hidden_size / size.num_heads;
  shape.vocab_size = 50272;
  shape.max_positions = 2048;
  shape.position_offset = 2;
  shape.embed_size = size.hidden_size;
  shape.bos = 2;
  shape.eos = {2};
  shape.pad = 1;
  // The odd one out: norms after the residual sum, and 512-wide embeddings with two projections.
  if (size.name == "opt-350m") {
    shape.embed_size = 512;
    shape.pre_norm = false;
    shape.final_norm = false;
  }
  return shape;
}

}  // namespace

std::optional<ModelShape> BuiltInShape(std::string_view name) {
  for (const OptSize& size : kOptSizes) {
    if (size.name == name) return MakeOptShape(size);
  }
  return std::nullopt;
}

std::vector<std::string> BuiltInShapeNames() {
  std::vector<std::string> names;
  for (const OptSize& size : kOptSizes) names.emplace_back(size.name);
  return names;
}

}  // namespace spillway
