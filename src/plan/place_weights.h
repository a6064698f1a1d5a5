// Weights -> tiers, tile by tile, and the staging that the tiles off the device pass through.
// Pure functions; any thread.
#pragma once

#include <cstdint>
#include <vector>

#include "spillway/plan.h"
#include "src/memory/arena_layout.h"

namespace spillway {

struct PlacedWeights {
  std::vector<PlannedLayer> layers;
  PerTier<int64_t> bytes;     // of weights
  int64_t staging_bytes = 0;  // on the device; the tiles' places count from 0 until PlaceStaging
};

// Time at which staged weights come, and how long they are needed.
struct StagingTimes {
  GridOrder order = GridOrder::kByLayer;
  int64_t lookahead = 1;  // layers
};

// Deals the tiles out so that after each tensor every tier holds its share within two tiles: each
// layer then asks the links for the same share, which is what lets one layer's load hide behind
// another's compute. Of a tensor each tier has one run of rows. Takes their room in the arenas of
// memory, and that of a store, which holds all weights, on a disk that any of them lies on.
PlacedWeights PlaceWeights(const Model& model, const PerTier<double>& frac, Tier device,
                           const StagingTimes& times, ArenaLayouts& arenas);

// Moves the places of the tiles off the device to where the staging begins.
void PlaceStaging(std::vector<PlannedLayer>& layers, Tier device, int64_t begin);

// The tiles that are brought to the device with a layer, in the order of the store but for those
// that it shares with the first layer (PlannedTensor::comes_with), which come last. FirstMoves are
// the first layer's in the very first pass, when no later layer was before it.
struct WeightMove {
  const PlannedTensor* tensor = nullptr;
  const WeightTile* tile = nullptr;
};
std::vector<WeightMove> MovesOf(const Plan& plan, int64_t layer);
std::vector<WeightMove> FirstMoves(const Plan& plan);

}  // namespace spillway
