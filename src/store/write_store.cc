#include "src/store/write_store.h"

#include <algorithm>
#include <cstring>
#include <string_view>
#include <vector>

#include "spillway/error.h"
#include "src/base/hash.h"
#include "src/store/part_folder.h"

namespace spillway {
namespace {

// Tiles on their way to disk: the staging in slots, used in turn.
class TileWriter {
 public:
  TileWriter(DiskQueue& queue, const DiskFile& file, std::span<std::byte> staging,
             int64_t slot_bytes)
      : queue_(queue),
        file_(file),
        staging_(staging),
        slot_bytes_(slot_bytes),
        tickets_(staging.size() / static_cast<std::size_t>(slot_bytes)) {
    SPILLWAY_CHECK(!tickets_.empty());
  }

  // Waits for what is under way, which refers to the file and the staging.
  ~TileWriter() {
    for (const DiskTicket ticket : tickets_) {
      try {
        queue_.Wait(ticket);
      } catch (const Error&) {
        // The error that brought us here is the one to tell.
      }
    }
  }
  TileWriter(const TileWriter&) = delete;
  TileWriter& operator=(const TileWriter&) = delete;

  // Memory for a tile, free to be filled.
  std::span<std::byte> Next(const StoredTile& tile) {
    queue_.Wait(tickets_[slot_]);
    return staging_.subspan(slot_ * static_cast<std::size_t>(slot_bytes_),
                            static_cast<std::size_t>(tile.padded_bytes()));
  }

  void Write(const StoredTile& tile, std::span<std::byte> memory) {
    const DiskRequest request = {DiskOp::kWrite, &file_, tile.offset, memory};
    tickets_[slot_] = queue_.Submit({&request, 1});
    slot_ = (slot_ + 1) % tickets_.size();
  }

  void Finish() {
    for (const DiskTicket ticket : tickets_) queue_.Wait(ticket);
  }

 private:
  DiskQueue& queue_;
  const DiskFile& file_;
  std::span<std::byte> staging_;
  int64_t slot_bytes_;
  std::vector<DiskTicket> tickets_;
  std::size_t slot_ = 0;
};

// Writes all tiles and notes their hashes in the table.
void WriteTiles(const StoreJob& job, StoreTable& table, TileWriter& writer) {
  for (StoredTensorTable& tensor : table.tensors) {
    for (StoredTile& tile : tensor.tiles) {
      const std::span<std::byte> memory = writer.Next(tile);
      const auto bytes = static_cast<std::size_t>(tile.bytes);
      job.fill(tensor, tile.rows, memory.first(bytes));
      std::ranges::fill(memory.subspan(bytes), std::byte{0});
      tile.hash = BlockHash(memory);
      writer.Write(tile, memory);
      if (job.progress) job.progress(tile.offset + tile.padded_bytes(), table.weights_bytes);
    }
  }
  writer.Finish();
}

void WriteText(int folder, const char* name, std::string_view text) {
  const DiskFile file =
      DiskFile::CreateAt(folder, name, static_cast<int64_t>(text.size()), DiskMode::kBuffered);
  file.WriteAt(0, std::as_bytes(std::span(text)));
  file.Sync();
}

}  // namespace

int64_t StoreTileBytes(const Model& model) { return LongestTileBytes(LayOutStore(model, {})); }

int64_t StoreStagingBytes(const Model& model) {
  constexpr int64_t kSlots = 4;  // one being filled, three on their way
  return kSlots * StoreTileBytes(model);
}

void WriteStore(const StoreJob& job, const std::filesystem::path& folder, DiskQueue& queue,
                std::span<std::byte> staging) {
  StoreTable table = LayOutStore(job.model, job.content_key);
  PartFolder part(folder, job.replace);
  {
    const DiskFile weights =
        DiskFile::CreateAt(part.fd(), kStoreWeightsName, table.weights_bytes, job.mode);
    TileWriter writer(queue, weights, staging, LongestTileBytes(table));
    WriteTiles(job, table, writer);
    weights.Sync();
  }
  for (const CompanionFile& companion : job.companions) {
    WriteText(part.fd(), companion.name.c_str(), companion.content);
    table.companions.push_back({companion.name, TextHash(companion.content)});
  }
  std::ranges::sort(table.companions, {}, &StoredCompanion::name);
  WriteText(part.fd(), kStoreTableName, StoreTableText(table));
  part.Commit();
}

}  // namespace spillway
