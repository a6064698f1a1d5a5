#include "src/checkpoint/dummy.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <utility>
#include <variant>

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

// Use of a tensor in the model, which decides how it is made.
enum class Use { kOther, kOnes, kZeros, kTable };

// Uses of all tensors, [layer][tensor]. A table that is a head too stays a table.
class TensorUses {
 public:
  explicit TensorUses(const Model& model) {
    for (const LayerSpec& layer : model.layers)
      uses_.emplace_back(layer.tensors.size(), Use::kOther);
    for (const LayerSpec& layer : model.layers) {
      for (const Op& op : layer.ops) std::visit([&](const auto& of) { Note(of); }, op);
    }
  }

  Use Of(std::size_t layer, std::size_t tensor) const { return uses_[layer][tensor]; }

 private:
  void Note(const Gather& gather) { Set(gather.table, Use::kTable); }
  void Note(const Norm& norm) {
    Set(norm.weight, NormWeight(norm.weight_offset));
    Set(norm.bias, Use::kZeros);
  }
  void Note(const HeadNorm& norm) { Set(norm.weight, NormWeight(norm.weight_offset)); }
  void Note(const Linear& linear) {
    if (linear.y.buf == Buf::kLogits) Set(linear.weight, Use::kTable);
  }
  void Note(const Rotate&) {}
  void Note(const Attend&) {}
  void Note(const SoftCap&) {}
  void Note(const Choose&) {}
  void Note(const Experts&) {}

  // Norms multiply by one.
  static Use NormWeight(float offset) { return offset == 1.0F ? Use::kZeros : Use::kOnes; }

  void Set(TensorRef ref, Use use) {
    if (!ref.exists()) return;
    uses_[static_cast<std::size_t>(ref.layer)][static_cast<std::size_t>(ref.index)] = use;
  }

  std::vector<std::vector<Use>> uses_;
};

Recipe MakeRecipe(const TensorSpec& spec, Use use, uint64_t seed) {
  const float root3 = std::sqrt(3.0F);
  Recipe recipe{.seed = seed ^ HashOf(spec.name)};
  switch (use) {
    case Use::kOnes:
      recipe.constant = 1;
      break;
    case Use::kZeros:
      break;
    case Use::kTable:
      recipe.scale = 0.02F * root3;
      break;
    case Use::kOther:
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
  DummyCheckpoint(const Model& model, uint64_t seed) {
    const TensorUses uses(model);
    std::vector<std::pair<TensorSpec, Recipe>> made;
    for (std::size_t layer = 0; layer < model.layers.size(); ++layer) {
      const std::vector<TensorSpec>& specs = model.layers[layer].tensors;
      for (std::size_t tensor = 0; tensor < specs.size(); ++tensor)
        made.emplace_back(specs[tensor], MakeRecipe(specs[tensor], uses.Of(layer, tensor), seed));
    }
    std::ranges::sort(made, {}, [](const auto& one) { return one.first.name; });
    for (auto& [spec, recipe] : made) {
      recipes_.push_back(recipe);
      std::vector<int64_t> sizes = {spec.rows};
      if (!spec.is_vector()) sizes.push_back(spec.cols);
      tensors_.push_back({std::move(spec.name), spec.dtype, std::move(sizes), spec.bytes()});
    }
  }

  std::string_view format() const override { return "dummy weights"; }
  void VisitFiles(const std::function<void(const ModelFile&)>& /*visit*/) const override {}
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

std::unique_ptr<Checkpoint> MakeDummyCheckpoint(const Model& model, uint64_t seed) {
  return std::make_unique<DummyCheckpoint>(model, seed);
}

}  // namespace spillway
