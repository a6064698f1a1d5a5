#include "src/checkpoint/weight_map.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <set>

#include "spillway/error.h"

namespace spillway {
namespace {

constexpr std::array<std::string_view, 2> kHeads = {"lm_head.weight", "embed_out.weight"};

// The name with "model." in front and without, the longer one first.
std::array<std::string, 2> Variants(const std::string& name) {
  constexpr std::string_view kModel = "model.";
  if (name.starts_with(kModel)) return {name, name.substr(kModel.size())};
  return {std::string(kModel) + name, name};
}

// Names by which the tensor may be found.
std::vector<std::string> NamesOf(const Model& model, TensorRef ref) {
  const TensorSpec& spec = model.Tensor(ref);
  std::vector<std::string> names = {spec.name};
  for (const TensorSource& source : spec.sources) names.push_back(source.name);
  // The first tensor is the embedding's table.
  if (model.shape.tied_head && ref.layer == 0 && ref.index == 0)
    names.insert(names.end(), kHeads.begin(), kHeads.end());
  return names;
}

// Text in front of a variant of one of the names, if `tensor` ends in one; the longest
// variant counts.
std::optional<std::string> PrefixOf(const std::string& tensor,
                                    const std::vector<std::string>& names) {
  std::optional<std::string> prefix;
  for (const std::string& name : names) {
    for (const std::string& variant : Variants(name)) {
      if (!tensor.ends_with("." + variant)) continue;
      std::string before = tensor.substr(0, tensor.size() - variant.size());
      if (!prefix || before.size() < prefix->size()) prefix = std::move(before);
    }
  }
  return prefix;
}

// Looks up tensors in a checkpoint whose names may all have a prefix that is none of the usual
// ones.
class TensorNames {
 public:
  TensorNames(const Model& model, const Checkpoint& checkpoint) : checkpoint_(checkpoint) {
    const std::vector<std::string> table = NamesOf(model, {0, 0});
    if (std::ranges::any_of(table, [&](const auto& name) { return checkpoint.Find(name) >= 0; }))
      return;
    std::set<std::string> prefixes;
    for (const CheckpointTensor& tensor : checkpoint.tensors()) {
      if (const auto prefix = PrefixOf(tensor.name, table)) prefixes.insert(*prefix);
    }
    if (prefixes.size() == 1) prefix_ = *prefixes.begin();
  }

  int64_t Find(const std::string& name) const {
    if (prefix_.empty()) return checkpoint_.Find(name);
    for (const std::string& variant : Variants(name)) {
      if (const int64_t index = checkpoint_.FindExact(prefix_ + variant); index >= 0) return index;
    }
    return -1;
  }

