#include "src/checkpoint/checkpoint.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "spillway/error.h"
#include "src/checkpoint/file_checkpoint.h"
#include "src/checkpoint/model_folder.h"
#include "src/checkpoint/numpy_folder.h"
#include "src/checkpoint/safetensors.h"
#include "src/checkpoint/shard_index.h"
#include "src/checkpoint/torch_zip.h"

namespace spillway {
namespace {

int64_t FindExact(const std::vector<CheckpointTensor>& tensors, std::string_view name) {
  const auto at = std::ranges::lower_bound(
      tensors, name, {},
      [](const CheckpointTensor& tensor) -> std::string_view { return tensor.name; });
  return at != tensors.end() && at->name == name ? at - tensors.begin() : -1;
}

std::unique_ptr<Checkpoint> OneFile(std::string_view format, Shard shard) {
  std::vector<Shard> shards;
  shards.push_back(std::move(shard));
  return std::make_unique<FileCheckpoint>(format, std::move(shards));
}

}  // namespace

int64_t Checkpoint::Find(std::string_view name) const {
  constexpr std::string_view kPrefix = "model.";
  // The text part of a larger model, as transformers names it before 4.52, since then, and in
  // memory; its head has the first of the prefixes.
  constexpr std::array<std::string_view, 5> kTextPrefixes = {
      "language_model.", "language_model.model.", "model.language_model.", "text_model.",
      "model.text_model."};
  const int64_t exact = FindExact(tensors(), name);
  if (exact >= 0) return exact;
  if (name.starts_with(kPrefix)) return FindExact(tensors(), name.substr(kPrefix.size()));
  int64_t found = FindExact(tensors(), std::string(kPrefix).append(name));
  for (const std::string_view prefix : kTextPrefixes) {
    if (found < 0) found = FindExact(tensors(), std::string(prefix).append(name));
  }
  return found;
}

std::unique_ptr<Checkpoint> OpenCheckpoint(const std::filesystem::path& path) {
  ModelFolder folder(path);
  if (folder.Has("model.safetensors")) {
    return OneFile("safetensors", ReadSafetensors(folder.Open("model.safetensors")));
  }
  if (folder.Has("model.safetensors.index.json")) {
    return std::make_unique<FileCheckpoint>(
        "safetensors", ReadShards(folder, "model.safetensors.index.json", ReadSafetensors));
  }
  if (folder.Has("pytorch_model.bin")) {
    return OneFile("torch zip", ReadTorchZip(folder.Open("pytorch_model.bin")));
  }
  if (folder.Has("pytorch_model.bin.index.json")) {
    return std::make_unique<FileCheckpoint>(
        "torch zip", ReadShards(folder, "pytorch_model.bin.index.json", ReadTorchZip));
  }
  if (IsNumpyFolder(folder)) return OpenNumpyFolder(std::move(folder));
  throw Error(ErrorCode::kModelMissing,
              fmt::format("{}: holds no weights (model.safetensors, pytorch_model.bin, their index "
                          "files or numpy arrays); download the model",
                          Printable(folder.name())));
}

}  // namespace spillway
