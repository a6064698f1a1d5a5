#include "src/move/mover.h"

#include <algorithm>

#include "spillway/error.h"
#include "spillway/kv_block.h"
#include "spillway/round.h"
#include "spillway/tile.h"
#include "src/base/clock.h"
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
    move.store_tensor = weight.store_tensor;
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

// The most moves that one task of rows asks for: a run for each row and chunk.
int MaxRowMoves(const Plan& plan) {
  int64_t kv = 0;
  int64_t hidden = 0;
  for (const Tier tier : kAllTiers) {
    kv += plan.kv[tier].rows + plan.kv[tier].size * plan.slot_bytes / kRunBytes + 1;
    hidden += plan.hidden[tier].size * plan.HiddenRowBytes() / kRunBytes + 2;
  }
  return static_cast<int>(2 * (kv + hidden + KvLogMoves::MaxMoves(plan)));
}

int MaxWeightMoves(const Plan& plan) {
  std::size_t moves = FirstMoves(plan).size();
  for (std::size_t layer = 0; layer < plan.layers.size(); ++layer) {
    moves = std::max(moves, MovesOf(plan, static_cast<int64_t>(layer)).size());
  }
  return static_cast<int>((plan.weight_lookahead + 1) * static_cast<int64_t>(moves) + 1);
}

// Waits below this only say that there was nothing to wait for.
constexpr double kLeastTracedWaitS = 1e-6;

TransferStream::Options StreamOptions(const Tiers& tiers, const BounceRing& ring, int max_moves) {
  TransferStream::Options options;
  options.queue = tiers.queue();
  options.store = tiers.store();
  options.repair = tiers.repair();
  options.bounce = tiers.arena(Tier::kCpu).View(ring.region);
  options.num_chunks = ring.num_chunks;
  options.max_moves = max_moves;
  return options;
}

TransferStream::Options Noting(TransferStream::Options options, LinkMeter& meter, TraceLane lane,
                               TraceLog* trace_log) {
  options.meter = &meter;
  options.copy_lane = lane;
  options.trace_log = trace_log;
  return options;
}

}  // namespace

Mover::Mover(const Plan& plan, const Tiers& tiers, TraceLog* trace_log)
    : plan_(plan),
      tiers_(tiers),
      trace_log_(trace_log),
      first_moves_(MovesFor(FirstMoves(plan), plan, tiers)),
      weights_loaded_(plan.layers.size()),
      kv_stored_(static_cast<std::size_t>(plan.num_batches * plan.shape.num_layers)),
      hidden_stored_(static_cast<std::size_t>(plan.num_batches)),
      kv_log_(plan, tiers),
      out_(Noting(StreamOptions(tiers, plan.bounce.rows_out, MaxRowMoves(plan)), to_cpu_,
                  TraceLane::kGpuToCpu, trace_log),
           tiers.MakeCopyQueue()),
      rows_in_(Noting(StreamOptions(tiers, plan.bounce.rows_in, MaxRowMoves(plan)), to_gpu_,
                      TraceLane::kCpuToGpu, trace_log),
               tiers.MakeCopyQueue()),
      weights_in_(Noting(StreamOptions(tiers, plan.bounce.weights_in, MaxWeightMoves(plan)),
                         to_gpu_, TraceLane::kCpuToGpu, trace_log),
                  tiers.MakeCopyQueue()) {
  for (std::size_t layer = 0; layer < plan.layers.size(); ++layer) {
    weight_moves_.push_back(MovesFor(MovesOf(plan, static_cast<int64_t>(layer)), plan, tiers));
  }
  moves_.reserve(static_cast<std::size_t>(MaxRowMoves(plan)));
}

void Mover::Begin(const Task& task, const PackedBatch& batch) {
  switch (task.kind) {
    case TaskKind::kLoadWeights:
      return LoadWeights(task);
    case TaskKind::kLoadKv:
      return LoadKv(task.cell, batch);
    case TaskKind::kLoadHidden:
      return LoadHidden(task.cell, batch);
    case TaskKind::kStoreKv:
      return StoreKv(task.cell, batch);
    case TaskKind::kStoreHidden:
      return StoreHidden(task.cell, batch);
    case TaskKind::kCompute:
      break;
  }
  SPILLWAY_CHECK(false);
}

void Mover::LoadWeights(const Task& task) {
  const auto layer = static_cast<std::size_t>(task.cell.layer);
  SPILLWAY_CHECK(first_loaded_ || (layer == 0 && task.num_shares == 1));
  const std::vector<Move>& moves = first_loaded_ ? weight_moves_[layer] : first_moves_;
  first_loaded_ = true;
  const auto size = static_cast<int64_t>(moves.size());
  const int64_t begin = size * task.share / task.num_shares;
  const int64_t end = size * (task.share + 1) / task.num_shares;
  const std::span<const Move> part = std::span(moves).subspan(
      static_cast<std::size_t>(begin), static_cast<std::size_t>(end - begin));
  weights_loaded_[layer] = weights_in_.Add(part, LabelOf(TraceSubject::kWeights, task.cell));
}

