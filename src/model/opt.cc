#include "src/model/opt.h"

#include <fmt/format.h>

#include <utility>

namespace spillway {
namespace {

// Collects the tensors of one layer; the switches of the shape decide which of them exist.
class LayerBuilder {
 public:
  LayerBuilder(const ModelShape& shape, LayerKind kind, int64_t block)
      : shape_(shape), layer_{kind, block, {}} {}

  void AddMatrix(TensorRole role, std::string name, int64_t rows, int64_t cols) {
    layer_.tensors.push_back({role, std::move(name), rows, cols, MatrixDType(shape_)});
  }

  // Learned positions are few, and their errors would add to every token's state.
  void AddPositions(std::string name, int64_t rows, int64_t cols) {
    layer_.tensors.push_back(
        {TensorRole::kPositionEmbedding, std::move(name), rows, cols, shape_.dtype});
  }

  void AddVector(TensorRole role, std::string name, int64_t rows) {
    layer_.tensors.push_back({role, std::move(name), rows, 1, DType::kF32});
  }

  // [rows, cols] and, where the model has biases, [rows].
  void AddLinear(TensorRole weight, TensorRole bias, const std::string& name, int64_t rows,
                 int64_t cols) {
    AddMatrix(weight, name + ".weight", rows, cols);
    if (shape_.linear_bias) AddVector(bias, name + ".bias", rows);
  }

  void AddNorm(const std::string& name) {
    if (!shape_.norm_affine) return;
    AddVector(TensorRole::kNormWeight, name + ".weight", shape_.hidden_size);
    AddVector(TensorRole::kNormBias, name + ".bias", shape_.hidden_size);
  }

  LayerSpec Take() { return std::move(layer_); }

 private:
  const ModelShape& shape_;
  LayerSpec layer_;
};

LayerSpec EmbeddingLayer(const ModelShape& shape) {
  LayerBuilder layer(shape, LayerKind::kEmbedding, -1);
  layer.AddMatrix(TensorRole::kTokenEmbedding, "decoder.embed_tokens.weight", shape.vocab_size,
                  shape.embed_size);
  layer.AddPositions("decoder.embed_positions.weight", shape.max_positions + shape.position_offset,
                     shape.hidden_size);
  if (shape.embed_size != shape.hidden_size) {
    layer.AddMatrix(TensorRole::kProjectIn, "decoder.project_in.weight", shape.hidden_size,
                    shape.embed_size);
  }
  return layer.Take();
}

LayerSpec AttentionLayer(const ModelShape& shape, int64_t block) {
  const std::string name = fmt::format("decoder.layers.{}.self_attn", block);
  const int64_t query_size = shape.num_heads * shape.head_dim;
  const int64_t kv_size = shape.num_kv_heads * shape.head_dim;
  LayerBuilder layer(shape, LayerKind::kAttention, block);
  layer.AddNorm(name + "_layer_norm");
  layer.AddLinear(TensorRole::kQueryWeight, TensorRole::kQueryBias, name + ".q_proj", query_size,
                  shape.hidden_size);
  layer.AddLinear(TensorRole::kKeyWeight, TensorRole::kKeyBias, name + ".k_proj", kv_size,
                  shape.hidden_size);
  layer.AddLinear(TensorRole::kValueWeight, TensorRole::kValueBias, name + ".v_proj", kv_size,
                  shape.hidden_size);
  layer.AddLinear(TensorRole::kOutWeight, TensorRole::kOutBias, name + ".out_proj",
                  shape.hidden_size, query_size);
  return layer.Take();
}

LayerSpec MlpLayer(const ModelShape& shape, int64_t block) {
  const std::string name = fmt::format("decoder.layers.{}", block);
  LayerBuilder layer(shape, LayerKind::kMlp, block);
  layer.AddNorm(name + ".final_layer_norm");
  layer.AddLinear(TensorRole::kUpWeight, TensorRole::kUpBias, name + ".fc1", shape.ffn_size,
                  shape.hidden_size);
  layer.AddLinear(TensorRole::kDownWeight, TensorRole::kDownBias, name + ".fc2", shape.hidden_size,
                  shape.ffn_size);
  return layer.Take();
}

// Order of computation: norm, project_out, head.
LayerSpec HeadLayer(const ModelShape& shape) {
  LayerBuilder layer(shape, LayerKind::kHead, -1);
  if (shape.final_norm) layer.AddNorm("decoder.final_layer_norm");
  if (shape.embed_size != shape.hidden_size) {
    layer.AddMatrix(TensorRole::kProjectOut, "decoder.project_out.weight", shape.embed_size,
                    shape.hidden_size);
  }
  if (!shape.tied_head) {
    layer.AddMatrix(TensorRole::kHeadWeight, "lm_head.weight", shape.vocab_size, shape.embed_size);
  }
  return layer.Take();
}

}  // namespace

std::vector<LayerSpec> OptLayers(const ModelShape& shape) {
  std::vector<LayerSpec> layers;
  layers.reserve(static_cast<std::size_t>(2 * shape.num_layers + 2));
  layers.push_back(EmbeddingLayer(shape));
  for (int64_t block = 0; block < shape.num_layers; ++block) {
    layers.push_back(AttentionLayer(shape, block));
    layers.push_back(MlpLayer(shape, block));
  }
  layers.push_back(HeadLayer(shape));
  return layers;
}

}  // namespace spillway
