#include "src/model/model_builder.h"

#include <utility>

namespace spillway {
namespace {

// Of a matrix of the embedding or the head.
DType EndDType(const ModelShape& shape, ComputePart part) {
  const auto& codes = part == ComputePart::kEmbedding ? shape.embedding_codes : shape.head_codes;
  return codes && shape.weight_bits == 16 ? *codes : MatrixDType(shape);
}

}  // namespace

std::vector<TensorSource> PublishedUnder(std::string_view prefix, const std::string& name,
                                         const TensorSource& part) {
  std::vector<TensorSource> sources(2, part);
  sources[0].name = std::string(prefix) + name;
  sources[1].name = name;
  return sources;
}

void ModelBuilder::BeginLayer(ComputePart part, int64_t decoder_layer) {
  model_.layers.push_back({part, decoder_layer, {}, {}});
}

TensorRef ModelBuilder::Matrix(std::string name, int64_t rows, int64_t cols,
                               std::vector<TensorSource> sources) {
  const bool is_of_layer = model_.layers.back().decoder_layer >= 0;
  const DType dtype = is_of_layer ? LayerDType(model_.shape, num_layer_matrices_++)
                                  : EndDType(model_.shape, model_.layers.back().part);
  return AddTensor({std::move(name), rows, cols, dtype, std::move(sources)});
}

TensorRef ModelBuilder::Expert(std::string name, int64_t rows, int64_t cols,
                               std::vector<TensorSource> sources) {
  const ModelShape& shape = model_.shape;
  if (!shape.experts.mxfp4 || shape.weight_bits != 16)
    return Matrix(std::move(name), rows, cols, std::move(sources));
  return AddTensor({std::move(name), rows, cols, DType::kMxfp4, std::move(sources)});
}

TensorRef ModelBuilder::Positions(std::string name, int64_t rows, int64_t cols,
                                  std::vector<TensorSource> sources) {
  return AddTensor({std::move(name), rows, cols, model_.shape.dtype, std::move(sources)});
}

TensorRef ModelBuilder::Router(std::string name, int64_t rows, std::vector<TensorSource> sources) {
  return AddTensor(
      {std::move(name), rows, model_.shape.hidden_size, model_.shape.dtype, std::move(sources)});
}

TensorRef ModelBuilder::Vector(std::string name, int64_t rows, std::vector<TensorSource> sources) {
  return AddTensor({std::move(name), rows, 1, DType::kF32, std::move(sources)});
}

TensorRef ModelBuilder::AddTensor(TensorSpec spec) {
  std::vector<TensorSpec>& tensors = model_.layers.back().tensors;
  tensors.push_back(std::move(spec));
  return {static_cast<int32_t>(model_.layers.size() - 1), static_cast<int32_t>(tensors.size() - 1)};
}

void ModelBuilder::AddStatesNorm(const std::string& name, std::string_view prefix, Buf y) {
  const auto vector = [&](const std::string& of) {
    return Vector(of, model_.shape.hidden_size, PublishedUnder(prefix, of));
  };
  const TensorRef weight = vector(name + ".weight");
  Add(Norm{Buf::kHidden, y, weight, vector(name + ".bias"), NormKind::kLayer,
           static_cast<float>(model_.shape.norm_epsilon)});
}

void ModelBuilder::Add(Op op) { model_.layers.back().ops.push_back(std::move(op)); }

void ModelBuilder::AddLogits(Buf x, TensorRef table, std::vector<TensorSource> sources) {
  const ModelShape& shape = model_.shape;
  const TensorRef head = shape.tied_head ? table
                                         : Matrix("lm_head.weight", shape.vocab_size,
                                                  WidthOf(shape, x), std::move(sources));
  Add(Linear{x, {Buf::kLogits}, head});
}

}  // namespace spillway