// The blocks that hold tokens, of rows that are not attended to where they lie.
void Mover::LoadKv(const Cursor& cell, const PackedBatch& batch) {
  const KvLogMoves::Cell logged = LogCellOf(cell);
  moves_.clear();
  for (std::size_t row = 0; row < batch.rows.size(); ++row) {
    const PackedRow& packed = batch.rows[row];
    const int64_t num_whole = packed.num_past - kv_log_.NumLogged(logged, packed);
    const int64_t num_held = KvPlaceOf(cell, batch, row).NumHeld(num_whole);
    const int64_t align = plan_.slot_align[packed.kv_tier];
    AddKvRuns(cell, batch, row, {0, DivideUp(num_held, align)}, Direction::kIn);
  }
  kv_log_.AddIn(logged, batch, moves_);
  const std::size_t slot = grid_->KvSlot(cell);
  kv_.loaded[slot] = rows_in_.Add(moves_, LabelOf(TraceSubject::kKv, cell),
                                  {&out_, std::max(kv_.stored[slot], KvStored(cell))});
}

template <typename F>
void Mover::Timed(double& waited_s, const TraceLabel& label, F wait) {
  const double begin_s = NowSeconds();
  wait();
  const double end_s = NowSeconds();
  waited_s += end_s - begin_s;
  if (trace_log_ == nullptr || end_s - begin_s < kLeastTracedWaitS) return;
  trace_log_->Add(TraceSpan{TraceLane::kWaiting, label, begin_s, end_s, 0});
}

// The blocks that this pass wrote to: all of them where scores are kept, unless the log gets it.
void Mover::StoreKv(const Cursor& cell, const PackedBatch& batch) {
  const KvLogMoves::Cell logged = LogCellOf(cell);
  moves_.clear();
  for (std::size_t index = 0; index < batch.rows.size(); ++index) {
    const PackedRow& row = batch.rows[index];
    if (kv_log_.GoesToLog(logged, row)) continue;
    const int64_t num_held = KvPlaceOf(cell, batch, index).NumHeld(row.num_past + row.num_new);
    const int64_t align = plan_.slot_align[row.kv_tier];
    const int64_t first = plan_.policy.kv.evicts() ? 0 : row.num_past / align;
    AddKvRuns(cell, batch, index, {first, DivideUp(num_held, align)}, Direction::kOut);
  }
  kv_log_.AddOut(logged, batch, moves_);
  // One store of these blocks at a time; rows that have just come loaded nothing that waited for
  // it.
  const TraceLabel label = LabelOf(TraceSubject::kKv, cell);
  Timed(waits_.stores_s, label, [&] { out_.WaitOrStop(KvStored(cell)); });
  kv_.stored[grid_->KvSlot(cell)] = KvStored(cell) = out_.Add(moves_, label);
}

void Mover::LoadHidden(const Cursor& cell, const PackedBatch& batch) {
  moves_.clear();
  AddHiddenRuns(cell, batch, Direction::kIn);
  const std::size_t slot = grid_->HiddenSlot(cell);
  const uint64_t stored = hidden_stored_[static_cast<std::size_t>(cell.batch)];
  hidden_.loaded[slot] = rows_in_.Add(moves_, LabelOf(TraceSubject::kHidden, cell),
                                      {&out_, std::max(hidden_.stored[slot], stored)});
}

void Mover::StoreHidden(const Cursor& cell, const PackedBatch& batch) {
  moves_.clear();
  AddHiddenRuns(cell, batch, Direction::kOut);
  hidden_.stored[grid_->HiddenSlot(cell)] = hidden_stored_[static_cast<std::size_t>(cell.batch)] =
      out_.Add(moves_, LabelOf(TraceSubject::kHidden, cell));
}

void Mover::AddKvRuns(const Cursor& cell, const PackedBatch& batch, std::size_t index,
                      const BlockRange& blocks, Direction direction) {
  const PackedRow& row = batch.rows[index];
  if (plan_.KvInPlace(row.kv_tier)) return;
  const int64_t block_bytes = plan_.KvBlockBytes(row.kv_tier);
  const int64_t run_blocks = std::max<int64_t>(1, kRunBytes / block_bytes);
  const int64_t row_block =
      KvPlaceOf(cell, batch, index).slot_begin / plan_.slot_align[row.kv_tier];
  const int64_t block = plan_.BlockOf(cell);
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
      move.run = {block, cell.batch, row_block + at, num_blocks};
    } else {
      move.host = KvHome(row.kv_tier, cell.batch, block) + offset;
    }
    moves_.push_back(move);
  }
}

