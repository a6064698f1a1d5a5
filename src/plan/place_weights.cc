#include "src/plan/place_weights.h"

#include <algorithm>
#include <functional>
#include <span>
#include <utility>

#include "spillway/error.h"
#include "spillway/round.h"
#include "spillway/schedule.h"
#include "spillway/tile.h"

namespace spillway {
namespace {

// Bytes of a tensor's tiles: the last may be shorter than the others.
struct TileSizes {
  int64_t num_tiles = 0;
  int64_t tile_bytes = 0;
  int64_t last_bytes = 0;

  TileSizes(const TensorSpec& spec, const TileSplit& split)
      : num_tiles(split.num_tiles),
        tile_bytes(spec.row_bytes() * split.Tile(0).size()),
        last_bytes(spec.row_bytes() * split.Tile(split.num_tiles - 1).size()) {}
  int64_t Of(int64_t tile) const { return tile + 1 == num_tiles ? last_bytes : tile_bytes; }
};

// Deals tiles to tiers by their deficit: what a tier should hold by now, less what it holds.
class Dealer {
 public:
  explicit Dealer(const PerTier<double>& frac) : frac_(frac) {}

  // How many of a tensor's tiles each tier gets. The device gets the first rows, then the CPU, then
  // the disk: a product is computed piece by piece, one for each tier's rows, and a GPU computes a
  // hundred pieces of a matrix many times slower than two.
  PerTier<int64_t> DealTensor(const TileSizes& tiles) {
    Dealer trial = *this;
    PerTier<int64_t> counts{};
    for (int64_t tile = 0; tile < tiles.num_tiles; ++tile) {
      const Tier tier = trial.MostWanting(tiles.Of(tile));
      trial.Give(tier, tiles.Of(tile));
      ++counts[tier];
    }
    // The shorter last tile may now be another tier's.
    int64_t tile = 0;
    for (const Tier tier : kAllTiers) {
      for (int64_t end = tile + counts[tier]; tile < end; ++tile) Give(tier, tiles.Of(tile));
    }
    return counts;
  }
  // Bytes that each tier was given.
  const PerTier<int64_t>& held() const { return held_; }

 private:
  Tier MostWanting(int64_t bytes) const {
    const auto dealt = static_cast<double>(dealt_ + bytes);
    Tier chosen = Tier::kCpu;
    double most = -1e300;
    for (const Tier tier : kAllTiers) {
      if (frac_[tier] <= 0.0) continue;
      const double deficit = frac_[tier] * dealt - static_cast<double>(held_[tier]);
      if (deficit <= most) continue;
      most = deficit;
      chosen = tier;
    }
    return chosen;
  }
  void Give(Tier tier, int64_t bytes) {
    dealt_ += bytes;
    held_[tier] += bytes;
  }

  PerTier<double> frac_;
  PerTier<int64_t> held_;
  int64_t dealt_ = 0;
};

// A run of staging and the layers during which it is taken: from the one in which it is filled,
// around the end of the pass.
struct StagedRun {
  int64_t bytes = 0;
  int64_t first_layer = 0;
  int64_t num_layers = 0;
  int64_t offset = -1;

