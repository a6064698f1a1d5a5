#include "src/move/mover.h"

#include <algorithm>

#include "spillway/error.h"
#include "spillway/kv_block.h"
#include "spillway/round.h"
#include "spillway/tile.h"
#include "src/plan/place_weights.h"

namespace spillway {
namespace {

Move MoveOf(const WeightMove& weight, const Plan& plan, const Tiers& tiers) {
  const TensorSpec& spec = weight.tensor->spec;
  const WeightTile& tile = *weight.tile;
  Move move;
  move.bytes = TileBytes(spec, tile);
  if (tile.tier == Tier::kDisk) {
    move.kind = MoveKind::kReadTile;
    move.bytes = RoundUp(move.bytes, kTileAlignBytes);
    move.store_tensor = weight.tensor->store_tensor;
    move.store_tile = tile.offset;
  } else {
    move.host = tiers.arena(tile.tier).As<std::byte>({tile.offset, move.bytes});
  }
  move.device = tiers.arena(plan.device()).As<std::byte>({tile.place, move.bytes});
  return move;
}

std::vector<Move> MovesFor(const std::vector<WeightMove>& weights, const Plan& plan,
                           const Tiers& tiers) {
  std::vector<Move> moves;
  for (const WeightMove& weight : weights) moves.push_back(MoveOf(weight, plan, tiers));
  return moves;
}

}  // namespace

Mover::Mover(const Plan& plan, const Tiers& tiers, TraceLog* trace_log)
    : plan_(plan),
      tiers_(tiers),
      first_moves_(MovesFor(FirstMoves(plan), plan, tiers)),
      experts_(plan),
      kv_log_(plan, tiers),
      streams_(plan, tiers, trace_log),
      order_(plan, streams_) {
  for (std::size_t layer = 0; layer < plan.layers.size(); ++layer) {
    weight_moves_.push_back(MovesFor(MovesOf(plan, static_cast<int64_t>(layer)), plan, tiers));
  }
  moves_.reserve(static_cast<std::size_t>(MaxRowMoves(plan)));
}

void Mover::Begin(const Task& task, const PackedBatch& batch) {
  order_.Begin(task,
               task.kind == TaskKind::kLoadWeights ? WeightMoves(task) : RowMoves(task, batch));
}

std::span<const Move> Mover::WeightMoves(const Task& task) {
  const auto layer = static_cast<std::size_t>(task.cell.layer);
  const bool first = !order_.HasLoadedWeights();
  SPILLWAY_CHECK(!first || (layer == 0 && task.num_shares == 1));
  const std::vector<Move>& moves = first ? first_moves_ : weight_moves_[layer];
  const auto size = static_cast<int64_t>(moves.size());
  const int64_t begin = size * task.share / task.num_shares;
  const int64_t end = size * (task.share + 1) / task.num_shares;
  const std::span<const Move> share = std::span(moves).subspan(
      static_cast<std::size_t>(begin), static_cast<std::size_t>(end - begin));
  if (first || !order_.has_grid()) return share;  // no router has chosen yet
  return experts_.Needed(order_.grid(), task, share, begin);
}

std::span<const Move> Mover::RowMoves(const Task& task, const PackedBatch& batch) {
  moves_.clear();
  switch (task.kind) {
    case TaskKind::kLoadKv:
      AddKvIn(task.cell, batch);
      break;
    case TaskKind::kStoreKv:
      AddKvOut(task.cell, batch);
      break;
    case TaskKind::kLoadHidden:
      AddHiddenRuns(task.cell, batch, Direction::kIn);
      break;
    case TaskKind::kStoreHidden:
      AddHiddenRuns(task.cell, batch, Direction::kOut);
      break;
    case TaskKind::kLoadWeights:
    case TaskKind::kCompute:
      SPILLWAY_CHECK(false);
  }
  return moves_;
}

// The blocks that hold tokens, of rows that are not attended to where they lie.
void Mover::AddKvIn(const Cursor& cell, const PackedBatch& batch) {
  const KvLogMoves::Cell logged = LogCellOf(cell);
  for (std::size_t row = 0; row < batch.rows.size(); ++row) {
    const PackedRow& packed = batch.rows[row];
    const int64_t num_whole = packed.num_past - kv_log_.NumLogged(logged, packed);
    AddKvSlots(cell, batch, row, Direction::kIn, [&](const KvKeep& keep) {
      return SlotRange{0, keep.NumHeld(num_whole)};
    });
  }
  kv_log_.AddIn(logged, batch, moves_);
}

// The blocks that this pass changed, unless the log gets it.
void Mover::AddKvOut(const Cursor& cell, const PackedBatch& batch) {
  const KvLogMoves::Cell logged = LogCellOf(cell);
  for (std::size_t index = 0; index < batch.rows.size(); ++index) {
    const PackedRow& row = batch.rows[index];
    if (kv_log_.GoesToLog(logged, row)) continue;
    AddKvSlots(cell, batch, index, Direction::kOut, [&](const KvKeep& keep) {
      return ChangedSlots(plan_.kept.kind, keep,
                          {row.num_past - row.num_decoded, row.num_past, row.num_stored()});
    });
  }
  kv_log_.AddOut(logged, batch, moves_);
}

// The blocks in which the slots lie that `slots_of` names of each run's keep.
template <typename F>
void Mover::AddKvSlots(const Cursor& cell, const PackedBatch& batch, std::size_t index,
                       Direction direction, F slots_of) {
  const Tier tier = batch.rows[index].kv_tier;
  if (plan_.KvInPlace(tier)) return;
  const KvRowAt row = {KvClassOf(cell), KvPlaceOf(cell, batch, index).row_tokens,
                       plan_.DecoderLayerOf(cell), batch.rows[index].kv_less};
  ForEachKvBlockRange(plan_, tier, row, slots_of, [&](const KvBlockRange& blocks) {
    AddKvRuns(cell, batch, index, blocks, direction);
  });
}

void Mover::AddKvRuns(const Cursor& cell, const PackedBatch& batch, std::size_t index,
                      const KvBlockRange& blocks, Direction direction) {
  const PackedRow& row = batch.rows[index];
  const int64_t block_bytes = plan_.KvBlockBytes(row.kv_tier);
  const int64_t run_blocks = std::max<int64_t>(1, kRunBytes / block_bytes);
  const int64_t row_block =
      KvPlaceOf(cell, batch, index).slot_begin / plan_.slot_align[row.kv_tier];
  const int64_t decoder_layer = plan_.DecoderLayerOf(cell);
  for (int64_t at = blocks.begin; at < blocks.end; at += run_blocks) {
    const int64_t num_blocks = std::min(run_blocks, blocks.end - at);
    const int64_t offset = (row_block + at) * block_bytes;
    Move move;
    move.bytes = num_blocks * block_bytes;
    move.device = KvStaged(row.kv_tier, cell) + offset;
    move.on_host = plan_.kv_staging.tier == Tier::kCpu;
    move.outward = direction == Direction::kOut;
    if (row.kv_tier == Tier::kDisk) {
      move.kind = move.outward ? MoveKind::kWriteScratch : MoveKind::kReadScratch;
      move.scratch = tiers_.kv_scratch();
      move.run = {decoder_layer, cell.batch, row_block + at, num_blocks};
    } else {
      move.host = KvHome(row.kv_tier, cell.batch, decoder_layer) + offset;
    }
    moves_.push_back(move);
  }
}

KvLogMoves::Cell Mover::LogCellOf(const Cursor& cell) const {
  if (!plan_.kv_log.exists()) return {};
  return {cell, order_.grid().KvSlot(cell), KvStaged(Tier::kDisk, cell)};
}

void Mover::AddHiddenRuns(const Cursor& cell, const PackedBatch& batch, Direction direction) {
  for (const Tier tier : kAllTiers) {
    if (tier == plan_.device()) continue;
    const bool on_disk = tier == Tier::kDisk;
    int64_t bytes = batch.hidden[tier].size() * plan_.HiddenRowBytes();
    if (on_disk) bytes = RoundUp(bytes, kHiddenBlockBytes);
    for (int64_t at = 0; at < bytes; at += kRunBytes) {
      Move move;
      move.bytes = std::min(kRunBytes, bytes - at);
      move.device = HiddenStaged(cell, batch, tier) + at;
      move.outward = direction == Direction::kOut;
      if (on_disk) {
        move.kind = move.outward ? MoveKind::kWriteScratch : MoveKind::kReadScratch;
        move.scratch = tiers_.hidden_scratch();
        move.run = {0, cell.batch, at / kHiddenBlockBytes, move.bytes / kHiddenBlockBytes};
      } else {
        move.host = HiddenHome(tier, cell.batch) + at;
      }
      moves_.push_back(move);
    }
  }
}

CellPlaces Mover::WaitForLoads(const Cursor& at, const PackedBatch& batch) {
  order_.WaitForLoads(at);
  const bool attends = plan_.layers[static_cast<std::size_t>(at.layer)].attends;
  CellPlaces places;
  for (const Tier tier : kAllTiers) {
    if (attends) {
      places.kv[tier] = plan_.KvInPlace(tier) ? KvHome(tier, at.batch, plan_.DecoderLayerOf(at))
                                              : KvStaged(tier, at);
    }
    places.hidden[tier] = reinterpret_cast<float*>(
        tier == plan_.device() ? HiddenHome(tier, at.batch) : HiddenStaged(at, batch, tier));
  }
  return places;
}

std::byte* Mover::KvHome(Tier tier, int64_t batch, int64_t decoder_layer) const {
  const RowShare& share = plan_.kv[tier];
  if (share.size == 0 || tier == Tier::kDisk) return nullptr;
  return tiers_.arena(tier).As<std::byte>(
      {share.region.offset + plan_.KvOffset(tier, batch, decoder_layer),
       plan_.KvSlots(tier, decoder_layer) * plan_.slot_bytes});
}

// Staged shares lie one behind the other, in the order of the tiers.
std::byte* Mover::KvStaged(Tier tier, const Cursor& cell) const {
  int64_t slots_before = 0;
  for (const Tier before : kAllTiers) {
    if (before == tier) break;
    if (!plan_.KvInPlace(before)) slots_before += plan_.kv[before].size;
  }
  const Region& staging = plan_.kv_staging.slots[order_.grid().KvSlot(cell)];
  return tiers_.arena(plan_.kv_staging.tier).View(staging).data() + slots_before * plan_.slot_bytes;
}

std::byte* Mover::HiddenHome(Tier tier, int64_t batch) const {
  const RowShare& share = plan_.hidden[tier];
  if (share.size == 0 || tier == Tier::kDisk) return nullptr;
  const int64_t bytes = share.size * plan_.HiddenRowBytes();
  return tiers_.arena(tier).As<std::byte>({share.region.offset + batch * bytes, bytes});
}

// Staged tokens lie one behind the other as they are packed.
std::byte* Mover::HiddenStaged(const Cursor& cell, const PackedBatch& batch, Tier tier) const {
  int64_t tokens_before = 0;
  for (const Tier before : kAllTiers) {
    if (before == tier) break;
    if (before != plan_.device()) tokens_before += batch.hidden[before].size();
  }
  const Region& staging = plan_.hidden_staging.slots[order_.grid().HiddenSlot(cell)];
  return tiers_.arena(plan_.hidden_staging.tier).View(staging).data() +
         tokens_before * plan_.HiddenRowBytes();
}

int64_t Mover::KvClassOf(const Cursor& cell) const {
  return plan_.kv_class_of[static_cast<std::size_t>(plan_.DecoderLayerOf(cell))];
}

const KvPlace& Mover::KvPlaceOf(const Cursor& cell, const PackedBatch& batch,
                                std::size_t row) const {
  return batch.KvPlaceOf(row, KvClassOf(cell));
}

}  // namespace spillway
