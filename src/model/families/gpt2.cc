// GPT-2 (Radford et al. 2019): learned positions from row 0 on, LayerNorm before each part, biases
// everywhere, a tied head. Published matrices are transposed (Conv1D), and those of queries, keys
// and values are one: ours have names of their own and say where they lie in them.
#include <fmt/format.h>

#include <cmath>
#include <string>
#include <string_view>
#include <utility>

#include "src/model/families/families.h"
#include "src/model/model_builder.h"

namespace spillway {
namespace {

ModelShape Read(const JsonNode& config) {
  RequireSetting(config, "scale_attn_weights", true);
  RequireSetting(config, "scale_attn_by_inverse_layer_idx", false);
  RequireSetting(config, "add_cross_attention", false);
  ModelShape shape;
  shape.num_layers = config.Member("n_layer").Integer(kLayerRange);
  shape.hidden_size = shape.embed_size = config.Member("n_embd").Integer(kSizeRange);
  shape.ffn_size = config.Integer("n_inner", kFfnRange, 4 * shape.hidden_size);
  shape.num_heads = shape.num_kv_heads = config.Member("n_head").Integer(kHeadRange);
  shape.head_dim = EvenHeadDim(config, {"n_embd", "n_head"}, shape);
  shape.vocab_size = config.Member("vocab_size").Integer(kVocabRange);
  shape.max_positions = config.Integer("n_positions", kPositionRange, 1024);
  shape.activation = ReadActivation(config, "activation_function", "gelu_new");
  shape.tied_head = config.Boolean("tie_word_embeddings", true);
  shape.norm_epsilon = ReadEpsilon(config, "layer_norm_epsilon", 1e-5);
  return shape;
}

constexpr std::string_view kPrefix = "transformer.";  // of a whole model's published names

std::vector<TensorSource> Published(const std::string& name, const TensorSource& part = {}) {
  return PublishedUnder(kPrefix, name, part);
}

// Tensors of a product by our own name, and where they are published.
struct Conv1D {
  std::string name;
  std::string published;
  int64_t first_row = 0;
  int64_t num_rows = 0;  // of the published one; 0: as many as ours
};

class Gpt2Layers {
 public:
  Gpt2Layers(const ModelShape& shape, ModelBuilder& model) : shape_(shape), model_(model) {}

  void AddAll() {
    model_.BeginLayer(ComputePart::kEmbedding);
    const TensorRef tokens =
        model_.Matrix("wte.weight", shape_.vocab_size, shape_.hidden_size, Published("wte.weight"));
    const TensorRef positions = model_.Positions("wpe.weight", shape_.max_positions,
                                                 shape_.hidden_size, Published("wpe.weight"));
    model_.Add(Gather{tokens});
    model_.Add(Gather{positions, GatherIds::kPositions, 0, Buf::kHidden, Update::kAdd});
    for (int64_t decoder_layer = 0; decoder_layer < shape_.num_layers; ++decoder_layer) {
      AddAttention(decoder_layer, fmt::format("h.{}.", decoder_layer));
      AddMlp(decoder_layer, fmt::format("h.{}.", decoder_layer));
    }
    model_.BeginLayer(ComputePart::kHead);
    model_.AddStatesNorm("ln_f", kPrefix, Buf::kHidden);
    model_.AddLogits(Buf::kHidden, tokens);
  }

 private:
  // y = x weight' + bias, with `rows` columns of y.
  Linear Product(const Conv1D& of, Buf x, Columns y, int64_t rows) {
    TensorSource part = {{}, of.first_row, of.num_rows};
    auto bias = Published(of.published + ".bias", part);
    part.transposed = true;
    const TensorRef weight = model_.Matrix(of.name + ".weight", rows, WidthOf(shape_, x),
                                           Published(of.published + ".weight", part));
    return {x, y, weight, model_.Vector(of.name + ".bias", rows, std::move(bias))};
  }

  void AddAttention(int64_t decoder_layer, const std::string& name) {
    const int64_t hidden = shape_.hidden_size;
    model_.BeginLayer(ComputePart::kAttention, decoder_layer);
    model_.AddStatesNorm(name + "ln_1", kPrefix, Buf::kNormed);
    for (const auto& [part, place] : {std::pair{"q_proj", 0}, {"k_proj", 1}, {"v_proj", 2}}) {
      const int64_t begin = place * hidden;
      model_.Add(Product({name + "attn." + part, name + "attn.c_attn", begin, 3 * hidden},
                         Buf::kNormed, {Buf::kQkv, begin}, hidden));
    }
    model_.Add(Attend{.scale = 1.0F / std::sqrt(static_cast<float>(shape_.head_dim))});
    AddToStates({name + "attn.out_proj", name + "attn.c_proj"}, Buf::kAttended);
  }

  void AddMlp(int64_t decoder_layer, const std::string& name) {
    model_.BeginLayer(ComputePart::kMlp, decoder_layer);
    model_.AddStatesNorm(name + "ln_2", kPrefix, Buf::kNormed);
    Linear up = Product({name + "mlp.up_proj", name + "mlp.c_fc"}, Buf::kNormed, {Buf::kInner},
                        shape_.ffn_size);
    up.activation = shape_.activation;
    model_.Add(up);
    AddToStates({name + "mlp.down_proj", name + "mlp.c_proj"}, Buf::kInner);
  }

  void AddToStates(const Conv1D& of, Buf x) {
    Linear product = Product(of, x, {Buf::kHidden}, shape_.hidden_size);
    product.plus = Buf::kHidden;
    model_.Add(product);
  }

  const ModelShape& shape_;
  ModelBuilder& model_;
};

void AddLayers(const ModelShape& shape, ModelBuilder& model) { Gpt2Layers(shape, model).AddAll(); }

std::vector<ModelShape> Sizes() {
  ModelShape shape;
  shape.vocab_size = 50257;
  shape.max_positions = 1024;
  shape.activation = Activation::kGeluTanh;
  return {WithSize(shape, {"gpt2", 12, 768, 12}), WithSize(shape, {"gpt2-medium", 24, 1024, 16}),
          WithSize(shape, {"gpt2-large", 36, 1280, 20}),
          WithSize(shape, {"gpt2-xl", 48, 1600, 25})};
}

}  // namespace

const Family kGpt2 = {.model_type = "gpt2",
                      .read = Read,
                      .add_layers = AddLayers,
                      .sizes = Sizes,
                      .bos = 50256,
                      .eos = 50256};

}  // namespace spillway
