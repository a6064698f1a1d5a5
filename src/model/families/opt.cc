// OPT (Zhang et al. 2022): learned positions from row 2 on, LayerNorm before each part (after it in
// opt-350m, whose embeddings are projected too), biases everywhere, a tied head. Tensors are named
// as Hugging Face names them.
#include <fmt/format.h>

#include <array>
#include <cmath>
#include <string>

#include "src/model/families/families.h"
#include "src/model/model_builder.h"

namespace spillway {
namespace {

ModelShape Read(const JsonNode& config) {
  ModelShape shape;
  shape.num_layers = config.Member("num_hidden_layers").Integer(kLayerRange);
  shape.hidden_size = config.Member("hidden_size").Integer(kSizeRange);
  shape.ffn_size = config.Member("ffn_dim").Integer(kFfnRange);
  shape.num_heads = config.Member("num_attention_heads").Integer(kHeadRange);
  shape.head_dim = EvenHeadDim(config, {"hidden_size", "num_attention_heads"}, shape);
  shape.num_kv_heads = shape.num_heads;
  shape.vocab_size = config.Member("vocab_size").Integer(kVocabRange);
  shape.max_positions = config.Integer("max_position_embeddings", kPositionRange, 2048);
  shape.position_offset = 2;
  shape.embed_size = config.Integer("word_embed_proj_dim", kSizeRange, shape.hidden_size);
  shape.activation = ReadActivation(config, "activation_function", "relu");
  shape.pre_norm = config.Boolean("do_layer_norm_before", true);
  shape.final_norm = shape.pre_norm && !config.Boolean("_remove_final_layer_norm", false);
  shape.norm_affine = config.Boolean("layer_norm_elementwise_affine", true);
  shape.linear_bias = config.Boolean("enable_bias", true);
  shape.tied_head = config.Boolean("tie_word_embeddings", true);
  return shape;
}

// The layers of one shape; its switches decide which tensors and operations there are.
class OptLayers {
 public:
  OptLayers(const ModelShape& shape, ModelBuilder& model) : shape_(shape), model_(model) {}

  void AddAll() {
    AddEmbedding();
    for (int64_t decoder_layer = 0; decoder_layer < shape_.num_layers; ++decoder_layer) {
      AddAttention(decoder_layer);
      AddMlp(decoder_layer);
    }
    AddHead();
  }

 private:
  struct NormTensors {
    TensorRef weight;
    TensorRef bias;
  };

  NormTensors NormOf(const std::string& name, const std::string& old_name = {}) {
    if (!shape_.norm_affine) return {};
    const auto vector = [&](const char* suffix) {
      std::vector<TensorSource> sources;
      if (!old_name.empty()) sources.push_back({old_name + suffix});
      return model_.Vector(name + suffix, shape_.hidden_size, std::move(sources));
    };
    const TensorRef weight = vector(".weight");
    return {weight, vector(".bias")};
  }

  void Normalize(const NormTensors& norm, Buf y) {
    model_.Add(Norm{Buf::kHidden, y, norm.weight, norm.bias, NormKind::kLayer,
                    static_cast<float>(shape_.norm_epsilon)});
  }

  // y = x weight' + bias with the tensors of that name.
  Linear Product(const std::string& name, Buf x, Columns y, int64_t rows, int64_t cols) {
    Linear linear = {x, y, model_.Matrix(name + ".weight", rows, cols)};
    if (shape_.linear_bias) linear.bias = model_.Vector(name + ".bias", rows);
    return linear;
  }

  bool projects() const { return shape_.embed_size != shape_.hidden_size; }
  Buf normed() const { return shape_.pre_norm ? Buf::kNormed : Buf::kHidden; }

  void AddEmbedding() {
    model_.BeginLayer(ComputePart::kEmbedding);
    table_ = model_.Matrix("decoder.embed_tokens.weight", shape_.vocab_size, shape_.embed_size);
    const TensorRef positions =
        model_.Positions("decoder.embed_positions.weight",
                         shape_.max_positions + shape_.position_offset, shape_.hidden_size);
    model_.Add(Gather{table_, GatherIds::kTokens, 0, projects() ? Buf::kEmbedded : Buf::kHidden});
    if (projects()) {
      const TensorRef project =
          model_.Matrix("decoder.project_in.weight", shape_.hidden_size, shape_.embed_size);
      model_.Add(Linear{Buf::kEmbedded, {Buf::kHidden}, project});
    }
    model_.Add(Gather{positions, GatherIds::kPositions, shape_.position_offset, Buf::kHidden,
                      Update::kAdd});
  }