 private:
  const Checkpoint& checkpoint_;
  std::string prefix_;
};

FoundTensor FindTensor(const TensorNames& names, const Model& model, TensorRef ref) {
  const TensorSpec& spec = model.Tensor(ref);
  if (const int64_t index = names.Find(spec.name); index >= 0) return {index, 0, spec.rows};
  for (const TensorSource& source : spec.sources) {
    const int64_t index = names.Find(source.name);
    const int64_t num_rows = source.num_rows > 0 ? source.num_rows : spec.rows;
    if (index >= 0) {
      return {index, source.first_row, num_rows, source.transposed, source.runs, source.stacked};
    }
  }
  for (const std::string& name : NamesOf(model, ref)) {
    if (const int64_t index = names.Find(name); index >= 0) return {index, 0, spec.rows};
  }
  return {};
}

void CheckUsable(const TensorSpec& spec, const FoundTensor& found, const CheckpointTensor& tensor) {
  if (!tensor.refusal.empty()) throw Error(ErrorCode::kModelUnsupported, tensor.refusal);
  std::vector<int64_t> expected = {found.num_rows};
  if (!spec.is_vector()) expected.insert(expected.begin() + (found.transposed ? 0 : 1), spec.cols);
  if (found.stacked.count > 0) expected.insert(expected.begin(), found.stacked.count);
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

// Shows the checkpoint's own names: where none fits they tell more than those that are missing.
[[noreturn]] void ThrowOtherNames(const Model& model, const Checkpoint& checkpoint) {
  constexpr std::size_t kShown = 2;
  std::vector<std::string> names;
  for (const CheckpointTensor& tensor : checkpoint.tensors()) {
    if (names.size() < kShown) names.push_back(fmt::format("\"{}\"", Printable(tensor.name, 50)));
  }
  throw Error(ErrorCode::kModelInconsistent,
              fmt::format("no tensor has a name that config.json implies, as \"{}\": the weights "
                          "have {}; check that both belong to the same model",
                          model.layers.front().tensors.front().name, fmt::join(names, ", ")));
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
  const bool comparable = head_tensor.refusal.empty() &&
                          head_tensor.dtype == embedding_tensor.dtype &&
                          head_tensor.shape == embedding_tensor.shape;
  if (comparable && SameBytes(checkpoint, head, embedding)) return;
  throw Error(
      ErrorCode::kModelInconsistent,
      fmt::format("config.json ties the head to the embedding, but \"{}\" differs from \"{}\"; set "
                  "\"tie_word_embeddings\" to false to use it, or remove it",
                  Printable(head_tensor.name), Printable(embedding_tensor.name)));
}

// Heads that the model has no use for: its own is the embedding's table.
void UseTiedHeads(const TensorNames& names, const Checkpoint& checkpoint, int64_t table,
                  std::vector<bool>& used) {
  for (const std::string_view name : kHeads) {
    const int64_t head = names.Find(std::string(name));
    if (head < 0 || used[static_cast<std::size_t>(head)]) continue;
    CheckTiedHead(checkpoint, head, table);
    used[static_cast<std::size_t>(head)] = true;
  }
}

// Refuses weights of a layer behind the last: the config would leave out a part of the model. A
// family that publishes layers of another kind there (to predict more tokens) must not come here.
void CheckNumLayers(const TensorNames& names, const Model& model) {
  const int64_t num_layers = model.shape.num_layers;
  const std::string last = fmt::format(".{}.", num_layers - 1);
  for (const LayerSpec& layer : model.layers) {
    for (const TensorSpec& spec : layer.tensors) {
      // The first number is the layer's, others are of experts.
      const std::size_t digit = spec.name.find_first_of("0123456789");
      if (digit == std::string::npos || digit == 0) continue;
      if (spec.name.compare(digit - 1, last.size(), last) != 0) continue;
      const std::string next =
          std::string(spec.name).replace(digit, last.size() - 2, std::to_string(num_layers));
      if (names.Find(next) < 0) continue;
      throw Error(ErrorCode::kModelInconsistent,
                  fmt::format("the config has {} layers, but the weights have \"{}\" too; check "
                              "that both belong to the same model",
                              num_layers, Printable(next)));
    }
  }
}

}  // namespace

int64_t FoundTensor::PublishedRow(int64_t row) const {
  if (runs.rows == 0) return first_row + row;
  return first_row + row / runs.rows * runs.stride + row % runs.rows;
}

int64_t FoundTensor::NumTogether(int64_t row) const {
  return runs.rows == 0 ? num_rows - first_row - row : runs.rows - row % runs.rows;
}

int64_t FindWeight(const Model& model, const Checkpoint& checkpoint, TensorRef ref) {
  return FindTensor(TensorNames(model, checkpoint), model, ref).index;
}

WeightMap ResolveWeights(const Model& model, const Checkpoint& checkpoint) {
  const TensorNames names(model, checkpoint);
  WeightMap map;
  std::vector<bool> used(checkpoint.tensors().size(), false);
  std::vector<std::string> missing;
  std::size_t num_tensors = 0;
  for (const LayerSpec& layer : model.layers) {
    std::vector<FoundTensor>& tensors = map.tensors.emplace_back();
    const auto layer_index = static_cast<int32_t>(map.tensors.size()) - 1;
    for (const TensorSpec& spec : layer.tensors) {
      ++num_tensors;
      const FoundTensor found =
          FindTensor(names, model, {layer_index, static_cast<int32_t>(tensors.size())});
      tensors.push_back(found);
      if (found.index < 0) {
        missing.push_back(spec.name);
        continue;
      }
      CheckUsable(spec, found, checkpoint.tensors()[static_cast<std::size_t>(found.index)]);
      used[static_cast<std::size_t>(found.index)] = true;
    }
  }
  if (missing.size() == num_tensors) ThrowOtherNames(model, checkpoint);
  if (!missing.empty()) ThrowMissing(model, missing, num_tensors);
  CheckNumLayers(names, model);
  UseTiedHeads(names, checkpoint, map.tensors.front().front().index, used);
  for (std::size_t index = 0; index < used.size(); ++index) {
    if (!used[index]) map.surplus.push_back(checkpoint.tensors()[index].name);
  }
  return map;
}

}  // namespace spillway