KvLogMoves::Cell Mover::LogCellOf(const Cursor& cell) const {
  if (!plan_.kv_log.exists()) return {};
  return {cell, grid_->KvSlot(cell), KvStaged(Tier::kDisk, cell)};
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

TraceLabel Mover::LabelOf(TraceSubject subject, const Cursor& cell) const {
  const bool of_all_batches = subject == TraceSubject::kWeights;
  return {subject, {first_pass_ + cell.pass, cell.layer, of_all_batches ? -1 : cell.batch}};
}

CellPlaces Mover::WaitForLoads(const Cursor& at, const PackedBatch& batch) {
  Timed(waits_.weights_s, LabelOf(TraceSubject::kWeights, at),
        [&] { weights_in_.WaitOrStop(weights_loaded_[static_cast<std::size_t>(at.layer)]); });
  // KV is asked for before the states of its cell: the wait for both is one for KV.
  const bool attends = plan_.layers[static_cast<std::size_t>(at.layer)].attends;
  if (attends) {
    Timed(waits_.kv_s, LabelOf(TraceSubject::kKv, at), [&] {
      rows_in_.WaitOrStop(kv_.loaded[grid_->KvSlot(at)]);
      out_.WaitOrStop(kv_.stored[grid_->KvSlot(at)]);
    });
  }
  Timed(waits_.hidden_s, LabelOf(TraceSubject::kHidden, at), [&] {
    // What the compute writes must not be on its way out any more either.
    rows_in_.WaitOrStop(hidden_.loaded[grid_->HiddenSlot(at)]);
    out_.WaitOrStop(hidden_.stored[grid_->HiddenSlot(at)]);
  });
  CellPlaces places;
  for (const Tier tier : kAllTiers) {
    if (attends) {
      places.kv[tier] =
          plan_.KvInPlace(tier) ? KvHome(tier, at.batch, plan_.BlockOf(at)) : KvStaged(tier, at);
    }
    places.hidden[tier] = reinterpret_cast<float*>(
        tier == plan_.device() ? HiddenHome(tier, at.batch) : HiddenStaged(at, batch, tier));
  }
  return places;
}

void Mover::WaitForStores() {
  Timed(waits_.stores_s, {TraceSubject::kStores}, [&] {
    for (const uint64_t stored : kv_.stored) out_.WaitOrStop(stored);
    for (const uint64_t stored : hidden_.stored) out_.WaitOrStop(stored);
  });
}

void Mover::Stop() {
  weights_in_.Stop();
  rows_in_.Stop();
  out_.Stop();
}

PerLink<LinkTotals> Mover::links() const {
  PerLink<LinkTotals> links;
  if (const DiskQueue* queue = tiers_.queue()) {
    const DiskTotals read = queue->totals(DiskOp::kRead);
    const DiskTotals written = queue->totals(DiskOp::kWrite);
    links[Link::kDiskRead] = {read.bytes, read.busy_s};
    links[Link::kDiskWrite] = {written.bytes, written.busy_s};
  }
  if (plan_.device() != Tier::kGpu) return links;
  links[Link::kCpuToGpu] = to_gpu_.totals();
  links[Link::kGpuToCpu] = to_cpu_.totals();
  return links;
}

DiskMending Mover::mending() const { return rows_in_.mending() + weights_in_.mending(); }

std::byte* Mover::KvHome(Tier tier, int64_t batch, int64_t block) const {
  const RowShare& share = plan_.kv[tier];
  if (share.size == 0 || tier == Tier::kDisk) return nullptr;
  return tiers_.arena(tier).As<std::byte>({share.region.offset + plan_.KvOffset(tier, batch, block),
                                           plan_.KvSlots(tier, block) * plan_.slot_bytes});
}

// Staged shares lie one behind the other, in the order of the tiers.
std::byte* Mover::KvStaged(Tier tier, const Cursor& cell) const {
  int64_t slots_before = 0;
  for (const Tier before : kAllTiers) {
    if (before == tier) break;
    if (!plan_.KvInPlace(before)) slots_before += plan_.kv[before].size;
  }
  const Region& staging = plan_.kv_staging.slots[grid_->KvSlot(cell)];
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
  const Region& staging = plan_.hidden_staging.slots[grid_->HiddenSlot(cell)];
  return tiers_.arena(plan_.hidden_staging.tier).View(staging).data() +
         tokens_before * plan_.HiddenRowBytes();
}

const KvPlace& Mover::KvPlaceOf(const Cursor& cell, const PackedBatch& batch,
                                std::size_t row) const {
  return batch.KvPlaceOf(row, plan_.kv_class_of[static_cast<std::size_t>(plan_.BlockOf(cell))]);
}

uint64_t& Mover::KvStored(const Cursor& cell) {
  return kv_stored_[static_cast<std::size_t>(cell.batch * plan_.shape.num_layers +
                                             plan_.BlockOf(cell))];
}

}  // namespace spillway
