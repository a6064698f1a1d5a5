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
    AddScore(std::string(names_.router), experts.num, 0);
    const bool shared = experts.shared_ffn > 0;
    if (shared) AddScore("shared_expert_gate", 1, experts.num);
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
  // Scores to columns of kRouter from `column` on.
  void AddScore(const std::string& name, int64_t rows, int64_t column) {
    const TensorSource unstacked = {fmt::format("{}mlp.{}.weight", Layer(), name)};
    const TensorRef weight = model_.Router(prefix_ + name + ".weight", rows, {unstacked});
    Linear linear = {Buf::kExpertIn, {Buf::kRouter, column}, weight};
    linear.arithmetic = Arithmetic::kFp32;
    if (shape_.experts.biased) linear.bias = model_.Vector(prefix_ + name + ".bias", rows);
    model_.Add(linear);
  }

  std::string Layer() const { return prefix_.substr(0, prefix_.size() - names_.block.size()); }

  // Rows of an expert's part of a stack, from first_row on, at these distances.
  struct Part {
    std::string stack;   // without the decoder layer's name
    int64_t number = 0;  // of the expert
    int64_t first_row = 0;
    int64_t num_rows = 0;
    RowRuns runs = {};
    std::string own_stack = {};  // where gate and up have stacks of their own
  };
  TensorSource SourceOf(const Part& part, std::string_view suffix) const {
    TensorSource source = {fmt::format("{}{}{}", Layer(), part.stack, suffix), part.first_row,
                           part.num_rows};
    source.runs = part.runs;
    source.stacked = {shape_.experts.num, part.number};
    return source;
  }
  std::vector<TensorSource> MatrixSources(const Part& part) const {
    if (part.stack.empty()) return {};
    TensorSource plain = SourceOf(part, "");
    if (names_.stacks == ExpertStacks::kConcatenated)
      return {std::move(plain), Apart(part, ".weight")};
    plain.transposed = true;
    return {std::move(plain), SourceOf(part, "_blocks"), Apart(part, ".weight")};
  }
  std::vector<TensorSource> BiasSources(const Part& part) const {
    return {SourceOf(part, "_bias"), Apart(part, ".bias")};
  }
  // The part where gate and up have stacks of their own, as in GGUF files.
  TensorSource Apart(const Part& part, std::string_view suffix) const {
    return SourceOf({.stack = part.own_stack, .number = part.number}, suffix);
  }

  Expert Routed(int64_t number) {
    const int64_t ffn = shape_.experts.ffn_size;
    const std::string expert = fmt::format("{}experts.{}.", prefix_, number);
    const auto of = [&](std::string_view part, Part stacked) {
      stacked.own_stack = fmt::format("mlp.experts.{}", part);
      return Published{fmt::format("{}{}", expert, part), std::move(stacked)};
    };
    const std::string gate_up(names_.gate_up_stack);
    const bool in_turns = names_.stacks == ExpertStacks::kInterleaved;
    const RowRuns runs = in_turns ? RowRuns{1, 2} : RowRuns{};
    return Of(ffn, of(names_.gate, {gate_up, number, 0, 2 * ffn, runs}),
              of(names_.up, {gate_up, number, in_turns ? 1 : ffn, 2 * ffn, runs}),
              of(names_.down, {std::string(names_.down_stack), number, 0, shape_.hidden_size}));
  }

  Expert Shared() {
    const auto of = [&](const char* part) {
      return Published{fmt::format("{}shared_expert.{}", prefix_, part)};
    };
    return Of(shape_.experts.shared_ffn, of("gate_proj"), of("up_proj"), of("down_proj"));
  }

  struct Published {
    std::string name;  // without ".weight"
    Part part = {};    // no stack: it is in none
  };
  Linear Product(Buf x, Buf y, const Published& of, int64_t rows, int64_t cols) {
    const bool is_routed = !of.part.stack.empty();
    std::vector<TensorSource> sources = MatrixSources(of.part);
    const std::string name = of.name + ".weight";
    Linear product = {x,
                      {y},
                      is_routed ? model_.Expert(name, rows, cols, std::move(sources))
                                : model_.Matrix(name, rows, cols, std::move(sources))};
    if (shape_.experts.biased)
      product.bias = model_.Vector(of.name + ".bias", rows, BiasSources(of.part));
    return product;
  }

  Expert Of(int64_t ffn, const Published& gate, const Published& up, const Published& down) {
    const int64_t hidden = shape_.hidden_size;
    Expert expert;
    expert.gate = Product(Buf::kExpertRows, Buf::kGate, gate, ffn, hidden);
    expert.gate.activation = shape_.activation;
    expert.up = Product(Buf::kExpertRows, Buf::kInner, up, ffn, hidden);
    if (shape_.activation == Activation::kClampedSwish)
      expert.up.activation = Activation::kClampedOffset;
    expert.up.times = Buf::kGate;
    expert.down = Product(Buf::kInner, Buf::kExpertRows, down, hidden, ffn);
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
