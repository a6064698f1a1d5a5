#include "src/model/families/expert_layers.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "spillway/round.h"

namespace spillway {
namespace {

// Layers that the experts of a decoder layer are dealt to. Weights come layer by layer, so memory
// has to hold a few eighths of the experts at a time and not all of them; more layers would save
// little of that, and cost a cell each.
constexpr int64_t kExpertLayers = 8;

class ExpertLayers {
 public:
  ExpertLayers(const ModelShape& shape, int64_t decoder_layer, std::string prefix,
               const ExpertNames& names, ModelBuilder& model)
      : shape_(shape),
        decoder_layer_(decoder_layer),
        prefix_(std::move(prefix)),
        names_(names),
        model_(model) {}

  void AddRouter(Norm norm) {
    const ExpertShape& experts = shape_.experts;
    norm.y = Buf::kExpertIn;
    model_.Add(norm);
    const auto score = [&](const std::string& name, int64_t rows, int64_t column) {
      const TensorSource unstacked = {fmt::format("{}mlp.{}", Layer(), name)};
      Linear linear = {
          Buf::kExpertIn, {Buf::kRouter, column}, model_.Router(prefix_ + name, rows, {unstacked})};
      linear.arithmetic = Arithmetic::kFp32;
      model_.Add(linear);
    };
    score("gate.weight", experts.num, 0);
    const bool shared = experts.shared_ffn > 0;
    if (shared) score("shared_expert_gate.weight", 1, experts.num);
    const ChoiceWeights weights =
        experts.renormalise ? ChoiceWeights::kOfChosen : ChoiceWeights::kOfAll;
    model_.Add(Choose{
        .num_experts = experts.num, .top_k = experts.top_k, .weights = weights, .shared = shared});
  }

  void AddExperts() {
    const ExpertShape& experts = shape_.experts;
    const int64_t step = DivideUp(experts.num, kExpertLayers);
    for (int64_t begin = 0; begin < experts.num; begin += step) {
      model_.BeginLayer(ComputePart::kMlp, decoder_layer_);
      Experts some = {.first = begin};
      for (int64_t number = begin; number < std::min(experts.num, begin + step); ++number)
        some.experts.push_back(Routed(number));
      model_.Add(std::move(some));
    }
    if (experts.shared_ffn == 0) return;
    model_.BeginLayer(ComputePart::kMlp, decoder_layer_);
    model_.Add(Experts{.first = experts.num, .experts = {Shared()}});
  }

 private:
  std::string Layer() const { return prefix_.substr(0, prefix_.size() - names_.block.size()); }

  // A part of a stack of all experts' matrices: rows of the expert's, from first_row on.
  TensorSource StackOf(const char* name, int64_t number, int64_t first_row,
                       int64_t num_rows) const {
    TensorSource source = {fmt::format("{}mlp.experts.{}", Layer(), name), first_row, num_rows};
    source.stacked = {shape_.experts.num, number};
    return source;
  }

  Expert Routed(int64_t number) {
    const int64_t ffn = shape_.experts.ffn_size;
    const std::string expert = fmt::format("{}experts.{}.", prefix_, number);
    const auto name = [&](std::string_view part) {
      return fmt::format("{}{}.weight", expert, part);
    };
    return Of(ffn, {name(names_.gate), StackOf("gate_up_proj", number, 0, 2 * ffn)},
              {name(names_.up), StackOf("gate_up_proj", number, ffn, 2 * ffn)},
              {name(names_.down), StackOf("down_proj", number, 0, shape_.hidden_size)});
  }

  Expert Shared() {
    const auto name = [&](const char* part) {
      return fmt::format("{}shared_expert.{}.weight", prefix_, part);
    };
    return Of(shape_.experts.shared_ffn, {name("gate_proj")}, {name("up_proj")},
              {name("down_proj")});
  }

  struct Published {
    std::string name;
    TensorSource stack = {};
  };
  TensorRef Matrix(const Published& of, int64_t rows, int64_t cols) {
    std::vector<TensorSource> sources;
    if (!of.stack.name.empty()) sources.push_back(of.stack);
    return model_.Matrix(of.name, rows, cols, std::move(sources));
  }

  Expert Of(int64_t ffn, const Published& gate, const Published& up, const Published& down) {
    const int64_t hidden = shape_.hidden_size;
    Expert expert;
    expert.gate = {Buf::kExpertRows, {Buf::kGate}, Matrix(gate, ffn, hidden)};
    expert.gate.activation = shape_.activation;
    expert.up = {Buf::kExpertRows, {Buf::kInner}, Matrix(up, ffn, hidden)};
    expert.up.times = Buf::kGate;
    expert.down = {Buf::kInner, {Buf::kExpertRows}, Matrix(down, hidden, ffn)};
    return expert;
  }

  const ModelShape& shape_;
  int64_t decoder_layer_;
  std::string prefix_;  // of the tensors' names
  const ExpertNames& names_;
  ModelBuilder& model_;
};

}  // namespace

void AddExpertLayers(const ModelShape& shape, int64_t decoder_layer, const std::string& layer,
                     const ExpertNames& names, Norm norm, ModelBuilder& model) {
  ExpertLayers layers(shape, decoder_layer, layer + std::string(names.block), names, model);
  layers.AddRouter(std::move(norm));
  layers.AddExperts();
}

}  // namespace spillway
