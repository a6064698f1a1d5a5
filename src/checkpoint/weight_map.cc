#include "src/checkpoint/weight_map.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "spillway/error.h"

namespace spillway {
namespace {

constexpr std::array<std::string_view, 2> kHeads = {"lm_head.weight", "embed_out.weight"};

FoundTensor FindTensor(const Checkpoint& checkpoint, const TensorSpec& spec) {
  if (const int64_t index = checkpoint.Find(spec.name); index >= 0) return {index, 0, spec.rows};
  for (const TensorSource& source : spec.sources) {
    const int64_t index = checkpoint.Find(source.name);
    const int64_t num_rows = source.num_rows > 0 ? source.num_rows : spec.rows;
    if (index >= 0) return {index, source.first_row, num_rows, source.transposed, source.runs};
  }
  return {};
}

void CheckShape(const TensorSpec& spec, const FoundTensor& found, const CheckpointTensor& tensor) {
  std::vector<int64_t> expected = {found.num_rows};
  if (!spec.is_vector()) expected.insert(expected.begin() + (found.transposed ? 0 : 1), spec.cols);
  if (tensor.shape == expected) return;
  throw Error(ErrorCode::kModelInconsistent,
              fmt::format("tensor \"{}\" is [{}], but config.json implies [{}]; check that both "
                          "belong to the same model",
                          Printable(tensor.name),
                          Printable(fmt::format("{}", fmt::join(tensor.shape, ", "))),
                          fmt::join(expected, ", ")));
}

// Up to the first dot, where that is the same in every name but those of the head; or nothing.
std::string_view SharedPrefix(const Model& model) {
  const std::string_view first = model.layers.front().tensors.front().name;
  const std::string_view prefix = first.substr(0, first.find('.') + 1);
  const bool shared = std::ranges::all_of(model.layers, [&](const LayerSpec& layer) {
    return layer.part == ComputePart::kHead ||
           std::ranges::all_of(layer.tensors, [&](const TensorSpec& spec) {
             return spec.name.starts_with(prefix);
           });
  });
  return shared ? prefix : std::string_view();
}

// Five names fit into one line only without what all share.
[[noreturn]] void ThrowMissing(const Model& model, const std::vector<std::string>& missing,
                               std::size_t num_tensors) {
  constexpr std::size_t kShown = 5;
  const std::string_view prefix = SharedPrefix(model);
  std::vector<std::string_view> names;
  for (const std::string& name : missing) {
    if (names.size() == kShown) break;
    names.emplace_back(name);
    if (name.starts_with(prefix)) names.back().remove_prefix(prefix.size());
  }
  throw Error(
      ErrorCode::kModelInconsistent,
      fmt::format("{} of {} tensors missing, download again: {}{}", missing.size(), num_tensors,
                  fmt::join(names, ", "), missing.size() > kShown ? ", ..." : ""));
}

bool SameBytes(const Checkpoint& checkpoint, int64_t left, int64_t right) {
  constexpr int64_t kChunkBytes = 1 << 20;
  const int64_t bytes = checkpoint.tensors()[static_cast<std::size_t>(left)].bytes;
  std::vector<std::byte> left_bytes(kChunkBytes);
  std::vector<std::byte> right_bytes(kChunkBytes);
  for (int64_t offset = 0; offset < bytes; offset += kChunkBytes) {
    const auto count = static_cast<std::size_t>(std::min(kChunkBytes, bytes - offset));
    checkpoint.Read(left, offset, std::span(left_bytes).first(count));
    checkpoint.Read(right, offset, std::span(right_bytes).first(count));
    if (std::memcmp(left_bytes.data(), right_bytes.data(), count) != 0) return false;
  }
  return true;
}

// A head that differs from the embedding it is said to be tied to was trained apart. transformers 5
// uses it in spite of config.json, earlier versions drop it: rather ask than guess.
void CheckTiedHead(const Checkpoint& checkpoint, int64_t head, int64_t embedding) {
  const CheckpointTensor& head_tensor = checkpoint.tensors()[static_cast<std::size_t>(head)];
  const CheckpointTensor& embedding_tensor =
      checkpoint.tensors()[static_cast<std::size_t>(embedding)];
  const bool comparable =
      head_tensor.dtype == embedding_tensor.dtype && head_tensor.shape == embedding_tensor.shape;
  if (comparable && SameBytes(checkpoint, head, embedding)) return;
  throw Error(
      ErrorCode::kModelInconsistent,
      fmt::format("config.json ties the head to the embedding, but \"{}\" differs from \"{}\"; set "
                  "\"tie_word_embeddings\" to false to use it, or remove it",
                  Printable(head_tensor.name), Printable(embedding_tensor.name)));
}

}  // namespace

int64_t FoundTensor::PublishedRow(int64_t row) const {
  if (runs.rows == 0) return first_row + row;
  return first_row + row / runs.rows * runs.stride + row % runs.rows;
}

int64_t FoundTensor::NumTogether(int64_t row) const {
  return runs.rows == 0 ? num_rows - first_row - row : runs.rows - row % runs.rows;
}

WeightMap ResolveWeights(const Model& model, const Checkpoint& checkpoint) {
  WeightMap map;
  std::vector<bool> used(checkpoint.tensors().size(), false);
  std::vector<std::string> missing;
  std::size_t num_tensors = 0;
  for (const LayerSpec& layer : model.layers) {
    std::vector<FoundTensor>& tensors = map.tensors.emplace_back();
    for (const TensorSpec& spec : layer.tensors) {
      ++num_tensors;
      const FoundTensor found = FindTensor(checkpoint, spec);
      tensors.push_back(found);
      if (found.index < 0) {
        missing.push_back(spec.name);
        continue;
      }
      CheckShape(spec, found, checkpoint.tensors()[static_cast<std::size_t>(found.index)]);
      used[static_cast<std::size_t>(found.index)] = true;
    }
  }
  if (!missing.empty()) ThrowMissing(model, missing, num_tensors);
  for (const std::string_view name : kHeads) {
    const int64_t head = checkpoint.Find(name);
    if (head < 0 || used[static_cast<std::size_t>(head)]) continue;
    // The model has none of its own, so its head is the embedding's table.
    CheckTiedHead(checkpoint, head, map.tensors.front().front().index);
    used[static_cast<std::size_t>(head)] = true;
  }
  for (std::size_t index = 0; index < used.size(); ++index) {
    if (!used[index]) map.surplus.push_back(checkpoint.tensors()[index].name);
  }
  return map;
}

}  // namespace spillway
