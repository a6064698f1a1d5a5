// Model: the shape of a network and its layers. Says nothing about where they are.
// Plain values; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "spillway/dtype.h"
#include "spillway/layer.h"

namespace spillway {

using TokenId = int32_t;

// Experts of a model: MLPs of which a router chooses a few for each token. Decoder layers that have
// them have no other MLP.
struct ExpertShape {
  int64_t num = 0;          // of a decoder layer; 0: the model has none
  int64_t top_k = 0;        // of a token
  int64_t ffn_size = 0;     // of one
  int64_t shared_ffn = 0;   // of one that every token has, gated by a sigmoid; 0: there is none
  bool renormalise = true;  // a token's weights add up to 1
  bool biased = false;      // the router's scores and the experts' products have biases
  std::vector<bool> dense = {};  // decoder layers with an MLP instead; empty: no layer is
  bool mxfp4 = false;            // matrices are published in MXFP4, and held so at 16 weight bits

  int64_t slots() const { return top_k + (shared_ffn > 0 ? 1 : 0); }
  bool operator==(const ExpertShape&) const = default;
};

// Contents of a config.json, in one vocabulary for all families. Only a family's own file turns the
// part marked "shape of the layers" into something that is computed.
struct ModelShape {
  std::string name;            // the folder's or the built-in shape's name
  std::string family = "opt";  // config.json's model_type
  int64_t num_layers = 0;      // decoder layers
  int64_t hidden_size = 0;
  int64_t ffn_size = 0;
  int64_t num_heads = 0;
  int64_t num_kv_heads = 0;
  int64_t head_dim = 0;
  int64_t vocab_size = 0;
  int64_t max_positions = 0;  // longest prompt + completion
  // Shape of the layers:
  int64_t position_offset = 0;  // OPT's learned positions start at row 2
  int64_t embed_size = 0;       // differs from hidden_size when embeddings are projected
  Activation activation = Activation::kRelu;
  bool pre_norm = true;
  bool final_norm = true;   // a norm before the head
  bool norm_affine = true;  // norms have weight and bias
  bool linear_bias = true;
  bool tied_head = true;
  double norm_epsilon = 1e-5;
  NormKind norm = NormKind::kLayer;
  bool gated_mlp = false;          // activation(gate) * up in place of activation(up)
  bool parallel_residual = false;  // attention and MLP read the same states, and both add to them
  bool qkv_bias = false;  // biases of models whose products do not all have one (linear_bias)
  bool out_bias = false;  // of the attention's last product
  bool mlp_bias = false;
  Rope rope = {};          // dims 0: positions are not rotary
  bool head_norm = false;  // queries and keys are normed, head by head, before they are turned
  bool joint_head_norm = false;  // all heads of them together
  bool branch_norm = false;      // what attention and MLP add to the states is normed first
  double norm_offset = 0.0;      // added to the weights of norms
  double embed_scale = 1.0;      // of the tokens' embeddings
  double score_scale = 0.0;      // of attention; 0: 1 / sqrt(head_dim)
  bool score_sinks = false;      // attention has a learned sink for each query head
  double score_cap = 0.0;        // soft caps of attention's scores and of the logits; 0: none
  double logit_cap = 0.0;
  double logit_scale = 1.0;    // of the logits, before they are capped
  int64_t window = 0;          // tokens that one sees in a windowed layer, itself included; 0: all
  std::vector<bool> windowed;  // by decoder layer; empty: no layer is
  std::optional<Rope> window_rope;  // of windowed layers, where it is another one
  std::vector<bool> unturned;       // decoder layers that know no positions; empty: none
  ExpertShape experts = {};
  // Types in memory, and token ids:
  DType dtype = DType::kF16;  // matrices, unless they are quantised
  int weight_bits = 16;       // 8, 4: all matrices but the positions' in groups of 64
  // Of 16 weight bits: types of the codes in which a checkpoint publishes the matrices of the
  // decoder layers, which are held as they are, and `dtype` of those that it has no codes for, in
  // the order of MatricesOfLayers; one type is that of all; empty: there are no codes.
  std::vector<DType> layer_codes;
  // The same of the embedding's matrix, which a tied head has too, and of a head's own.
  std::optional<DType> embedding_codes;
  std::optional<DType> head_codes;
  TokenId bos = -1;          // -1: none
  std::vector<TokenId> eos;  // any of these ends a row; may be empty
  TokenId pad = -1;
};

inline bool IsWindowed(const ModelShape& shape, int64_t decoder_layer) {
  return !shape.windowed.empty() && shape.windowed[static_cast<std::size_t>(decoder_layer)];
}

inline bool IsUnturned(const ModelShape& shape, int64_t decoder_layer) {
  return !shape.unturned.empty() && shape.unturned[static_cast<std::size_t>(decoder_layer)];
}

inline bool HasExperts(const ModelShape& shape, int64_t decoder_layer) {
  if (shape.experts.num == 0) return false;
  const std::vector<bool>& dense = shape.experts.dense;
  return dense.empty() || !dense[static_cast<std::size_t>(decoder_layer)];
}

// Type in memory of matrices that have no codes of their own; the positions' always has 16 bits.
constexpr DType MatrixDType(const ModelShape& shape) {
  if (shape.weight_bits == 16) return shape.dtype;
  return shape.weight_bits == 8 ? DType::kQ8 : DType::kQ4;
}

// Type of a matrix of decoder layers, by its place among MatricesOfLayers. Requires: there is one.
DType LayerDType(const ModelShape& shape, int64_t matrix);

// Whether codes of the checkpoint are held as they are.
inline bool HoldsPublishedCodes(const ModelShape& shape) {
  return shape.experts.mxfp4 || !shape.layer_codes.empty() || shape.embedding_codes ||
         shape.head_codes;
}

// Whether matrices have the bits that weight_bits says, rather than those of such codes.
inline bool StatesWeightBits(const ModelShape& shape, int weight_bits) {
  return weight_bits != 16 || !HoldsPublishedCodes(shape);
}

// The same model with matrices of 16 bits in the place of such codes.
inline void DropPublishedCodes(ModelShape& shape) {
  shape.experts.mxfp4 = false;
  shape.layer_codes.clear();
  shape.embedding_codes = shape.head_codes = std::nullopt;
}

// Floats of a token's row in a buffer.
int64_t WidthOf(const ModelShape& shape, Buf buf);

// Floats of a token's states, and where those of a buffer begin within them. Requires:
// IsState(buf).
int64_t StateWidth(const ModelShape& shape);
int64_t StateColumn(const ModelShape& shape, Buf buf);

// Made once, by MakeModel, and handed on.
struct Model {
  ModelShape shape;
  std::vector<LayerSpec> layers;  // execution order: the embedding, those of each block, the head

  const TensorSpec& Tensor(TensorRef ref) const {
    return layers[static_cast<std::size_t>(ref.layer)].tensors[static_cast<std::size_t>(ref.index)];
  }
};

// The layers that the shape's family makes of it. Requires: a shape that ReadModelShape,
// ShapeFromJson or BuiltInShape made.
Model MakeModel(ModelShape shape);

// The matrices of the decoder layers, those that choose experts apart and, where they are MXFP4,
// those of the experts.
std::vector<TensorRef> MatricesOfLayers(ModelShape shape);

// Windows of the decoder layers' attention (Attend::window), [decoder_layer].
std::vector<int64_t> WindowsOf(const Model& model);

int64_t NumParameters(const Model& model);
int64_t WeightBytes(const Model& model);

// A built-in shape by its name, in any case ("opt-125m"); nullopt when there is none of it.
std::optional<ModelShape> BuiltInShape(std::string_view name);
std::vector<std::string> BuiltInShapeNames();

}  // namespace spillway
