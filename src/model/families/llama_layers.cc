#include "src/model/families/llama_layers.h"

#include <fmt/format.h>

#include <cmath>
#include <string>
#include <utility>
#include <vector>

namespace spillway {
namespace {

class LlamaLayers {
 public:
  LlamaLayers(const ModelShape& shape, const LlamaNames& names, ModelBuilder& model)
      : shape_(shape), names_(names), model_(model) {}

  void AddAll() {
    model_.BeginLayer(ComputePart::kEmbedding);
    const TensorRef table =
        model_.Matrix("embed_tokens.weight", shape_.vocab_size, shape_.hidden_size);
    Gather gather = {table};
    gather.scale = static_cast<float>(shape_.embed_scale);
    model_.Add(gather);
    for (int64_t decoder_layer = 0; decoder_layer < shape_.num_layers; ++decoder_layer) {
      const std::string name = fmt::format("layers.{}.", decoder_layer);
      model_.BeginLayer(ComputePart::kAttention, decoder_layer);
      AddAttention(decoder_layer, name);
      model_.BeginLayer(ComputePart::kMlp, decoder_layer);
      if (HasExperts(shape_, decoder_layer)) {
        const Norm norm = NormOf(name + "post_attention_layernorm", Buf::kExpertIn);
        AddExpertLayers(shape_, decoder_layer, name, names_.experts, norm, model_);
      } else {
        AddMlp(name);
      }
    }
    model_.BeginLayer(ComputePart::kHead);
    model_.Add(NormOf("norm", Buf::kHidden));
    model_.AddLogits(Buf::kHidden, table);
    if (shape_.logit_cap != 0.0 || shape_.logit_scale != 1.0) {
      model_.Add(SoftCap{Buf::kLogits, static_cast<float>(shape_.logit_cap),
                         static_cast<float>(shape_.logit_scale)});
    }
  }

 private:
  // The norm of the states with that weight.
  Norm NormOf(const std::string& name, Buf y) {
    const TensorRef weight = model_.Vector(name + ".weight", shape_.hidden_size);
    return {Buf::kHidden,
            y,
            weight,
            {},
            shape_.norm,
            static_cast<float>(shape_.norm_epsilon),
            static_cast<float>(shape_.norm_offset)};
  }

  // Product with the tensors of that name, with `rows` columns of y. Checkpoints may hold them as
  // rows of larger ones, as Phi-3's do.
  struct ProductSpec {
    std::string name;
    int64_t rows;
    bool has_bias;
    TensorSource fused = {};  // without ".weight"; no name: none does
  };
  Linear Product(const ProductSpec& of, Buf x, Columns y) {
    Linear linear = {
        x, y,
        model_.Matrix(of.name + ".weight", of.rows, ColsOf(x), SourcesOf(of.fused, ".weight"))};
    if (of.has_bias) {
      linear.bias = model_.Vector(of.name + ".bias", of.rows, SourcesOf(of.fused, ".bias"));
    }
    return linear;
  }

  // An MLP may be narrower than experts that the buffers are for too.
  int64_t ColsOf(Buf x) const { return x == Buf::kInner ? shape_.ffn_size : WidthOf(shape_, x); }

  void AddHeadNorm(const std::string& name, Columns heads, int64_t num_heads) {
    const int64_t together = shape_.joint_head_norm ? num_heads : 1;
    const int64_t size = together * shape_.head_dim;
    const TensorRef weight = model_.Vector(name + ".weight", size);
    model_.Add(HeadNorm{heads, num_heads / together, size, weight,
                        static_cast<float>(shape_.norm_epsilon),
                        static_cast<float>(shape_.norm_offset)});
  }

  // Adds the norm of the states that a part reads, where it reads them normed.
  void AddPreNorm(const std::string& name) {
    if (shape_.pre_norm) model_.Add(NormOf(name, Buf::kNormed));
  }
  Buf BlockIn() const { return shape_.pre_norm ? Buf::kNormed : Buf::kHidden; }

  Rope RopeOfLayer(int64_t decoder_layer) const {
    Rope rope =
        IsWindowed(shape_, decoder_layer) && shape_.window_rope ? *shape_.window_rope : shape_.rope;
    if (IsUnturned(shape_, decoder_layer)) rope.scaling = {RopeScalingKind::kStill};
    return rope;
  }

