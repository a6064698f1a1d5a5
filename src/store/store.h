// Store: a model converted to this program's own form, a folder with store.json (the table) and
// weights.bin (tiles at 4 KiB boundaries, in the type they have in memory). Opened here; made by
// WriteStore. Thread rule: const methods from any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "src/io/disk_file.h"
#include "src/io/disk_transfer.h"
#include "src/store/store_table.h"

namespace spillway {

// Stays where it was made, as its file does.
class Store {
 public:
  const ModelShape& shape() const { return table_.shape; }
  const std::string& content_key() const { return table_.content_key; }
  const std::vector<StoredTensorTable>& tensors() const { return table_.tensors; }
  const std::filesystem::path& path() const { return path_; }  // the folder
  const DiskFile& file() const { return file_; }

  // The most memory that one tile takes, padding included.
  int64_t MaxTileBytes() const { return LongestTileBytes(table_); }

  // The request that reads a tile; check it with Verify. To go through a DiskQueue.
  // Requires (all below): memory of the tile's padded_bytes(), aligned to kDiskBlockBytes.
  DiskRequest TileRequest(int64_t tensor, int64_t tile, std::span<std::byte> memory) const;

  // Throws: Error kCorrupt, naming tensor and tile: the bytes are not those that were converted, or
  // the file was changed since.
  void Verify(int64_t tensor, int64_t tile, std::span<const std::byte> memory) const;

  // Verifies a tile and writes it over what the file has there. A file that may not be written
  // stays as it is. Throws: as Verify.
  void Rewrite(int64_t tensor, int64_t tile, std::span<const std::byte> memory) const;

  // Reads and verifies on this thread; a tile that fails is read once again.
  // Throws: Error kIo, kCorrupt.
  void ReadTile(int64_t tensor, int64_t tile, std::span<std::byte> memory) const;

 private:
  friend Store OpenStore(const std::filesystem::path& folder, DiskMode mode);
  Store(StoreTable table, const std::filesystem::path& path, int folder_fd, DiskMode mode);

  const StoredTile& Tile(int64_t tensor, int64_t tile) const;

  StoreTable table_;
  std::filesystem::path path_;
  DiskFile file_;
};

// Reads and checks the table and the size of weights.bin; no data.
// Throws: Error kModelMissing (no such folder, no store in it), kModelTruncated (a conversion that
// did not finish, or weights.bin is cut off), kModelMalformed, kModelInconsistent,
// kModelUnsupported (version, family), kPath, kSystemLimit, kIo.
Store OpenStore(const std::filesystem::path& folder, DiskMode mode = DiskMode::kDirect);

// Whether the folder looks like a store, finished or not: decides how --model is opened.
bool IsStoreFolder(const std::filesystem::path& folder);

// State of a store that is only a cache. kAbsent, kUnusable
// (half-written, damaged or of another version) and kStale (made from something else) all mean:
// convert.
enum class StoreState { kReady, kAbsent, kUnusable, kStale };
StoreState ProbeStore(const std::filesystem::path& folder, std::string_view content_key);

}  // namespace spillway
