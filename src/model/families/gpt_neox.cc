// GPT-NeoX-20B (Black et al. 2022) and Pythia (Biderman et al. 2023): LayerNorm, rotary positions
// of the first part of each head, biases everywhere, a head of its own. Attention and MLP read the
// same states, so both are one layer, or one follows the other. Published queries, keys and values
// are one matrix in which each head has its own three parts side by side: ours have names of their
// own and say where they lie in it.
#include <fmt/format.h>

#include <array>
#include <cmath>
#include <string>
#include <string_view>
#include <utility>

#include "src/model/families/families.h"
#include "src/model/model_builder.h"

namespace spillway {
namespace {

constexpr double kPart = 0.25;  // of a head that turns, where config.json does not say

ModelShape Read(const JsonNode& config) {
  RefuseOtherKeys(config, {"attention_bias",
                           "attention_probs_dropout_prob",
                           "classifier_dropout",
                           "gradient_checkpointing",
                           "hidden_act",
                           "hidden_dropout_prob",
                           "hidden_size",
                           "intermediate_size",
                           "layer_norm_eps",
                           "max_position_embeddings",
                           "num_attention_heads",
                           "num_hidden_layers",
                           "original_max_position_embeddings",
                           "partial_rotary_factor",
                           "rope_parameters",
                           "rope_scaling",
                           "rope_theta",
                           "rotary_emb_base",
                           "rotary_pct",
                           "tie_word_embeddings",
                           "use_parallel_residual"});
  ModelShape shape;
  shape.num_layers = config.Member("num_hidden_layers").Integer(kLayerRange);
  shape.hidden_size = shape.embed_size = config.Member("hidden_size").Integer(kSizeRange);
  shape.ffn_size = config.Integer("intermediate_size", kFfnRange, 4 * shape.hidden_size);
  shape.num_heads = shape.num_kv_heads = config.Member("num_attention_heads").Integer(kHeadRange);
  shape.head_dim = EvenHeadDim(config, {"hidden_size", "num_attention_heads"}, shape);
  shape.vocab_size = config.Member("vocab_size").Integer(kVocabRange);
  shape.max_positions = config.Integer("max_position_embeddings", kPositionRange, 2048);
  shape.activation = ReadActivation(config, "hidden_act", "gelu");
  shape.norm_epsilon = ReadEpsilon(config, "layer_norm_eps", 1e-5);
  shape.linear_bias = false;
  shape.qkv_bias = shape.out_bias = config.Boolean("attention_bias", true);
  shape.mlp_bias = true;
  shape.parallel_residual = config.Boolean("use_parallel_residual", true);
  shape.tied_head = config.Boolean("tie_word_embeddings", false);
  SetRope(ReadRope(config, shape.head_dim, {"rotary_emb_base", "rotary_pct", kPart}), shape);
  return shape;
}

constexpr std::string_view kPrefix = "gpt_neox.";  // of a whole model's published names

std::vector<TensorSource> Published(const std::string& name, const TensorSource& part = {}) {
  return PublishedUnder(kPrefix, name, part);
}

class GptNeoxLayers {
 public:
  GptNeoxLayers(const ModelShape& shape, ModelBuilder& model) : shape_(shape), model_(model) {}

  void AddAll() {
    model_.BeginLayer(ComputePart::kEmbedding);
    const TensorRef table = model_.Matrix("embed_in.weight", shape_.vocab_size, shape_.hidden_size,
                                          Published("embed_in.weight"));
    model_.Add(Gather{table});
    for (int64_t decoder_layer = 0; decoder_layer < shape_.num_layers; ++decoder_layer)
      AddDecoderLayer(decoder_layer);
    model_.BeginLayer(ComputePart::kHead);
    model_.AddStatesNorm("final_layer_norm", kPrefix, Buf::kHidden);
    model_.AddLogits(Buf::kHidden, table, {{"embed_out.weight"}});
  }

 private:
  // Computes the MLP of the parallel form up to its inner activations before the attention's result
  // is added to the states that both read.
  void AddDecoderLayer(int64_t decoder_layer) {
    const std::string name = fmt::format("layers.{}.", decoder_layer);
    const ProductSpec dense = {name + "attention.dense", shape_.hidden_size, shape_.out_bias};
    model_.BeginLayer(ComputePart::kAttention, decoder_layer);
    AddAttention(name);
    if (!shape_.parallel_residual) {
      AddToStates(dense, Buf::kAttended);
      model_.BeginLayer(ComputePart::kMlp, decoder_layer);
    }
    AddInner(name);
    if (shape_.parallel_residual) AddToStates(dense, Buf::kAttended);
    AddToStates({name + "mlp.dense_4h_to_h", shape_.hidden_size, shape_.mlp_bias}, Buf::kInner);
  }

