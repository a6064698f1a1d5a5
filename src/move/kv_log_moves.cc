#include "src/move/kv_log_moves.h"

#include <algorithm>

namespace spillway {
namespace {

// Places up to the last row that needs the log's last `num_tokens` tokens.
int64_t NumPlaces(const std::vector<LoggedRow>& rows, int64_t num_tokens) {
  int64_t places = 0;
  for (const LoggedRow& row : rows) {
    if (row.num_logged >= num_tokens) places = std::max(places, row.place + 1);
  }
  return places;
}

}  // namespace

void TakeLogWork::Do() noexcept {
  for (const LoggedRow& row : rows_) {
    kernels::TakeState(row.cache, log_.State(row.place) + row.state_offset);
    kernels::TakeToken(row.cache, row.num_tokens - 1,
                       log_.Token(log_.num_tokens - 1, row.place) + row.token_offset);
  }
}

void PutLogWork::Do() noexcept {
  for (const LoggedRow& row : rows_) {
    kernels::PutLog(row.cache, log_.State(row.place) + row.state_offset,
                    {log_.Token(log_.num_tokens - row.num_logged, row.place) + row.token_offset,
                     log_.plan->rows * log_.plan->token_bytes, row.num_logged,
                     row.num_tokens - row.num_logged});
  }
}

KvLogMoves::KvLogMoves(const Plan& plan, const Tiers& tiers) : plan_(plan), tiers_(tiers) {
  for (PutLogWork& work : put_) work.Reserve(plan.kv_log.rows * plan.KvRuns());
  for (TakeLogWork& work : take_) work.Reserve(plan.kv_log.rows * plan.KvRuns());
}

int64_t KvLogMoves::MaxMoves(const Plan& plan) {
  const KvLogPlan& log = plan.kv_log;
  return 2 * log.StagingBytes() / kRunBytes + 2 * log.passes;
}

int64_t KvLogMoves::NumLogged(const Cell& cell, const PackedRow& row) const {
  if (row.log_place < 0) return 0;
  return std::min(plan_.LoggedBefore(cell.at), row.num_decoded);
}

bool KvLogMoves::GoesToLog(const Cell& cell, const PackedRow& row) const {
  return row.log_place >= 0 && row.num_past > 0 && plan_.LoggedAfter(cell.at) > 0;
}

StagedLog KvLogMoves::LogOf(const Cell& cell, int64_t num_tokens) const {
  const Region& staging = plan_.kv_log.staging[cell.slot];
  return {&plan_.kv_log, tiers_.arena(Tier::kCpu).View(staging).data(), num_tokens};
}

void KvLogMoves::AddRuns(const Cell& cell, const PackedBatch& batch, std::size_t index,
                         const LoggedRow& logged, KvLogWork& work) const {
  const int64_t decoder_layer = plan_.DecoderLayerOf(cell.at);
  const int64_t kv_class = plan_.kv_class_of[static_cast<std::size_t>(decoder_layer)];
  const KvPlace& place = batch.KvPlaceOf(index, kv_class);
  const int64_t heads = plan_.RunHeads();
  const int64_t token_bytes = KvSlotBytes(heads, plan_.shape.head_dim, plan_.policy.kv_bits);
  const KvRowAt row = {kv_class, place.row_tokens, decoder_layer, batch.rows[index].kv_less};
  ForEachKvRun(plan_, row, [&](const KvRunPlace& at) {
    LoggedRow run = logged;
    run.cache = {cell.kv + (place.slot_begin + at.slot_begin) * plan_.slot_bytes,
                 at.keep.NumHeld(logged.num_tokens),
                 heads,
                 plan_.shape.head_dim,
                 plan_.policy.kv_bits,
                 plan_.kv_block_fill};
    run.place = batch.rows[index].log_place;
    run.state_offset = KvStateBytes(heads, at.slot_begin);
    run.token_offset = at.run * token_bytes;
    work.Add(run);
  });
}

void KvLogMoves::AddIn(const Cell& cell, const PackedBatch& batch, std::vector<Move>& moves) {
  if (!plan_.kv_log.exists() || batch.rows.empty()) return;
  const int64_t num_tokens = plan_.LoggedBefore(cell.at);
  PutLogWork& work = put_[cell.slot];
  work.Begin(LogOf(cell, num_tokens));
  for (std::size_t index = 0; index < batch.rows.size(); ++index) {
    const int64_t num_logged = NumLogged(cell, batch.rows[index]);
    if (num_logged == 0) continue;
    LoggedRow row;
    row.num_tokens = batch.rows[index].num_past;
    row.num_logged = num_logged;
    AddRuns(cell, batch, index, row, work);
  }
  if (work.rows().empty()) return;
  // A place is written with all before it: of a pass's tokens those are there that some row needs.
  for (int64_t index = 0; index < num_tokens; ++index) {
    AddTokens(cell, index, NumPlaces(work.rows(), num_tokens - index), Direction::kIn, moves);
  }
  AddStates(cell, NumPlaces(work.rows(), 1), Direction::kIn, moves);
  moves.back().work = &work;
}

void KvLogMoves::AddOut(const Cell& cell, const PackedBatch& batch, std::vector<Move>& moves) {
  if (!plan_.kv_log.exists() || batch.rows.empty()) return;
  const int64_t num_tokens = plan_.LoggedAfter(cell.at);
  TakeLogWork& work = take_[cell.slot];
  work.Begin(LogOf(cell, num_tokens));
  for (std::size_t index = 0; index < batch.rows.size(); ++index) {
    const PackedRow& row = batch.rows[index];
    if (!GoesToLog(cell, row)) continue;
    LoggedRow logged;
    logged.num_tokens = row.num_past + row.num_new;
    AddRuns(cell, batch, index, logged, work);
  }
  if (work.rows().empty()) return;
  const std::size_t first = moves.size();
  const int64_t num_places = NumPlaces(work.rows(), 0);
  AddStates(cell, num_places, Direction::kOut, moves);
  AddTokens(cell, num_tokens - 1, num_places, Direction::kOut, moves);
  moves[first].work = &work;
}

void KvLogMoves::AddStates(const Cell& cell, int64_t num_places, Direction direction,
                           std::vector<Move>& moves) const {
  AddRun(cell,
         {tiers_.log_states(), plan_.kv_log.state_bytes, 0, num_places, LogOf(cell, 0).State(0)},
         direction, moves);
}

void KvLogMoves::AddTokens(const Cell& cell, int64_t index, int64_t num_places, Direction direction,
                           std::vector<Move>& moves) const {
  AddRun(cell,
         {tiers_.log_tokens(), plan_.kv_log.token_bytes, index * plan_.kv_log.rows, num_places,
          LogOf(cell, 0).Token(index, 0)},
         direction, moves);
}

void KvLogMoves::AddRun(const Cell& cell, const Run& run, Direction direction,
                        std::vector<Move>& moves) const {
  const int64_t place_blocks = run.place_bytes / run.scratch->layout().block_bytes;
  const int64_t most = std::max<int64_t>(1, kRunBytes / run.place_bytes);  // places of a move
  for (int64_t at = 0; at < run.num_places; at += most) {
    const int64_t places = std::min(most, run.num_places - at);
    Move move;
    move.outward = direction == Direction::kOut;
    move.kind = move.outward ? MoveKind::kWriteScratch : MoveKind::kReadScratch;
    move.on_host = true;
    move.device = run.staged + at * run.place_bytes;
    move.bytes = places * run.place_bytes;
    move.scratch = run.scratch;
    move.run = {plan_.DecoderLayerOf(cell.at), cell.at.batch, (run.first_place + at) * place_blocks,
                places * place_blocks};
    moves.push_back(move);
  }
}

}  // namespace spillway
