// StoreRepair: damaged tiles of a store that a run made for itself, made from the model again.
// Thread rule: one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "src/checkpoint/checkpoint.h"
#include "src/checkpoint/weight_map.h"
#include "src/store/store.h"
#include "src/store/weight_reader.h"

namespace spillway {

// Weights that the store was made from.
struct StoreOrigin {
  const Checkpoint& checkpoint;
  const WeightMap& weights;
  NonFiniteWeights nonfinite;
};

class StoreRepair {
 public:
  // Lifetime: store and origin outlive the repair.
  StoreRepair(const Store& store, const StoreOrigin& origin) : store_(store), origin_(origin) {}

  // Fills `memory` with what the tile held when the store was made, and writes that to the store's
  // file where it may be written. Rare, so it allocates what it needs.
  // Requires: memory as Store::TileRequest. Throws: Error kCorrupt (the model gives other bytes by
  // now), and what WeightReader::Read throws.
  void Repair(int64_t tensor, int64_t tile, std::span<std::byte> memory) const;

 private:
  const Store& store_;
  StoreOrigin origin_;
};

}  // namespace spillway
