#include "src/checkpoint/weight_map.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>

#include "spillway/error.h"

namespace spillway {
namespace {

constexpr std::string_view kHead = "lm_head.weight";
constexpr std::string_view kEmbedding = "decoder.embed_tokens.weight";

// The final norm was "decoder.layer_norm" before transformers 4.20, and still is in FlexGen's
// folders.
int64_t FindTensor(const Checkpoint& checkpoint, std::string_view name) {
  const int64_t index = checkpoint.Find(name);
  constexpr std::string_view kNorm = "decoder.final_layer_norm.";
  if (index >= 0 || !name.starts_with(kNorm)) return index;
  return checkpoint.Find(std::string("decoder.layer_norm.").append(name.substr(kNorm.size())));
}

void CheckShape(const TensorSpec& spec, const CheckpointTensor& tensor) {
  std::vector<int64_t> expected = {spec.rows};
  if (!spec.is_vector()) expected.push_back(spec.cols);
  if (tensor.shape == expected) return;
  throw Error(ErrorCode::kModelInconsistent,
              fmt::format("tensor \"{}\" is [{}], but config.json implies [{}]; check that both "
                          "belong to the same model",
                          Printable(tensor.name),
                          Printable(fmt::format("{}", fmt::join(tensor.shape, ", "))),
                          fmt::join(expected, ", ")));
}

// Five names fit into one line only without what they share.
[[noreturn]] void ThrowMissing(const std::vector<std::string>& missing, std::size_t num_tensors) {
  constexpr std::size_t kShown = 5;
  constexpr std::string_view kPrefix = "decoder.";
  std::vector<std::string_view> names;
  for (const std::string& name : missing) {
    if (names.size() == kShown) break;
    names.emplace_back(name);
    if (name.starts_with(kPrefix)) names.back().remove_prefix(kPrefix.size());
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
void CheckTiedHead(const Checkpoint& checkpoint) {
  const int64_t head = checkpoint.Find(kHead);
  const int64_t embedding = checkpoint.Find(kEmbedding);
  if (head < 0 || embedding < 0) return;
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

WeightMap ResolveWeights(const std::vector<LayerSpec>& layers, const Checkpoint& checkpoint) {
  WeightMap map;
  std::vector<bool> used(checkpoint.tensors().size(), false);
  std::vector<std::string> missing;
  std::size_t num_tensors = 0;
  for (const LayerSpec& layer : layers) {
    std::vector<int64_t>& indices = map.indices.emplace_back();
    for (const TensorSpec& spec : layer.tensors) {
      ++num_tensors;
      const int64_t index = FindTensor(checkpoint, spec.name);
      indices.push_back(index);
      if (index < 0) {
        missing.push_back(spec.name);
        continue;
      }
      CheckShape(spec, checkpoint.tensors()[static_cast<std::size_t>(index)]);
      used[static_cast<std::size_t>(index)] = true;
    }
  }
  if (!missing.empty()) ThrowMissing(missing, num_tensors);
  if (const int64_t head = checkpoint.Find(kHead);
      head >= 0 && !used[static_cast<std::size_t>(head)]) {
    CheckTiedHead(checkpoint);
    used[static_cast<std::size_t>(head)] = true;
  }
  for (std::size_t index = 0; index < used.size(); ++index) {
    if (!used[index]) map.surplus.push_back(checkpoint.tensors()[index].name);
  }
  return map;
}

}  // namespace spillway