  static std::vector<TensorSource> SourcesOf(TensorSource fused, const char* suffix) {
    if (fused.name.empty()) return {};
    fused.name += suffix;
    return {std::move(fused)};
  }

  void AddAttention(int64_t decoder_layer, const std::string& layer) {
    const std::string name = layer + "self_attn.";
    const int64_t q = shape_.num_heads * shape_.head_dim;
    const int64_t kv = shape_.num_kv_heads * shape_.head_dim;
    AddPreNorm(layer + "input_layernorm");
    const auto add = [&](const char* part, int64_t begin, int64_t rows) {
      const TensorSource fused = {name + "qkv_proj", begin, q + 2 * kv};
      model_.Add(
          Product({name + part, rows, shape_.qkv_bias, fused}, BlockIn(), {Buf::kQkv, begin}));
    };
    add("q_proj", 0, q);
    add("k_proj", q, kv);
    add("v_proj", q + kv, kv);
    if (shape_.head_norm || shape_.joint_head_norm) {
      AddHeadNorm(name + "q_norm", {Buf::kQkv}, shape_.num_heads);
      AddHeadNorm(name + "k_norm", {Buf::kQkv, q}, shape_.num_kv_heads);
    }
    model_.Add(
        Rotate{{Buf::kQkv}, shape_.num_heads + shape_.num_kv_heads, RopeOfLayer(decoder_layer)});
    Attend attend = {.scale = ScoreScale(), .soft_cap = static_cast<float>(shape_.score_cap)};
    if (IsWindowed(shape_, decoder_layer)) attend.window = shape_.window;
    if (shape_.score_sinks) attend.sinks = model_.Vector(name + "sinks", shape_.num_heads);
    model_.Add(attend);
    AddToStates({name + "o_proj", shape_.hidden_size, shape_.out_bias}, Buf::kAttended, layer,
                names_.norms.after_attention);
  }

  void AddMlp(const std::string& layer) {
    const std::string name = layer + std::string(names_.mlp.block);
    AddPreNorm(fmt::format("{}{}", layer,
                           shape_.branch_norm ? names_.norms.before_mlp
                                              : std::string_view("post_attention_layernorm")));
    const int64_t ffn = shape_.ffn_size;
    const std::string fused = name + std::string(names_.mlp.gate_up);
    const TensorSource gates = {fused, 0, 2 * ffn};
    const TensorSource ups = {fused, ffn, 2 * ffn};
    Linear gate =
        Product({name + "gate_proj", ffn, shape_.mlp_bias, gates}, BlockIn(), {Buf::kGate});
    gate.activation = shape_.activation;
    model_.Add(gate);
    Linear up = Product({name + "up_proj", ffn, shape_.mlp_bias, ups}, BlockIn(), {Buf::kInner});
    up.times = Buf::kGate;
    model_.Add(up);
    AddToStates({name + std::string(names_.mlp.down), shape_.hidden_size, shape_.mlp_bias},
                Buf::kInner, layer, names_.norms.after_mlp);
  }

  // Adds a product to the states; of a shape with norms behind the parts its norm of that name.
  void AddToStates(const ProductSpec& of, Buf x, const std::string& layer,
                   std::string_view norm_name) {
    if (shape_.branch_norm) {
      model_.Add(Product(of, x, {Buf::kNormed}));
      Norm norm = NormOf(fmt::format("{}{}", layer, norm_name), Buf::kHidden);
      norm.x = Buf::kNormed;
      norm.plus = Buf::kHidden;
      model_.Add(norm);
      return;
    }
    Linear product = Product(of, x, {Buf::kHidden});
    product.plus = Buf::kHidden;
    model_.Add(product);
  }

  float ScoreScale() const {
    if (shape_.score_scale != 0.0) return static_cast<float>(shape_.score_scale);
    return 1.0F / std::sqrt(static_cast<float>(shape_.head_dim));
  }

  const ModelShape& shape_;
  const LlamaNames& names_;
  ModelBuilder& model_;
};

}  // namespace

void AddLlamaLayers(const ModelShape& shape, const LlamaNames& names, ModelBuilder& model) {
  LlamaLayers(shape, names, model).AddAll();
}

void AddLlamaLayers(const ModelShape& shape, ModelBuilder& model) {
  AddLlamaLayers(shape, LlamaNames(), model);
}

}  // namespace spillway
