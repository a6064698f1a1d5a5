// PackedBatch: the tokens of one pass of one batch, back to back, and where each row's KV lies.
// Nothing is padded. Plain values; the engine fills one, mover and executor read it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "spillway/kv_place.h"
#include "spillway/kv_policy.h"  // KvLess
#include "spillway/model.h"      // TokenId
#include "spillway/tier.h"

namespace spillway {

struct PackedRow {
  Tier kv_tier = Tier::kCpu;
  int64_t num_past = 0;       // tokens whose K and V are stored
  int64_t num_new = 0;        // tokens of this pass
  int64_t token_offset = 0;   // of the first of them in `tokens`
  int64_t num_logits = 1;     // the last ones, whose logits are wanted
  int64_t logits_offset = 0;  // logits wanted of the rows before
  int64_t num_decoded = 0;    // of num_past, those behind the prompt, each by a pass of its own
  int64_t log_place = -1;     // in its batch's part of the log (KvLogPlan); -1: it needs none
  int64_t most_tokens = 0;    // prompt and all that it may generate; as admitted, never another
  // The row begins with so many tokens of another row of the batch, whole KV blocks. Their K and V
  // are taken from its cache: num_new are those behind them. That row computes its own, in this
  // pass before this one, or in an earlier pass. shared_row -1: these tokens are the plan's prefix,
  // of which the policy keeps some.
  int64_t num_shared = 0;
  int64_t shared_row = -1;
  // Of a cache that rolls: the place by which a single token's query is turned, as many places as
  // the row keeps tokens where it keeps most; the row's own, as its bits are.
  int64_t newest_place = 0;
  KvLess kv_less = {};  // than the policy keeps

  // Tokens whose K and V the pass stores, and those of which it finds them.
  int64_t num_stored() const { return num_shared + num_new; }

  int64_t logits_end() const { return logits_offset + num_logits; }
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
  // Places by which queries are turned where the cache rolls: of a prompt's tokens the positions,
  // of single ones their row's newest_place (kernels/kv/key_turns.h). Else empty.
  std::vector<int32_t> places = {};
  std::vector<PackedRow> rows;  // only rows that run; never empty when computed
  int64_t num_kv_classes = 1;
  std::vector<KvPlace> kv_places;  // [row][class]
  // Tokens whose hidden states lie in each tier between layers; ascending in the order of the
  // tiers, together all.
  PerTier<TokenRange> hidden;
  // Range of the tokens whose logits are wanted, counted through the rows, that the head computes
  // at a time.
  TokenRange head;

  // What rotations go by.
  const std::vector<int32_t>& TurnedBy() const { return places.empty() ? positions : places; }

  int64_t NumLogits() const { return rows.empty() ? 0 : rows.back().logits_end(); }

  // The `index`-th token whose logits are wanted. Requires: 0 <= index < NumLogits().
  struct WantedToken {
    std::size_t row = 0;
    int64_t token = 0;  // in `tokens`
  };
  WantedToken Wanted(int64_t index) const {
    const auto row = std::ranges::upper_bound(rows, index, {}, &PackedRow::logits_end);
    const int64_t last = row->token_offset + row->num_new;
    return {static_cast<std::size_t>(row - rows.begin()), last - (row->logits_end() - index)};
  }

  // The tier of a token's hidden state. Requires: 0 <= token < tokens.size().
  Tier HiddenTierOf(int64_t token) const {
    return *std::ranges::find_if(kAllTiers, [&](Tier tier) {
      return hidden[tier].begin <= token && token < hidden[tier].end;
    });
  }

  const KvPlace& KvPlaceOf(std::size_t row, int64_t kv_class) const {
    return kv_places[row * static_cast<std::size_t>(num_kv_classes) +
                     static_cast<std::size_t>(kv_class)];
  }
};

}  // namespace spillway
