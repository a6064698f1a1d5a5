#include "spillway/model.h"

#include <algorithm>
#include <utility>

#include "spillway/error.h"
#include "spillway/round.h"
#include "src/model/family.h"
#include "src/model/model_builder.h"

namespace spillway {
namespace {

bool HasDenseMlps(const ModelShape& shape) {
  const std::vector<bool>& dense = shape.experts.dense;
  return shape.experts.num == 0 || std::ranges::find(dense, true) != dense.end();
}

}  // namespace

Model MakeModel(ModelShape shape) {
  const Family* family = FindFamily(shape.family);
  SPILLWAY_CHECK(family != nullptr);  // readers of shapes refuse every other
  ModelBuilder builder(shape);
  family->add_layers(shape, builder);
  return builder.Take();
}

DType LayerDType(const ModelShape& shape, int64_t matrix) {
  if (shape.layer_codes.empty() || shape.weight_bits != 16) return MatrixDType(shape);
  if (shape.layer_codes.size() == 1) return shape.layer_codes.front();
  SPILLWAY_CHECK(matrix < std::ssize(shape.layer_codes));
  return shape.layer_codes[static_cast<std::size_t>(matrix)];
}

std::vector<TensorRef> MatricesOfLayers(ModelShape shape) {
  constexpr DType kMark = DType::kInt8;  // what is held otherwise has another
  shape.weight_bits = 16;
  shape.layer_codes = {kMark};
  const Model model = MakeModel(std::move(shape));
  std::vector<TensorRef> matrices;
  for (std::size_t layer = 0; layer < model.layers.size(); ++layer) {
    const std::vector<TensorSpec>& tensors = model.layers[layer].tensors;
    for (std::size_t tensor = 0; tensor < tensors.size(); ++tensor) {
      if (tensors[tensor].dtype == kMark)
        matrices.push_back({static_cast<int32_t>(layer), static_cast<int32_t>(tensor)});
    }
  }
  return matrices;
}

int64_t WidthOf(const ModelShape& shape, Buf buf) {
  const int64_t q = shape.num_heads * shape.head_dim;
  switch (buf) {
    case Buf::kHidden:
    case Buf::kNormed:
    case Buf::kExpertIn:
    case Buf::kExpertRows:
      return shape.hidden_size;
    case Buf::kQkv:
      return q + 2 * shape.num_kv_heads * shape.head_dim;
    case Buf::kAttended:
      return q;
    case Buf::kInner:
    case Buf::kGate:
      return std::max({HasDenseMlps(shape) ? shape.ffn_size : 0, shape.experts.ffn_size,
                       shape.experts.shared_ffn});
    case Buf::kChoice:
      return 2 * shape.experts.slots();
    case Buf::kRouter:
      return shape.experts.num + 1;
    case Buf::kEmbedded:
      return shape.embed_size;
    case Buf::kLogits:
      break;
  }
  return shape.vocab_size;
}

int64_t StateWidth(const ModelShape& shape) {
  if (shape.experts.num == 0) return shape.hidden_size;
  constexpr int64_t kLine = 16;  // floats: rows begin as aligned as the first one
  return RoundUp(StateColumn(shape, Buf::kChoice) + WidthOf(shape, Buf::kChoice), kLine);
}

int64_t StateColumn(const ModelShape& shape, Buf buf) {
  SPILLWAY_CHECK(IsState(buf));
  if (buf == Buf::kHidden) return 0;
  return buf == Buf::kExpertIn ? shape.hidden_size : 2 * shape.hidden_size;
}

std::vector<int64_t> WindowsOf(const Model& model) {
  std::vector<int64_t> windows;
  for (const LayerSpec& layer : model.layers) {
    if (Attends(layer.ops)) windows.push_back(AttendOf(layer.ops).window);
  }
  return windows;
}

int64_t NumParameters(const Model& model) {
  int64_t count = 0;
  for (const LayerSpec& layer : model.layers) {
    for (const TensorSpec& tensor : layer.tensors) count += tensor.rows * tensor.cols;
  }
  return count;
}

int64_t WeightBytes(const Model& model) {
  int64_t bytes = 0;
  for (const LayerSpec& layer : model.layers) {
    for (const TensorSpec& tensor : layer.tensors) bytes += tensor.bytes();
  }
  return bytes;
}

std::optional<ModelShape> BuiltInShape(std::string_view name) {
  const auto lower = [](char c) {
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  };
  for (const Family* family : Families()) {
    for (ModelShape& shape : family->sizes()) {
      if (!std::ranges::equal(shape.name, name, {}, {}, lower)) continue;
      shape.family = family->model_type;
      shape.bos = family->bos;
      if (family->eos >= 0) shape.eos = {family->eos};
      shape.pad = family->pad;
      return std::move(shape);
    }
  }
  return std::nullopt;
}

std::vector<std::string> BuiltInShapeNames() {
  std::vector<std::string> names;
  for (const Family* family : Families()) {
    for (const ModelShape& shape : family->sizes()) names.push_back(shape.name);
  }
  return names;
}

}  // namespace spillway
