#include "src/gpu/attention_lists.h"

#include <algorithm>

#include "spillway/error.h"
#include "src/gpu/table_writer.h"

namespace spillway {

AttentionLists::AttentionLists(const AttentionLimits& limits) {
  rows_.reserve(static_cast<std::size_t>(limits.rows));
  tiles_.reserve(static_cast<std::size_t>(kernels::MaxRowTiles(limits.rows, limits.tokens)));
  items_.reserve(static_cast<std::size_t>(kernels::MaxDecodeItems(limits.rows, limits.slots)));
  key_tiles_.reserve(static_cast<std::size_t>(MaxKeyTiles(limits)));
  compact_rows_.reserve(static_cast<std::size_t>(limits.rows * limits.runs));
  budget_rows_.reserve(static_cast<std::size_t>(limits.rows * limits.runs));
  stored_rows_.reserve(static_cast<std::size_t>(limits.rows));
  host_tokens_.reserve(static_cast<std::size_t>(limits.rows));
  shared_runs_.reserve(static_cast<std::size_t>(limits.rows * limits.copies));
}

// The most key tiles of one chunk: all the keys of each row that has tokens in it.
int64_t AttentionLists::MaxKeyTiles(const AttentionLimits& limits) {
  if (limits.longest == 0) return 0;
  const int64_t rows = std::min(limits.rows, limits.tokens);
  // Each row may end with a tile that is not full. All rows but the two that the chunk's ends cut
  // lie whole within it.
  return rows + (limits.tokens + 2 * limits.longest + rows * limits.prefix) / kernels::kTileKeys;
}

void AttentionLists::Clear() {
  rows_.clear();
  tiles_.clear();
  items_.clear();
  key_tiles_.clear();
  compact_rows_.clear();
  budget_rows_.clear();
  stored_rows_.clear();
  host_tokens_.clear();
  shared_runs_.clear();
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
  if (row.token_scores == nullptr) return;
  for (int64_t key = 0; key < row.num_past + row.num_new; key += kernels::kTileKeys) {
    key_tiles_.push_back({index, static_cast<int32_t>(key)});
  }
}

int64_t AttentionLists::MaxBytes(const AttentionLimits& limits, int64_t num_chunks) {
  // A row that a chunk's end cuts is in two lists.
  const int64_t rows = limits.rows + num_chunks;
  return 2 * rows * static_cast<int64_t>(sizeof(kernels::AttentionRow)) +
         kernels::MaxRowTiles(rows, limits.tokens) *
             static_cast<int64_t>(sizeof(kernels::RowTile)) +
         kernels::MaxDecodeItems(rows, limits.slots) *
             static_cast<int64_t>(sizeof(kernels::DecodeItem)) +
         limits.rows * limits.runs *
             static_cast<int64_t>(sizeof(kernels::KvCompactRow) +
                                  sizeof(kernels::BudgetAttentionRow)) +
         limits.rows * static_cast<int64_t>(sizeof(int32_t)) +
         limits.rows * limits.copies * static_cast<int64_t>(sizeof(kernels::KvRun)) +
         (limits.longest == 0 ? 0
                              : rows + (limits.tokens + rows * limits.prefix) / kernels::kTileKeys +
                                    num_chunks * (2 * limits.longest / kernels::kTileKeys + 1)) *
             static_cast<int64_t>(sizeof(kernels::RowTile)) +
         9 * num_chunks * kTableAlignBytes;
}

}  // namespace spillway
