#include "src/store/content_key.h"

#include <fmt/format.h>

#include "src/base/hash.h"
#include "src/checkpoint/model_folder.h"
#include "src/store/store_table.h"

namespace spillway {
namespace {

constexpr const char* kConfig = "config.json";
constexpr int64_t kMaxConfigBytes = 1 << 20;

}  // namespace

std::string CheckpointContentKey(const std::filesystem::path& folder_path,
                                 const ModelShape& shape) {
  const ModelFolder folder(folder_path);
  std::string text = "checkpoint\n" + ShapeText(shape) + "\n";
  for (const std::string& name : folder.Files()) {
    const FileIdentity identity = folder.Open(name).identity();
    text += fmt::format("{} {} {}\n", name, identity.size, identity.modified_ns);
  }
  if (folder.Has(kConfig)) text += folder.Open(kConfig).ReadStart(kMaxConfigBytes);
  return HashDigits(TextHash(text));
}

std::string DummyContentKey(const ModelShape& shape, uint64_t seed) {
  return HashDigits(TextHash(fmt::format("dummy\n{}\n{}", ShapeText(shape), seed)));
}

}  // namespace spillway