  bool TakenWith(const StagedRun& other, int64_t cycle) const {
    const auto begins_in = [cycle](const StagedRun& a, const StagedRun& b) {
      return (b.first_layer - a.first_layer + cycle) % cycle < a.num_layers;
    };
    return begins_in(*this, other) || begins_in(other, *this);
  }
};

// Gives each run the lowest offset that no run taken at the same time overlaps, largest first.
// Returns the bytes of it all.
int64_t PackRuns(std::vector<StagedRun>& runs, int64_t cycle) {
  std::vector<StagedRun*> order;
  for (StagedRun& run : runs) order.push_back(&run);
  std::ranges::stable_sort(order, std::greater<>(), &StagedRun::bytes);
  int64_t end = 0;
  std::vector<const StagedRun*> placed;
  for (StagedRun* run : order) {
    std::vector<const StagedRun*> taken;
    for (const StagedRun* other : placed) {
      if (run->TakenWith(*other, cycle)) taken.push_back(other);
    }
    std::ranges::sort(taken, {}, &StagedRun::offset);
    run->offset = 0;
    for (const StagedRun* other : taken) {
      if (run->offset + run->bytes <= other->offset) break;
      run->offset = std::max(run->offset, other->offset + other->bytes);
    }
    end = std::max(end, run->offset + run->bytes);
    placed.push_back(run);
  }
  return end;
}

// Lays a tensor's tiles off the device one behind the other, in whole disk blocks.
int64_t StageTensor(PlannedTensor& tensor, Tier device, int64_t begin) {
  for (WeightTile& tile : tensor.tiles) {
    if (tile.tier == device) continue;
    tile.place = begin;
    begin += RoundUp(TileBytes(tensor.spec, tile), kTileAlignBytes);
  }
  return begin;
}

void MoveStaged(PlannedTensor& tensor, Tier device, int64_t bytes) {
  for (WeightTile& tile : tensor.tiles) {
    if (tile.tier != device) tile.place += bytes;
  }
}

// Staging that is taken from the cells in which `layer` begins to be filled to the last cells of
// `until`; the cells of all layers of a group go on from its first batch to its last.
StagedRun RunOf(const Schedule& grid, int64_t layer, int64_t until) {
  const int64_t cycle = grid.num_layers();
  const int64_t begin = grid.Layer((layer + cycle - grid.weight_lookahead) % cycle).group_begin;
  return {0, begin, (grid.Layer(until).group_end - begin + cycle) % cycle + 1};
}

int64_t Stage(PlacedWeights& placed, Tier device, const StagingTimes& times) {
  Schedule grid;
  grid.layers = MakeGrid(placed.layers, times.order);
  grid.weight_lookahead = times.lookahead;
  std::vector<StagedRun> runs;
  std::vector<std::vector<PlannedTensor*>> contents;
  for (int64_t layer = 0; layer < grid.num_layers(); ++layer) {
    // Filled while the layers before it are computed.
    StagedRun run = RunOf(grid, layer, layer);
    contents.emplace_back();
    for (PlannedTensor& tensor : placed.layers[static_cast<std::size_t>(layer)].tensors) {
      if (tensor.comes_with >= 0) {
        // Kept from the later layer that uses it to the next pass's own.
        StagedRun shared = RunOf(grid, tensor.comes_with, layer);
        shared.bytes = StageTensor(tensor, device, 0);
        runs.push_back(shared);
        contents.insert(contents.end() - 1, std::vector<PlannedTensor*>{&tensor});
      } else {
        run.bytes = StageTensor(tensor, device, run.bytes);
        contents.back().push_back(&tensor);
      }
    }
    runs.push_back(run);
  }
  const int64_t bytes = PackRuns(runs, grid.num_layers());
  for (std::size_t run = 0; run < runs.size(); ++run) {
    for (PlannedTensor* tensor : contents[run]) MoveStaged(*tensor, device, runs[run].offset);
  }
  return bytes;
}

// Neighbours in the same memory become one run, so that a product sees as few pieces as it can.
void MergeTiles(PlannedTensor& tensor) {
  std::vector<WeightTile> merged;
  for (const WeightTile& tile : tensor.tiles) {
    if (!merged.empty() && tile.tier == merged.back().tier && tile.tier != Tier::kDisk) {
      WeightTile& last = merged.back();
      const int64_t bytes = TileBytes(tensor.spec, last);
      if (tile.offset == last.offset + bytes && tile.place == last.place + bytes) {
        last.row_end = tile.row_end;
        continue;
      }
    }
    merged.push_back(tile);
  }
  tensor.tiles = std::move(merged);
}

// Tensors of the first layer that later ones use as well.
void NoteShared(const std::vector<LayerSpec>& specs, std::vector<PlannedLayer>& layers) {
  for (std::size_t layer = 1; layer < specs.size(); ++layer) {
    for (const TensorRef ref : TensorsOf(specs[layer].ops)) {
      if (ref.layer == static_cast<int64_t>(layer)) continue;
      SPILLWAY_CHECK(ref.layer == 0);
      layers.front().tensors[static_cast<std::size_t>(ref.index)].comes_with =
          static_cast<int64_t>(layer);
    }
  }
}

void AddMoves(const PlannedTensor& tensor, Tier device, std::vector<WeightMove>& moves) {
  for (const WeightTile& tile : tensor.tiles) {
    if (tile.tier != device) moves.push_back({&tensor, &tile});
  }
}

// Deals a tensor's tiles and takes their room: in their tiers' arenas, and in the store that holds
// all of them.
PlannedTensor PlaceTensor(const TensorSpec& spec, Dealer& dealer, ArenaLayouts& arenas,
                          ArenaLayout& store) {
  const TileSplit split = SplitIntoTiles(spec.rows, spec.cols, spec.dtype);
  const TileSizes sizes(spec, split);
  const PerTier<int64_t> counts = dealer.DealTensor(sizes);
  PlannedTensor tensor{spec, {}};
  tensor.tiles.reserve(static_cast<std::size_t>(split.num_tiles));
  int64_t index = 0;
  for (const Tier tier : kAllTiers) {
    for (const int64_t end = index + counts[tier]; index < end; ++index) {
      const RowRange rows = split.Tile(index);
      WeightTile tile{tier, rows.begin, rows.end, index, 0};
      if (tier != Tier::kDisk) tile.offset = tile.place = arenas[tier].Take(sizes.Of(index)).offset;
      store.Take(sizes.Of(index));
      tensor.tiles.push_back(tile);
    }
  }
  return tensor;
}

}  // namespace

PlacedWeights PlaceWeights(const Model& model, const PerTier<double>& frac, Tier device,
                           const StagingTimes& times, ArenaLayouts& arenas) {
  PlacedWeights placed;
  Dealer dealer(frac);
  ArenaLayout store(kTileAlignBytes);
  int64_t num_tensors = 0;
  for (const LayerSpec& layer : model.layers) {
    PlannedLayer out{layer.part, layer.decoder_layer, {}, layer.ops, Attends(layer.ops)};
    for (const TensorSpec& spec : layer.tensors) {
      out.tensors.push_back(PlaceTensor(spec, dealer, arenas, store));
      out.tensors.back().store_tensor = num_tensors++;
    }
    placed.layers.push_back(std::move(out));
  }
  placed.bytes = dealer.held();
  if (placed.bytes[Tier::kDisk] > 0) arenas[Tier::kDisk].Take(store.end());
  NoteShared(model.layers, placed.layers);
  placed.staging_bytes = Stage(placed, device, times);
  for (PlannedLayer& layer : placed.layers) {
    for (PlannedTensor& tensor : layer.tensors) MergeTiles(tensor);
  }
  return placed;
}

void PlaceStaging(std::vector<PlannedLayer>& layers, Tier device, int64_t begin) {
  for (PlannedLayer& layer : layers) {
    for (PlannedTensor& tensor : layer.tensors) MoveStaged(tensor, device, begin);
  }
}

std::vector<WeightMove> MovesOf(const Plan& plan, int64_t layer) {
  std::vector<WeightMove> moves;
  ForEachTensorComingWith(
      plan, layer, [&](const PlannedTensor& tensor) { AddMoves(tensor, plan.device(), moves); });
  return moves;
}

std::vector<WeightMove> FirstMoves(const Plan& plan) {
  std::vector<WeightMove> moves;
  for (const PlannedTensor& tensor : plan.layers.front().tensors) {
    AddMoves(tensor, plan.device(), moves);
  }
  return moves;
}

}  // namespace spillway
