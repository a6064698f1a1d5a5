#include "src/store/repair_store.h"

#include <algorithm>

namespace spillway {

void StoreRepair::Repair(int64_t tensor, int64_t tile, std::span<std::byte> memory) const {
  const StoredTensorTable& table = store_.tensors()[static_cast<std::size_t>(tensor)];
  const StoredTile& stored = table.tiles[static_cast<std::size_t>(tile)];
  const WeightReader reader(origin_.checkpoint, origin_.weights, origin_.nonfinite, 1);
  const std::span<std::byte> rows = memory.first(static_cast<std::size_t>(stored.bytes));
  reader.Read({table.layer, table.index, &table.spec, stored.rows.begin * table.spec.cols}, rows,
              0);
  std::ranges::fill(memory.subspan(rows.size()), std::byte{0});
  store_.Rewrite(tensor, tile, memory);
}

}  // namespace spillway
