#include "src/store/store.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "spillway/error.h"
#include "src/base/hash.h"
#include "src/base/system_error.h"
#include "src/checkpoint/model_folder.h"

namespace spillway {
namespace {

// opt-175b's table has 12 MiB.
constexpr int64_t kMaxTableBytes = 256 << 20;

Descriptor OpenStoreFolder(const std::filesystem::path& path) {
  Descriptor folder(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (folder.valid()) return folder;
  ThrowSystemError(errno, Printable(path.native()), ErrorCode::kModelMissing,
                   "give the folder of a converted model");
}

bool HasEntry(int folder, const char* name) {
  return ::faccessat(folder, name, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

void CheckFinished(const std::filesystem::path& path, int folder) {
  if (HasEntry(folder, kStoreTableName)) return;
  const bool begun = HasEntry(folder, kStoreWeightsName);
  throw Error(begun ? ErrorCode::kModelTruncated : ErrorCode::kModelMissing,
              fmt::format("{}: {}; convert the model again", Printable(path.native()),
                          begun ? "the conversion did not finish" : "holds no converted model"));
}

StoreTable ReadTable(int folder) {
  const DiskFile file = DiskFile::OpenAt(folder, kStoreTableName, DiskMode::kBuffered);
  if (file.size() > kMaxTableBytes) {
    throw Error(ErrorCode::kModelMalformed,
                fmt::format("{}: has {} bytes, which no store needs; convert the model again",
                            kStoreTableName, file.size()));
  }
  std::string text(static_cast<std::size_t>(file.size()), '\0');
  file.ReadAt(0, std::as_writable_bytes(std::span(text)));
  return ParseStoreTable(text);
}

void CheckSize(const StoreTable& table, const DiskFile& file) {
  if (file.size() == table.weights_bytes) return;
  const bool cut = file.size() < table.weights_bytes;
  throw Error(cut ? ErrorCode::kModelTruncated : ErrorCode::kModelInconsistent,
              fmt::format("{}: has {} bytes, but its tiles take {}; convert the model again",
                          kStoreWeightsName, file.size(), table.weights_bytes));
}

// The tokenizer and the settings that the model was converted with decide its answers as the
// weights do.
void CheckCompanions(const StoreTable& table, const std::filesystem::path& path) {
  const ModelFolder folder(path);
  for (const StoredCompanion& companion : table.companions) {
    const ModelFile file = folder.Open(companion.name);
    if (TextHash(file.ReadStart(file.size())) == companion.hash) continue;
    throw Error(ErrorCode::kCorrupt,
                fmt::format("{}: is not what it was when the model was converted; restore it, or "
                            "convert the model again",
                            companion.name));
  }
}

}  // namespace

Store::Store(StoreTable table, const std::filesystem::path& path, int folder_fd, DiskMode mode)
    : table_(std::move(table)),
      path_(path),
      file_(DiskFile::OpenAt(folder_fd, kStoreWeightsName, mode)) {
  CheckSize(table_, file_);
}

Store OpenStore(const std::filesystem::path& path, DiskMode mode) {
  const Descriptor folder = OpenStoreFolder(path);
  CheckFinished(path, folder.get());
  try {
    StoreTable table = ReadTable(folder.get());
    CheckCompanions(table, path);
    return Store(std::move(table), path, folder.get(), mode);
  } catch (const Error& error) {  // of one of its files
    throw Error(error.code(), fmt::format("{}/{}", Printable(path.native()), error.what()));
  }
}

const StoredTile& Store::Tile(int64_t tensor, int64_t tile) const {
  SPILLWAY_CHECK(tensor >= 0 && tensor < static_cast<int64_t>(table_.tensors.size()));
  const std::vector<StoredTile>& tiles = table_.tensors[static_cast<std::size_t>(tensor)].tiles;
  SPILLWAY_CHECK(tile >= 0 && tile < static_cast<int64_t>(tiles.size()));
  return tiles[static_cast<std::size_t>(tile)];
}

DiskRequest Store::TileRequest(int64_t tensor, int64_t tile, std::span<std::byte> memory) const {
  const StoredTile& stored = Tile(tensor, tile);
  SPILLWAY_CHECK(static_cast<int64_t>(memory.size()) == stored.padded_bytes());
  return {DiskOp::kRead, &file_, stored.offset, memory};
}

void Store::Verify(int64_t tensor, int64_t tile, std::span<const std::byte> memory) const {
  const StoredTile& stored = Tile(tensor, tile);
  SPILLWAY_CHECK(static_cast<int64_t>(memory.size()) == stored.padded_bytes());
  if (BlockHash(memory) == stored.hash) return;
  throw Error(
      ErrorCode::kCorrupt,
      fmt::format(
          "{}: tile {} of tensor \"{}\" ({} bytes at {}) {}; delete the store, it can be made from "
          "the model again",
          Printable((path_ / kStoreWeightsName).native()), tile,
          Printable(table_.tensors[static_cast<std::size_t>(tensor)].spec.name),
          stored.padded_bytes(), stored.offset,
          file_.Changed() ? "changed: the file was written to while it was in use" : "is damaged"));
}

void Store::Rewrite(int64_t tensor, int64_t tile, std::span<const std::byte> memory) const {
  Verify(tensor, tile, memory);
  const std::filesystem::path path = path_ / kStoreWeightsName;
  const Descriptor file(::open(path.c_str(), O_WRONLY | O_NOFOLLOW | O_CLOEXEC));
  if (!file.valid()) return;
  int64_t offset = Tile(tensor, tile).offset;
  while (!memory.empty()) {
    const ssize_t written = ::pwrite(file.get(), memory.data(), memory.size(), offset);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return;  // what is half written is found damaged again
    memory = memory.subspan(static_cast<std::size_t>(written));
    offset += written;
  }
  ::fdatasync(file.get());
}

void Store::ReadTile(int64_t tensor, int64_t tile, std::span<std::byte> memory) const {
  const DiskRequest request = TileRequest(tensor, tile, memory);
  file_.ReadAt(request.offset, memory);
  if (BlockHash(memory) == Tile(tensor, tile).hash) return;
  file_.ReadAt(request.offset, memory);
  Verify(tensor, tile, memory);
}

bool IsStoreFolder(const std::filesystem::path& path) {
  const Descriptor folder(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  return folder.valid() &&
         (HasEntry(folder.get(), kStoreTableName) || HasEntry(folder.get(), kStoreWeightsName));
}

StoreState ProbeStore(const std::filesystem::path& path, std::string_view content_key) {
  if (!IsStoreFolder(path)) return StoreState::kAbsent;
  try {
    const Store store = OpenStore(path);
    return store.content_key() == content_key ? StoreState::kReady : StoreState::kStale;
  } catch (const Error& error) {
    // Failures that conversion would not cure are for the user to see.
    if (error.code() == ErrorCode::kIo || error.code() == ErrorCode::kSystemLimit ||
        error.code() == ErrorCode::kPath) {
      throw;
    }
    return StoreState::kUnusable;
  }
}

}  // namespace spillway
