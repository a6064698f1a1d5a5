// WriteStore: makes a Store, whole or not at all. The folder appears under its name when every byte
// is on disk; until then it is NAME.part beside it, which never passes for a store.
// Thread rule: one call at a time per queue and staging; `fill` and `progress` run on this thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "spillway/model.h"
#include "spillway/tile.h"
#include "src/io/disk_queue.h"
#include "src/store/companions.h"
#include "src/store/store_table.h"

namespace spillway {

struct StoreJob {
  Model model;
  std::string content_key;  // what it is made from; see content_key.h

  // Fills `out` with these rows of the tensor, row-major, in tensor.spec.dtype. What it throws ends
  // the conversion and is passed on.
  std::function<void(const StoredTensorTable& tensor, RowRange rows, std::span<std::byte> out)>
      fill;

  std::function<void(int64_t bytes_done, int64_t bytes_total)> progress;  // may be empty
  std::vector<CompanionFile> companions;                                  // copied beside the table
  bool replace = false;  // whether a store of that name is replaced
  DiskMode mode = DiskMode::kDirect;
};

// The staging that WriteStore needs at least, and with which it overlaps filling and writing.
int64_t StoreTileBytes(const Model& model);
int64_t StoreStagingBytes(const Model& model);

// Uses no memory but `staging` and the table (WeightBytes / 2 MiB entries of 48 bytes).
// Requires: staging of StoreTileBytes or more, aligned to kDiskBlockBytes.
// Throws: Error kOutputExists (something has the name, and it is not a store or not to be
// replaced), kRunInUse (another process is making it), kDiskSpace (before the first byte is
// converted), kPath, kIo, kSystemLimit, and what `fill` throws. Then nothing is left behind.
void WriteStore(const StoreJob& job, const std::filesystem::path& folder, DiskQueue& queue,
                std::span<std::byte> staging);

}  // namespace spillway
