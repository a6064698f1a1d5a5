// AttentionLists: what the GPU's attention kernels compute for a chunk of a batch: its rows, the
// tiles of rows that are in their prompt, the splits of rows that add one token. Plain lists.
// Thread rule: one thread. Allocates nothing once it is made.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/attention/attention.h"  // AttentionRow
#include "kernels/attention/budget_attention.h"
#include "kernels/attention/kv_compact.h"
#include "kernels/attention/kv_copy.h"
#include "kernels/kv/kv_layout.h"

namespace spillway {

// Upper bounds of one chunk.
struct AttentionLimits {
  int64_t rows = 0;
  int64_t tokens = 0;
  int64_t slots = 0;    // of the rows together
  int64_t longest = 0;  // tokens of the longest prompt whose token scores are wanted, or 0
  int64_t runs = 1;     // Plan::KvRuns
  int64_t copies = 1;   // that a row takes of what others have
  int64_t prefix = 0;   // tokens before those of each prompt whose token scores are wanted
};

// A row is in its prompt for the whole pass in which it began, also in a chunk that holds one token
// of it: which kernel computes a token must not depend on how a pass is cut.
enum class RowPhase { kPrompt, kDecode };

class AttentionLists {
 public:
  explicit AttentionLists(const AttentionLimits& limits);

  void Clear();

  // Requires: after the row before it in the packed tokens; num_new == 1 with kDecode.
  void Add(const kernels::AttentionRow& row, RowPhase phase);

  // Lists for policies that evict: prompts that end here and are compacted, and rows that add one
  // token.
  void Add(const kernels::KvCompactRow& row) { compact_rows_.push_back(row); }
  void Add(const kernels::BudgetAttentionRow& row) { budget_rows_.push_back(row); }

  // Lists for rows that the CPU attends to once their prompt is done: a prompt that is stored in
  // `row` too, and a token of the chunk whose attention the CPU does.
  void AddStored(const kernels::AttentionRow& row) { stored_rows_.push_back(row); }
  void AddHostToken(int64_t token) { host_tokens_.push_back(static_cast<int32_t>(token)); }

  // Adds what a row takes of another row's cache, or of the prefix's scores, before it is attended
  // to.
  void AddShared(const kernels::KvRun& run) { shared_runs_.push_back(run); }

  const std::vector<kernels::AttentionRow>& rows() const { return rows_; }
  const std::vector<kernels::RowTile>& tiles() const { return tiles_; }
  const std::vector<kernels::DecodeItem>& items() const { return items_; }
  // Tiles of the keys of rows that have token scores.
  const std::vector<kernels::RowTile>& key_tiles() const { return key_tiles_; }
  const std::vector<kernels::KvCompactRow>& compact_rows() const { return compact_rows_; }
  const std::vector<kernels::BudgetAttentionRow>& budget_rows() const { return budget_rows_; }
  const std::vector<kernels::AttentionRow>& stored_rows() const { return stored_rows_; }
  const std::vector<int32_t>& host_tokens() const { return host_tokens_; }
  const std::vector<kernels::KvRun>& shared_runs() const { return shared_runs_; }

  // The most key tiles of one chunk; and the most bytes of all lists of num_chunks chunks that
  // together hold `limits`, each list rounded as a table.
  static int64_t MaxKeyTiles(const AttentionLimits& limits);
  static int64_t MaxBytes(const AttentionLimits& limits, int64_t num_chunks);

 private:
  std::vector<kernels::AttentionRow> rows_;
  std::vector<kernels::RowTile> tiles_;
  std::vector<kernels::DecodeItem> items_;
  std::vector<kernels::RowTile> key_tiles_;
  std::vector<kernels::KvCompactRow> compact_rows_;
  std::vector<kernels::BudgetAttentionRow> budget_rows_;
  std::vector<kernels::AttentionRow> stored_rows_;
  std::vector<int32_t> host_tokens_;
  std::vector<kernels::KvRun> shared_runs_;
};

// The lists of a chunk where kernels read them.
struct ChunkRows {
  std::span<const kernels::AttentionRow> rows;
  std::span<const kernels::RowTile> tiles;
  std::span<const kernels::DecodeItem> items;
  std::span<const kernels::RowTile> key_tiles;
  std::span<const kernels::KvCompactRow> compact_rows;
  std::span<const kernels::BudgetAttentionRow> budget_rows;
  std::span<const kernels::AttentionRow> stored_rows;
  std::span<const int32_t> host_tokens;
  std::span<const kernels::KvRun> shared_runs;
};

// `put(list)` copies a list to where the kernels read it and returns its place there.
template <typename F>
ChunkRows PutLists(const AttentionLists& lists, F put) {
  return {put(lists.rows()),        put(lists.tiles()),        put(lists.items()),
          put(lists.key_tiles()),   put(lists.compact_rows()), put(lists.budget_rows()),
          put(lists.stored_rows()), put(lists.host_tokens()),  put(lists.shared_runs())};
}

}  // namespace spillway
