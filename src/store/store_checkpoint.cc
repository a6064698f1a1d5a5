#include "src/store/store_checkpoint.h"

#include <algorithm>
#include <cstring>
#include <mutex>
#include <numeric>
#include <utility>

#include "spillway/error.h"
#include "src/checkpoint/model_folder.h"
#include "src/memory/arena.h"
#include "src/store/store_table.h"

namespace spillway {
namespace {

// Room for a tile, and which one it holds: a piece that ends within a tile is often followed by one
// that begins there.
struct TileBuffer {
  explicit TileBuffer(int64_t bytes) : memory(bytes) {}

  HostArena memory;
  int64_t tensor = -1;
  int64_t tile = -1;
};

class StoreCheckpoint final : public Checkpoint {
 public:
  explicit StoreCheckpoint(std::unique_ptr<const Store> store) : store_(std::move(store)) {
    const std::vector<StoredTensorTable>& stored = store_->tensors();
    order_.resize(stored.size());
    std::iota(order_.begin(), order_.end(), std::size_t{0});
    std::ranges::sort(order_, {}, [&](std::size_t at) { return stored[at].spec.name; });
    for (const std::size_t at : order_) {
      const TensorSpec& spec = stored[at].spec;
      std::vector<int64_t> sizes = {spec.rows};
      if (!spec.is_vector()) sizes.push_back(spec.cols);
      tensors_.push_back({spec.name, spec.dtype, std::move(sizes), spec.bytes()});
    }
  }

  std::string_view format() const override { return "store"; }
  const std::vector<CheckpointTensor>& tensors() const override { return tensors_; }
  void Read(int64_t index, int64_t offset, std::span<std::byte> out) const override;
  void VisitFiles(const std::function<void(const ModelFile&)>& visit) const override {
    visit(ModelFolder(store_->path()).Open(kStoreTableName));
  }
  void FreeBuffers() const override {
    const std::lock_guard lock(mutex_);
    idle_.clear();
  }

 private:
  using Buffer = std::unique_ptr<TileBuffer>;

  // The buffer that holds the tile already, or any that no thread uses.
  Buffer Take(int64_t tensor, int64_t tile) const;
  void GiveBack(Buffer buffer) const;
  Buffer ReadTile(int64_t tensor, int64_t tile) const;

  std::unique_ptr<const Store> store_;
  std::vector<CheckpointTensor> tensors_;
  std::vector<std::size_t> order_;  // of tensors_[i] in the store
  mutable std::mutex mutex_;
  mutable std::vector<Buffer> idle_;  // guarded by mutex_
};

StoreCheckpoint::Buffer StoreCheckpoint::Take(int64_t tensor, int64_t tile) const {
  {
    const std::lock_guard lock(mutex_);
    const auto holds = std::ranges::find_if(idle_, [&](const Buffer& buffer) {
      return buffer->tensor == tensor && buffer->tile == tile;
    });
    if (holds != idle_.end()) std::swap(*holds, idle_.back());
    if (!idle_.empty()) {
      Buffer buffer = std::move(idle_.back());
      idle_.pop_back();
      return buffer;
    }
  }
  return std::make_unique<TileBuffer>(store_->MaxTileBytes());
}

void StoreCheckpoint::GiveBack(Buffer buffer) const {
  const std::lock_guard lock(mutex_);
  idle_.push_back(std::move(buffer));
}

StoreCheckpoint::Buffer StoreCheckpoint::ReadTile(int64_t tensor, int64_t tile) const {
  Buffer buffer = Take(tensor, tile);
  if (buffer->tensor == tensor && buffer->tile == tile) return buffer;
  buffer->tensor = -1;  // until the tile is whole
  const StoredTile& stored =
      store_->tensors()[static_cast<std::size_t>(tensor)].tiles[static_cast<std::size_t>(tile)];
  store_->ReadTile(tensor, tile, buffer->memory.View({0, stored.padded_bytes()}));
  buffer->tensor = tensor;
  buffer->tile = tile;
  return buffer;
}

void StoreCheckpoint::Read(int64_t index, int64_t offset, std::span<std::byte> out) const {
  const auto tensor = static_cast<int64_t>(order_.at(static_cast<std::size_t>(index)));
  const StoredTensorTable& table = store_->tensors()[static_cast<std::size_t>(tensor)];
  const int64_t end = offset + static_cast<int64_t>(out.size());
  SPILLWAY_CHECK(offset >= 0 && end <= table.spec.bytes());
  const int64_t row_bytes = table.spec.row_bytes();
  for (std::size_t tile = 0; tile < table.tiles.size(); ++tile) {
    const int64_t tile_begin = table.tiles[tile].rows.begin * row_bytes;
    const int64_t from = std::max(offset, tile_begin);
    const int64_t to = std::min(end, tile_begin + table.tiles[tile].bytes);
    if (from >= to) continue;
    Buffer buffer = ReadTile(tensor, static_cast<int64_t>(tile));
    const std::span<std::byte> bytes = buffer->memory.View({from - tile_begin, to - from});
    std::memcpy(out.data() + (from - offset), bytes.data(), bytes.size());
    GiveBack(std::move(buffer));
  }
}

}  // namespace

std::unique_ptr<Checkpoint> MakeStoreCheckpoint(std::unique_ptr<const Store> store) {
  return std::make_unique<StoreCheckpoint>(std::move(store));
}

}  // namespace spillway
