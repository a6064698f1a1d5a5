// KvLogPlan: how KV on disk whose tokens have scores is written without writing rows whole each
// pass. A part of the Plan. Plain values; any thread.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "spillway/grid.h"  // kStagingSlots
#include "spillway/region.h"
#include "spillway/tile.h"  // kTileAlignBytes

namespace spillway {

// KvLogPlan: the log of changes to KV on disk. With a KV policy that uses scores, a step changes
// one slot of each KV head and the scores of all: writing whole rows after each pass would write as
// much as is read. A row is written whole every `passes` passes; in between the log gets its state
// and its new token, and what is read is the row as it was and what the log has of it
// (kernels/kv/kv_log.h). The blocks and batches take turns, so that each pass writes as much as the
// next. There is none where a GPU attends to KV from disk: the log is read into CPU memory.
struct KvLogPlan {
  int64_t passes = 1;       // 1: rows are written whole after each pass, there is no log
  int64_t rows = 0;         // of a batch that have a place in the log: those dealt to the disk
  int64_t state_bytes = 0;  // of a row, in whole blocks of the disk
  int64_t token_bytes = 0;  // the same
  // CPU, one for each place of staged KV: [rows] states, then [passes - 1][rows] tokens.
  std::array<Region, kStagingSlots> staging;

  bool exists() const { return passes > 1; }
  // Blocks of the log on disk, each with a tag of its own.
  int64_t NumBlocks() const {
    return exists() ? rows * (state_bytes / kTileAlignBytes + passes - 1) : 0;
  }
  int64_t StagingBytes() const { return rows * (state_bytes + (passes - 1) * token_bytes); }
  // Tokens that the log holds of each row after pass `pass` of a block of batches; 0: that pass
  // writes rows whole, as the first does.
  int64_t NumTokens(int64_t pass, int64_t batch, int64_t decoder_layer) const {
    return pass < 0 ? 0 : std::min(pass, (pass + batch + decoder_layer) % passes);
  }
  // Read and written of the log of all rows in one decoder layer, on average over the passes.
  double MeanBytes() const;
};

}  // namespace spillway