  void AddAttention(int64_t decoder_layer) {
    const std::string name = fmt::format("decoder.layers.{}.self_attn", decoder_layer);
    const int64_t q = shape_.num_heads * shape_.head_dim;
    const int64_t kv = shape_.num_kv_heads * shape_.head_dim;
    model_.BeginLayer(ComputePart::kAttention, decoder_layer);
    const NormTensors norm = NormOf(name + "_layer_norm");
    if (shape_.pre_norm) Normalize(norm, Buf::kNormed);
    const auto project = [&](const char* part, int64_t begin, int64_t rows) {
      model_.Add(Product(name + part, normed(), {Buf::kQkv, begin}, rows, shape_.hidden_size));
    };
    project(".q_proj", 0, q);
    project(".k_proj", q, kv);
    project(".v_proj", q + kv, kv);
    model_.Add(Attend{.scale = 1.0F / std::sqrt(static_cast<float>(shape_.head_dim))});
    AddToStates(Product(name + ".out_proj", Buf::kAttended, {Buf::kHidden}, shape_.hidden_size, q),
                norm);
  }

  void AddMlp(int64_t decoder_layer) {
    const std::string name = fmt::format("decoder.layers.{}", decoder_layer);
    model_.BeginLayer(ComputePart::kMlp, decoder_layer);
    const NormTensors norm = NormOf(name + ".final_layer_norm");
    if (shape_.pre_norm) Normalize(norm, Buf::kNormed);
    Linear up =
        Product(name + ".fc1", normed(), {Buf::kInner}, shape_.ffn_size, shape_.hidden_size);
    up.activation = shape_.activation;
    model_.Add(up);
    AddToStates(
        Product(name + ".fc2", Buf::kInner, {Buf::kHidden}, shape_.hidden_size, shape_.ffn_size),
        norm);
  }

  void AddToStates(Linear product, const NormTensors& norm) {
    product.plus = Buf::kHidden;
    model_.Add(product);
    if (!shape_.pre_norm) Normalize(norm, Buf::kHidden);
  }

  void AddHead() {
    model_.BeginLayer(ComputePart::kHead);
    if (shape_.final_norm) {
      // Named "decoder.layer_norm" before transformers 4.20, and in FlexGen's folders.
      Normalize(NormOf("decoder.final_layer_norm", "decoder.layer_norm"), Buf::kHidden);
    }
    if (projects()) {
      const TensorRef project =
          model_.Matrix("decoder.project_out.weight", shape_.embed_size, shape_.hidden_size);
      model_.Add(Linear{Buf::kHidden, {Buf::kEmbedded}, project});
    }
    model_.AddLogits(projects() ? Buf::kEmbedded : Buf::kHidden, table_);
  }

  const ModelShape& shape_;
  ModelBuilder& model_;
  TensorRef table_;
};

void AddLayers(const ModelShape& shape, ModelBuilder& model) { OptLayers(shape, model).AddAll(); }

// Table 1 of the OPT paper, with the head counts of the published checkpoints.
constexpr std::array kSizes = {
    NamedSize{"opt-125m", 12, 768, 12},   NamedSize{"opt-350m", 24, 1024, 16},
    NamedSize{"opt-1.3b", 24, 2048, 32},  NamedSize{"opt-2.7b", 32, 2560, 32},
    NamedSize{"opt-6.7b", 32, 4096, 32},  NamedSize{"opt-13b", 40, 5120, 40},
    NamedSize{"opt-30b", 48, 7168, 56},   NamedSize{"opt-66b", 64, 9216, 72},
    NamedSize{"opt-175b", 96, 12288, 96},
};

std::vector<ModelShape> Sizes() {
  ModelShape shape;
  shape.vocab_size = 50272;
  shape.max_positions = 2048;
  shape.position_offset = 2;
  std::vector<ModelShape> shapes;
  for (const NamedSize& size : kSizes) shapes.push_back(WithSize(shape, size));
  // The odd one out.
  ModelShape& odd = shapes[1];
  odd.embed_size = 512;
  odd.pre_norm = odd.final_norm = false;
  return shapes;
}

}  // namespace

const Family kOpt = {.model_type = "opt",
                     .read = Read,
                     .add_layers = AddLayers,
                     .sizes = Sizes,
                     .bos = 2,
                     .eos = 2,
                     .pad = 1};

}  // namespace spillway
