// Model: the shape of a network and the tensors it consists of. Says nothing about where they are.
// Plain values; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "spillway/dtype.h"

namespace spillway {

using TokenId = int32_t;

enum class Activation { kNone, kRelu, kGelu, kGeluTanh };

// What config.json says, in one vocabulary for all families.
struct ModelShape {
  std::string name;            // the folder's or the built-in shape's name
  std::string family = "opt";  // config.json's model_type
  int64_t num_layers = 0;      // transformer blocks
  int64_t hidden_size = 0;
  int64_t ffn_size = 0;
  int64_t num_heads = 0;
  int64_t num_kv_heads = 0;
  int64_t head_dim = 0;
  int64_t vocab_size = 0;
  int64_t max_positions = 0;    // longest prompt + completion
  int64_t position_offset = 0;  // OPT's learned positions start at row 2
  int64_t embed_size =
      0;  // word_embed_proj_dim; differs from hidden_size when there is project_in/out
  Activation activation = Activation::kRelu;
  bool pre_norm = true;     // do_layer_norm_before
  bool final_norm = true;   // a norm before the head
  bool norm_affine = true;  // norms have weight and bias
  bool linear_bias = true;
  bool tied_head = true;
  double norm_epsilon = 1e-5;
  DType dtype = DType::kF16;  // matrices as held in memory, unless they are quantised
  int weight_bits = 16;       // 8, 4: all matrices but the positions' in groups of 64
  TokenId bos = -1;           // -1: none
  std::vector<TokenId> eos;   // any of these ends a row; may be empty
  TokenId pad = -1;
};

// What the shape's matrices are held as, but for the positions', which are 16 bits always.
constexpr DType MatrixDType(const ModelShape& shape) {
  if (shape.weight_bits == 16) return shape.dtype;
  return shape.weight_bits == 8 ? DType::kQ8 : DType::kQ4;
}

enum class TensorRole {
  kTokenEmbedding,     // [vocab, embed]; also the head when tied
  kPositionEmbedding,  // [positions + offset, hidden]
  kProjectIn,          // [hidden, embed]
  kProjectOut,         // [embed, hidden]
  kNormWeight,
  kNormBias,
  kQueryWeight,  // [heads * head_dim, hidden]
  kQueryBias,
  kKeyWeight,
  kKeyBias,
  kValueWeight,
  kValueBias,
  kOutWeight,
  kOutBias,
  kUpWeight,  // fc1 [ffn, hidden]
  kUpBias,
  kDownWeight,  // fc2 [hidden, ffn]
  kDownBias,
  kHeadWeight,  // [vocab, embed], untied heads only
};

// A tensor the model needs. Matrices are [rows, cols], row-major, one row per output feature;
// vectors have cols == 1 and are held in fp32.
struct TensorSpec {
  TensorRole role;
  std::string name;  // as in a Hugging Face checkpoint, without the leading "model."
  int64_t rows = 0;
  int64_t cols = 1;
  DType dtype = DType::kF16;  // as held in memory

  bool is_vector() const { return dtype == DType::kF32; }
  int64_t row_bytes() const { return RowBytes(dtype, cols); }
  int64_t bytes() const { return rows * row_bytes(); }
  // The least that can be read or made by itself: an element, or a row of groups.
  int64_t unit_elements() const { return IsQuantised(dtype) ? cols : 1; }
  int64_t unit_bytes() const { return IsQuantised(dtype) ? row_bytes() : DTypeBytes(dtype); }
};

// The units of the schedule: attention and MLP of a block are scheduled apart.
enum class LayerKind { kEmbedding, kAttention, kMlp, kHead };

struct LayerSpec {
  LayerKind kind;
  int64_t block = -1;  // transformer block, -1 for embedding and head
  std::vector<TensorSpec> tensors;
};

// All layers in execution order: embedding, (attention, mlp) per block, head. A tied head's layer
// lists no embedding of its own: the embedding layer's tensor serves both.
std::vector<LayerSpec> Layers(const ModelShape& shape);

int64_t NumParameters(const std::vector<LayerSpec>& layers);
int64_t WeightBytes(const std::vector<LayerSpec>& layers);

// Built-in shapes "opt-125m" ... "opt-175b"; nullopt when the name is none of them.
std::optional<ModelShape> BuiltInShape(std::string_view name);
std::vector<std::string> BuiltInShapeNames();

}  // namespace spillway
