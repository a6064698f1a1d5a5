// ModelBuilder: writes a family's layers: tensors and the operations on them, layer by layer.
// Thread rule: one thread.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "spillway/model.h"

namespace spillway {

// Published names of a tensor, or of a part of one: with the prefix that a whole model has, and
// without, as a bare one has them.
std::vector<TensorSource> PublishedUnder(std::string_view prefix, const std::string& name,
                                         const TensorSource& part = {});

class ModelBuilder {
 public:
  explicit ModelBuilder(ModelShape shape) : model_{std::move(shape), {}} {}

  // Begins a layer, to which all that follows belongs.
  void BeginLayer(ComputePart part, int64_t decoder_layer = -1);

  // Tensors of the current layer, in the order in which a store keeps them.
  TensorRef Matrix(std::string name, int64_t rows, int64_t cols,
                   std::vector<TensorSource> sources = {});
  // A matrix of an expert that tokens are routed to.
  TensorRef Expert(std::string name, int64_t rows, int64_t cols, std::vector<TensorSource> sources);
  // A table that is never quantised: learned positions are few, and their errors would add to
  // every token's state.
  TensorRef Positions(std::string name, int64_t rows, int64_t cols,
                      std::vector<TensorSource> sources = {});
  TensorRef Vector(std::string name, int64_t rows, std::vector<TensorSource> sources = {});
  // A matrix that chooses experts, and is never quantised.
  TensorRef Router(std::string name, int64_t rows, std::vector<TensorSource> sources = {});

  // LayerNorm of the states with weight and bias, published with a prefix and without.
  void AddStatesNorm(const std::string& name, std::string_view prefix, Buf y);

  // The next operation of the current layer.
  void Add(Op op);

  // Logits of `x`: products with the embedding's `table` where the head is tied, else with a matrix
  // of its own, which checkpoints may hold as one of `sources`.
  void AddLogits(Buf x, TensorRef table, std::vector<TensorSource> sources = {});

  Model Take() { return std::move(model_); }

 private:
  TensorRef AddTensor(TensorSpec spec);

  Model model_;
  int64_t num_layer_matrices_ = 0;  // so far, as LayerDType counts them
};

}  // namespace spillway