  struct ProductSpec {
    std::string name;
    int64_t rows;  // columns of y
    bool has_bias;
    std::string published = {};  // the larger one of which it is a part
    TensorSource part = {};
  };

  Linear Product(const ProductSpec& of, Buf x, Columns y) {
    const std::string& published = of.published.empty() ? of.name : of.published;
    Linear linear = {x, y,
                     model_.Matrix(of.name + ".weight", of.rows, WidthOf(shape_, x),
                                   Published(published + ".weight", of.part))};
    if (of.has_bias) {
      linear.bias =
          model_.Vector(of.name + ".bias", of.rows, Published(published + ".bias", of.part));
    }
    return linear;
  }

  void AddAttention(const std::string& layer) {
    const std::string name = layer + "attention.";
    const int64_t hidden = shape_.hidden_size;
    const int64_t head = shape_.head_dim;
    model_.AddStatesNorm(layer + "input_layernorm", kPrefix, Buf::kNormed);
    for (const auto& [part, place] : {std::pair{"q_proj", 0}, {"k_proj", 1}, {"v_proj", 2}}) {
      const TensorSource runs = {{}, place * head, 3 * hidden, false, {head, 3 * head}};
      model_.Add(Product({name + part, hidden, shape_.qkv_bias, name + "query_key_value", runs},
                         Buf::kNormed, {Buf::kQkv, place * hidden}));
    }
    model_.Add(Rotate{{Buf::kQkv}, shape_.num_heads + shape_.num_kv_heads, shape_.rope});
    model_.Add(Attend{.scale = 1.0F / std::sqrt(static_cast<float>(head))});
  }

  void AddInner(const std::string& layer) {
    model_.AddStatesNorm(layer + "post_attention_layernorm", kPrefix, Buf::kNormed);
    Linear up = Product({layer + "mlp.dense_h_to_4h", shape_.ffn_size, shape_.mlp_bias},
                        Buf::kNormed, {Buf::kInner});
    up.activation = shape_.activation;
    model_.Add(up);
  }

  void AddToStates(const ProductSpec& of, Buf x) {
    Linear product = Product(of, x, {Buf::kHidden});
    product.plus = Buf::kHidden;
    model_.Add(product);
  }

  const ModelShape& shape_;
  ModelBuilder& model_;
};

void AddLayers(const ModelShape& shape, ModelBuilder& model) {
  GptNeoxLayers(shape, model).AddAll();
}

struct GptNeoxSize {
  NamedSize size;
  int64_t vocab_size;
};

// Pythia's vocabularies are padded to another multiple in its larger sizes.
constexpr std::array kPythias = {
    GptNeoxSize{{"pythia-70m", 6, 512, 8}, 50304},
    GptNeoxSize{{"pythia-160m", 12, 768, 12}, 50304},
    GptNeoxSize{{"pythia-410m", 24, 1024, 16}, 50304},
    GptNeoxSize{{"pythia-1b", 16, 2048, 8}, 50304},
    GptNeoxSize{{"pythia-1.4b", 24, 2048, 16}, 50304},
    GptNeoxSize{{"pythia-2.8b", 32, 2560, 32}, 50304},
    GptNeoxSize{{"pythia-6.9b", 32, 4096, 32}, 50432},
    GptNeoxSize{{"pythia-12b", 36, 5120, 40}, 50688},
};

ModelShape ShapeOf(ModelShape shape, const GptNeoxSize& of) {
  shape = WithSize(std::move(shape), of.size);
  shape.vocab_size = of.vocab_size;
  shape.rope.dims = shape.head_dim / 4;
  return shape;
}

std::vector<ModelShape> Sizes() {
  ModelShape shape;
  shape.activation = Activation::kGelu;
  shape.linear_bias = false;
  shape.qkv_bias = shape.out_bias = shape.mlp_bias = true;
  shape.parallel_residual = true;
  shape.tied_head = false;
  shape.max_positions = 2048;
  std::vector<ModelShape> shapes;
  for (const GptNeoxSize& size : kPythias) shapes.push_back(ShapeOf(shape, size));
  shape.activation = Activation::kGeluTanh;
  shapes.push_back(ShapeOf(shape, {{"gpt-neox-20b", 44, 6144, 64}, 50432}));
  return shapes;
}

}  // namespace

const Family kGptNeox = {.model_type = "gpt_neox",
                         .read = Read,
                         .add_layers = AddLayers,
                         .sizes = Sizes,
                         .bos = 0,
                         .eos = 2};

}  // namespace spillway
