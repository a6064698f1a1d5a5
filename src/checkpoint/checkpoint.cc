#include "src/checkpoint/checkpoint.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "spillway/error.h"
#include "src/base/part_number.h"
#include "src/checkpoint/file_checkpoint.h"
#include "src/checkpoint/model_folder.h"
#include "src/checkpoint/numpy_folder.h"
#include "src/checkpoint/safetensors.h"
#include "src/checkpoint/shard_index.h"
#include "src/checkpoint/torch_file.h"

namespace spillway {
namespace {

std::unique_ptr<Checkpoint> MakeCheckpoint(std::vector<WeightsFile> shards) {
  const std::string_view format = shards.front().format;
  return std::make_unique<FileCheckpoint>(format, std::move(shards));
}

std::unique_ptr<Checkpoint> OneFile(WeightsFile shard) {
  std::vector<WeightsFile> shards;
  shards.push_back(std::move(shard));
  return MakeCheckpoint(std::move(shards));
}

// The index that a shard (NAME-00001-of-00002.EXTENSION) is read by; empty: it is no shard.
std::string IndexOfShard(const std::filesystem::path& file) {
  const bool holds_weights = file.extension() == ".safetensors" || file.extension() == ".bin";
  const std::optional<NumberedName> part = PartNumberOf(file);
  if (!holds_weights || !part) return {};
  return WholeOfPart(file, part->number, part->count).string() + ".index.json";
}

[[noreturn]] void ThrowNoWeights(const ModelFolder& folder) {
  const std::string place = Printable(folder.path().string(), 120);
  for (const std::string& name : folder.Files()) {
    const std::string index = IndexOfShard(name);
    if (index.empty()) continue;
    throw Error(ErrorCode::kModelMissing,
                fmt::format("{}: has {}, but not the index of such parts, {}; download that file "
                            "too",
                            place, Printable(name, 60), Printable(index, 60)));
  }
  throw Error(ErrorCode::kModelMissing,
              fmt::format("{}: holds no weights (model.safetensors, pytorch_model.bin, their index "
                          "files or numpy arrays); download the model",
                          place));
}

}  // namespace

void Checkpoint::ReadRows(int64_t /*index*/, int64_t /*first_row*/,
                          std::span<std::byte> /*out*/) const {
  SPILLWAY_CHECK(false);  // no tensor is held in codes
}

int64_t Checkpoint::FindExact(std::string_view name) const {
  const auto at = std::ranges::lower_bound(
      tensors(), name, {},
      [](const CheckpointTensor& tensor) -> std::string_view { return tensor.name; });
  return at != tensors().end() && at->name == name ? at - tensors().begin() : -1;
}

int64_t Checkpoint::Find(std::string_view name) const {
  constexpr std::string_view kPrefix = "model.";
  // The text part of a larger model, as transformers names it before 4.52, since then, and in
  // memory; its head has the first of the prefixes.
  constexpr std::array<std::string_view, 5> kTextPrefixes = {
      "language_model.", "language_model.model.", "model.language_model.", "text_model.",
      "model.text_model."};
  const int64_t exact = FindExact(name);
  if (exact >= 0) return exact;
  if (name.starts_with(kPrefix)) return FindExact(name.substr(kPrefix.size()));
  int64_t found = FindExact(std::string(kPrefix).append(name));
  for (const std::string_view prefix : kTextPrefixes) {
    if (found < 0) found = FindExact(std::string(prefix).append(name));
  }
  return found;
}

std::unique_ptr<Checkpoint> OpenCheckpoint(const std::filesystem::path& path) {
  ModelFolder folder(path);
  if (folder.Has("model.safetensors")) {
    return OneFile(ReadSafetensors(folder.Open("model.safetensors")));
  }
  if (folder.Has("model.safetensors.index.json")) {
    return MakeCheckpoint(ReadShards(folder, "model.safetensors.index.json", ReadSafetensors));
  }
  if (folder.Has("pytorch_model.bin")) {
    return OneFile(ReadTorchFile(folder.Open("pytorch_model.bin")));
  }
  if (folder.Has("pytorch_model.bin.index.json")) {
    return MakeCheckpoint(ReadShards(folder, "pytorch_model.bin.index.json", ReadTorchFile));
  }
  if (IsNumpyFolder(folder)) return OpenNumpyFolder(std::move(folder));
  ThrowNoWeights(folder);
}

std::unique_ptr<Checkpoint> OpenWeightsFile(const std::filesystem::path& path) {
  const std::string name = path.filename().string();
  const bool is_torch = name.starts_with("pytorch_model") && name.ends_with(".bin");
  if (!is_torch && !name.ends_with(".safetensors")) return nullptr;
  const ModelFolder folder(path.has_parent_path() ? path.parent_path() : ".");
  ModelFile file = folder.Open(name);
  return OneFile(is_torch ? ReadTorchFile(std::move(file)) : ReadSafetensors(std::move(file)));
}

}  // namespace spillway
