// RopeTables: the frequencies by which the tokens of a batch turn. Most ropes have one table for
// all rows. Where frequencies depend on a row's length, which is fixed when the row is admitted
// (PackedRow::most_tokens), the second table is that of all long rows (kLong), or each row has its
// own (kDynamic).
// Thread rule: one thread. Allocates nothing once it is made.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "spillway/plan.h"
#include "src/base/thread_pool.h"
#include "src/compute/filled_means.h"
#include "src/device/packed_batch.h"

namespace spillway {

struct Turns {
  std::span<const float> frequencies = {};  // [tables][dims / 2]; none of a layer without rotation
  std::span<const int32_t> tables = {};     // of each token; empty: the first
};

// Writes rows of the turns of a rolling cache's keys, from `first_row` on: `rows` is as many of
// WorkspacePlan::key_turns, in host memory.
void FillKeyTurns(const Plan& plan, int64_t first_row, std::span<std::byte> rows, ThreadPool& pool);

// Writes how spans of positions turn a mean of keys, `stride` floats from span to span, in host
// memory.
void FillSpanTurns(const Rope& rope, const SpanRange& spans, int64_t stride, float* turns,
                   ThreadPool& pool);
// The same of every rope and span: all of WorkspacePlan::span_turns.
void FillSpanTurns(const Plan& plan, float* turns, ThreadPool& pool);

class RopeTables {
 public:
  // Requires: a layer's rotations are all by one rope. Lifetime: the plan outlives this.
  explicit RopeTables(const Plan& plan);

  // Frequencies and tables of the layer for a batch; host memory. Lifetime: until the next call.
  Turns For(const PlannedLayer& layer, const PackedBatch& batch);

  // The most tables and tokens' entries that For gives.
  static int64_t MaxTables(const Plan& plan, const Rope& rope);
  static int64_t MaxTokens(const Plan& plan, const Rope& rope);

 private:
  struct Table {
    Rope rope;
    std::vector<float> frequencies;  // [table][dims / 2]; kDynamic: [batch][row][dims / 2]
    std::vector<int64_t> lengths;    // kDynamic: [batch][row], for which they were made; -1: none
  };

  void AddTable(const Rope& rope);
  std::span<const float> OwnFrequencies(Table& table, const PackedBatch& batch);

  const Plan& plan_;
  std::vector<Table> tables_;  // one a rope
  std::vector<int32_t> token_tables_;
};

}  // namespace spillway
