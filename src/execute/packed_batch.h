// PackedBatch: the tokens of one pass of one batch, back to back, and where each row's KV lies.
// Nothing is padded. Plain values; the engine fills one, mover and executor read it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "spillway/kv_policy.h"
#include "spillway/model.h"  // TokenId
#include "spillway/tier.h"

namespace spillway {

// Where a row's KV lies in the transformer blocks of one class (Plan::kv_classes), and how much of
// it stays.
struct KvPlace {
  int64_t slot_begin = 0;  // the row's first slot within its batch's share of its tier
  int64_t num_slots = 0;   // allocated to the row
  KvKeep keep;

  // Tokens in the cache when the row has this many.
  int64_t NumHeld(int64_t num_tokens) const { return std::min(num_tokens, keep.slots()); }
};

struct PackedRow {
  Tier kv_tier = Tier::kCpu;
  int64_t num_past = 0;      // tokens whose K and V are stored
  int64_t num_new = 0;       // tokens of this pass
  int64_t token_offset = 0;  // of the first of them in `tokens`
};

// Tokens [begin, end).
struct TokenRange {
  int64_t begin = 0;
  int64_t end = 0;

  int64_t size() const { return end - begin; }
};

struct PackedBatch {
  int64_t batch = 0;  // index within the block
  std::vector<TokenId> tokens;
  std::vector<int32_t> positions;  // of each token in its row, from 0
  std::vector<PackedRow> rows;     // only rows that run; never empty when computed
  int64_t num_kv_classes = 1;
  std::vector<KvPlace> kv_places;  // [row][class]
  // Which tokens' hidden states lie in which tier between layers; ascending in the order of the
  // tiers, together all.
  PerTier<TokenRange> hidden;

  const KvPlace& KvPlaceOf(std::size_t row, int64_t kv_class) const {
    return kv_places[row * static_cast<std::size_t>(num_kv_classes) +
                     static_cast<std::size_t>(kv_class)];
  }
};

}  // namespace spillway
