#include "src/checkpoint/dummy.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <utility>

#include "kernels/rows/random_fill.h"
#include "spillway/error.h"

namespace spillway {
namespace {

// How a tensor's elements are made. A uniform variable in [-scale, scale) has the deviation scale /
// sqrt(3).
struct Recipe {
  uint64_t seed = 0;
  float scale = 0;     // 0: every element is `constant`
  float constant = 0;  // vectors only, so fp32
};

// FNV-1a: tensors of the same name have the same bytes in every shape that has them in that size.
uint64_t HashOf(std::string_view name) {
  uint64_t hash = 0xCBF29CE484222325;
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001B3;
  return hash;
}

Recipe MakeRecipe(const TensorSpec& spec, uint64_t seed) {
  const float root3 = std::sqrt(3.0F);
  Recipe recipe{.seed = seed ^ HashOf(spec.name)};
  switch (spec.role) {
    case TensorRole::kNormWeight:
      recipe.constant = 1;
      break;
    case TensorRole::kNormBias:
      break;
    case TensorRole::kTokenEmbedding:
    case TensorRole::kPositionEmbedding:
    case TensorRole::kHeadWeight:
      recipe.scale = 0.02F * root3;
      break;
    default:
      recipe.scale =
          spec.is_vector() ? 0.02F * root3 : root3 / std::sqrt(static_cast<float>(spec.cols));
      break;
  }
  return recipe;
}

// Requires: `out` is whole elements.
void FillElements(const Recipe& recipe, DType dtype, int64_t first_element,
                  std::span<std::byte> out) {
  if (recipe.scale > 0) {
    kernels::FillUniform(out, dtype, recipe.seed, static_cast<uint64_t>(first_element),
                         recipe.scale);
    return;
  }
  SPILLWAY_CHECK(dtype == DType::kF32);
  for (std::size_t at = 0; at < out.size(); at += sizeof(float)) {
    std::memcpy(out.data() + at, &recipe.constant, sizeof(float));
  }
}

class DummyCheckpoint : public Checkpoint {
 public:
  DummyCheckpoint(const ModelShape& shape, uint64_t seed) {
    std::vector<TensorSpec> specs;
    for (LayerSpec& layer : Layers(shape)) {
      for (TensorSpec& spec : layer.tensors) specs.push_back(std::move(spec));
    }
    std::ranges::sort(specs, {}, &TensorSpec::name);
    for (TensorSpec& spec : specs) {
      recipes_.push_back(MakeRecipe(spec, seed));
      std::vector<int64_t> sizes = {spec.rows};
      if (!spec.is_vector()) sizes.push_back(spec.cols);
      tensors_.push_back({std::move(spec.name), spec.dtype, std::move(sizes), spec.bytes()});
    }
  }

  std::string_view format() const override { return "dummy weights"; }
  const std::vector<CheckpointTensor>& tensors() const override { return tensors_; }
  void Read(int64_t index, int64_t offset, std::span<std::byte> out) const override;

 private:
  std::vector<CheckpointTensor> tensors_;
  std::vector<Recipe> recipes_;  // of tensors_[i]
};

void DummyCheckpoint::Read(int64_t index, int64_t offset, std::span<std::byte> out) const {
  const CheckpointTensor& tensor = tensors_.at(static_cast<std::size_t>(index));
  const Recipe& recipe = recipes_[static_cast<std::size_t>(index)];
  SPILLWAY_CHECK(offset >= 0 && static_cast<int64_t>(out.size()) <= tensor.bytes - offset);
  const int64_t element_bytes = DTypeBytes(tensor.dtype);
  // A cut element at either end is made whole, aside, and only its part is taken.
  const auto take_part = [&] {
    std::array<std::byte, sizeof(float)> element{};
    FillElements(recipe, tensor.dtype, offset / element_bytes,
                 std::span(element).first(static_cast<std::size_t>(element_bytes)));
    const int64_t begin = offset % element_bytes;
    const auto count = std::min(out.size(), static_cast<std::size_t>(element_bytes - begin));
    std::memcpy(out.data(), element.data() + begin, count);
    out = out.subspan(count);
    offset += static_cast<int64_t>(count);
  };
  if (offset % element_bytes != 0 && !out.empty()) take_part();
  const std::size_t whole = out.size() / static_cast<std::size_t>(element_bytes) *
                            static_cast<std::size_t>(element_bytes);
  if (whole > 0) FillElements(recipe, tensor.dtype, offset / element_bytes, out.first(whole));
  offset += static_cast<int64_t>(whole);
  out = out.subspan(whole);
  if (!out.empty()) take_part();
}

}  // namespace

std::unique_ptr<Checkpoint> MakeDummyCheckpoint(const ModelShape& shape, uint64_t seed) {
  return std::make_unique<DummyCheckpoint>(shape, seed);
}

}  // namespace spillway
