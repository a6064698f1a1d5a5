#include "src/execute/attention_lists.h"

#include "spillway/error.h"
#include "src/execute/table_writer.h"

namespace spillway {

AttentionLists::AttentionLists(const AttentionLimits& limits) {
  rows_.reserve(static_cast<std::size_t>(limits.rows));
  tiles_.reserve(static_cast<std::size_t>(kernels::MaxRowTiles(limits.rows, limits.tokens)));
  items_.reserve(static_cast<std::size_t>(kernels::MaxDecodeItems(limits.rows, limits.slots)));
}

void AttentionLists::Clear() {
  rows_.clear();
  tiles_.clear();
  items_.clear();
}

void AttentionLists::Add(const kernels::AttentionRow& row, RowPhase phase) {
  const auto index = static_cast<int32_t>(rows_.size());
  rows_.push_back(row);
  if (phase == RowPhase::kDecode) {
    SPILLWAY_CHECK(row.num_new == 1);
    const int64_t num_splits = kernels::NumSplits(row.num_past + 1);
    for (int64_t split = 0; split < num_splits; ++split) {
      items_.push_back({index, static_cast<int32_t>(split)});
    }
    return;
  }
  for (int64_t begin = 0; begin < row.num_new; begin += kernels::kTileQueries) {
    tiles_.push_back({index, static_cast<int32_t>(begin)});
  }
}

int64_t AttentionLists::MaxBytes(const AttentionLimits& limits, int64_t num_chunks) {
  // A row that a chunk's end cuts is in two lists.
  const int64_t rows = limits.rows + num_chunks;
  return rows * static_cast<int64_t>(sizeof(kernels::AttentionRow)) +
         kernels::MaxRowTiles(rows, limits.tokens) *
             static_cast<int64_t>(sizeof(kernels::RowTile)) +
         kernels::MaxDecodeItems(rows, limits.slots) *
             static_cast<int64_t>(sizeof(kernels::DecodeItem)) +
         3 * num_chunks * kTableAlignBytes;
}

}  // namespace spillway
