#include "src/store/content_key.h"

#include <fmt/format.h>

#include <memory>
#include <vector>

#include "src/base/hash.h"
#include "src/store/companions.h"
#include "src/store/store.h"
#include "src/store/store_checkpoint.h"
#include "src/store/store_table.h"

namespace spillway {
namespace {

std::string FilesText(const Checkpoint& checkpoint, FileHashes& hashes,
                      const HashProgress& progress) {
  std::string text;
  checkpoint.VisitFiles([&](const ModelFile& file) {
    text += fmt::format("{} {}\n", file.name(), HashDigits(hashes.Of(file, progress)));
  });
  hashes.Save();
  return text;
}

std::unique_ptr<Checkpoint> OpenEither(const std::filesystem::path& folder) {
  if (!IsStoreFolder(folder)) return OpenCheckpoint(folder);
  return MakeStoreCheckpoint(std::unique_ptr<const Store>(new Store(OpenStore(folder))));
}

}  // namespace

std::string CheckpointContentKey(const Checkpoint& checkpoint, const ModelShape& shape,
                                 FileHashes& hashes, const HashProgress& progress) {
  return HashDigits(
      TextHash("checkpoint\n" + ShapeText(shape) + "\n" + FilesText(checkpoint, hashes, progress)));
}

std::string DummyContentKey(const ModelShape& shape, uint64_t seed) {
  return HashDigits(TextHash(fmt::format("dummy\n{}\n{}", ShapeText(shape), seed)));
}

std::string PublishedKey(const Checkpoint& checkpoint, const std::filesystem::path& folder,
                         FileHashes& hashes, const HashProgress& progress) {
  return HashDigits(TextHash(FilesText(checkpoint, hashes, progress) +
                             CompanionText(ReadCompanions(folder, {}))));
}

std::string FolderContentKey(const std::filesystem::path& folder, FileHashes& hashes) {
  const std::unique_ptr<Checkpoint> checkpoint = OpenEither(folder);
  return HashDigits(
      TextHash(FilesText(*checkpoint, hashes, {}) + CompanionText(ReadCompanions(folder, folder))));
}

}  // namespace spillway
