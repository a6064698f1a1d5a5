#include "src/store/folder_key.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <vector>

#include "src/base/hash.h"
#include "src/checkpoint/model_folder.h"

namespace spillway {
namespace {

// Training changes every part of a file, so that a few samples tell two models apart.
std::string SamplesOf(const ModelFile& file) {
  constexpr int64_t kSamples = 16;
  constexpr int64_t kSampleBytes = 4096;
  std::vector<std::byte> bytes(kSampleBytes);
  uint64_t hash = 0;
  for (int64_t sample = 0; sample < kSamples; ++sample) {
    const int64_t last = std::max<int64_t>(0, file.size() - kSampleBytes);
    const auto view =
        std::span(bytes).first(static_cast<std::size_t>(std::min(kSampleBytes, file.size())));
    file.ReadAt(last * sample / (kSamples - 1), view);
    hash = BlockHash(view, hash);
  }
  return fmt::format("{} {} {}\n", file.name(), file.size(), HashDigits(hash));
}

}  // namespace

std::string SampledFolderKey(const std::filesystem::path& path) {
  const ModelFolder folder(path);
  std::string text;
  for (const std::string& name : folder.Files()) text += SamplesOf(folder.Open(name));
  return HashDigits(TextHash(text));
}

}  // namespace spillway
