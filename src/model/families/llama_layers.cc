#include "src/model/families/llama_layers.h"

#include <fmt/format.h>

#include <cmath>
#include <string>

namespace spillway {
namespace {

class LlamaLayers {
 public:
  LlamaLayers(const ModelShape& shape, ModelBuilder& model) : shape_(shape), model_(model) {}

  void AddAll() {
    model_.BeginLayer(ComputePart::kEmbedding);
    const TensorRef table =
        model_.Matrix("embed_tokens.weight", shape_.vocab_size, shape_.hidden_size);
    model_.Add(Gather{table});
    for (int64_t decoder_layer = 0; decoder_layer < shape_.num_layers; ++decoder_layer) {
      const std::string name = fmt::format("layers.{}.", decoder_layer);
      model_.BeginLayer(ComputePart::kAttention, decoder_layer);
      AddAttention(name);
      model_.BeginLayer(ComputePart::kMlp, decoder_layer);
      AddMlp(name);
    }
    model_.BeginLayer(ComputePart::kHead);
    AddNorm("norm", Buf::kHidden);
    model_.AddLogits(Buf::kHidden, table);
  }

 private:
  void AddNorm(const std::string& name, Buf y) {
    const TensorRef weight = model_.Vector(name + ".weight", shape_.hidden_size);
    model_.Add(
        Norm{Buf::kHidden, y, weight, {}, shape_.norm, static_cast<float>(shape_.norm_epsilon)});
  }

  // Product with the tensors of that name, with `rows` columns of y.
  struct ProductSpec {
    std::string name;
    int64_t rows;
    bool has_bias;
  };
  Linear Product(const ProductSpec& of, Buf x, Columns y) {
    Linear linear = {x, y, model_.Matrix(of.name + ".weight", of.rows, WidthOf(shape_, x))};
    if (of.has_bias) linear.bias = model_.Vector(of.name + ".bias", of.rows);
    return linear;
  }

  void AddAttention(const std::string& layer) {
    const std::string name = layer + "self_attn.";
    const int64_t q = shape_.num_heads * shape_.head_dim;
    const int64_t kv = shape_.num_kv_heads * shape_.head_dim;
    AddNorm(layer + "input_layernorm", Buf::kNormed);
    model_.Add(Product({name + "q_proj", q, shape_.qkv_bias}, Buf::kNormed, {Buf::kQkv}));
    model_.Add(Product({name + "k_proj", kv, shape_.qkv_bias}, Buf::kNormed, {Buf::kQkv, q}));
    model_.Add(Product({name + "v_proj", kv, shape_.qkv_bias}, Buf::kNormed, {Buf::kQkv, q + kv}));
    model_.Add(Rotate{{Buf::kQkv}, shape_.num_heads + shape_.num_kv_heads, shape_.rope});
    model_.Add(Attend{.scale = 1.0F / std::sqrt(static_cast<float>(shape_.head_dim))});
    AddToStates({name + "o_proj", shape_.hidden_size, shape_.out_bias}, Buf::kAttended);
  }

  void AddMlp(const std::string& layer) {
    const std::string name = layer + "mlp.";
    AddNorm(layer + "post_attention_layernorm", Buf::kNormed);
    Linear gate =
        Product({name + "gate_proj", shape_.ffn_size, shape_.mlp_bias}, Buf::kNormed, {Buf::kGate});
    gate.activation = shape_.activation;
    model_.Add(gate);
    Linear up =
        Product({name + "up_proj", shape_.ffn_size, shape_.mlp_bias}, Buf::kNormed, {Buf::kInner});
    up.times = Buf::kGate;
    model_.Add(up);
    AddToStates({name + "down_proj", shape_.hidden_size, shape_.mlp_bias}, Buf::kInner);
  }

  void AddToStates(const ProductSpec& of, Buf x) {
    Linear product = Product(of, x, {Buf::kHidden});
    product.plus = Buf::kHidden;
    model_.Add(product);
  }

  const ModelShape& shape_;
  ModelBuilder& model_;
};

}  // namespace

void AddLlamaLayers(const ModelShape& shape, ModelBuilder& model) {
  LlamaLayers(shape, model).AddAll();
}

}  // namespace spillway
