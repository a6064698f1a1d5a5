// Eviction rule of a KV cache of fixed size, the same in prefill's compaction and in decode. Per
// row, layer and KV head (docs/kv.md, "H2O, exactly"):
// - kH2o: the `recent` newest tokens stay; of the older ones the `heavy` with the highest score.
//   After a decode step the token that just left the window competes with them.
// - kWindow: the `sinks` first tokens and the `recent` newest stay. heavy is 0; no scores.
// - kH2oFlexgen, for comparison: what h2o_flexgen does with the same number of slots. It keeps one
//   heavy token less and one recent token more, and in decode the token that leaves the window
//   takes the place of the lowest-scoring heavy one without competing. Where no heavy token is
//   left (heavy <= 1) the token that leaves the window is evicted.
// Equal scores: the token of the higher position is evicted. A score of NaN is the lowest.
// In a layer whose tokens see a window of others, a heavy token that the next query does not see
// has the lowest score of all, in compaction and in decode, and is evicted; keep.slots() is below
// the window, so that there is never more than one.
// Plain functions; any thread.
#pragma once

#include <cstdint>
#include <limits>

#include "spillway/kv_policy.h"

namespace spillway::kernels {

// Tokens that stay of a row whose policy asks for `keep`. The number of slots is the same.
constexpr KvKeep KeptTokens(KvPolicyKind kind, KvKeep keep) {
  if (kind != KvPolicyKind::kH2oFlexgen) return keep;
  const int64_t moved = keep.heavy > 0 ? 1 : 0;
  return {keep.sinks, keep.heavy - moved, keep.recent + moved, keep.window};
}

struct PositionRange {
  int64_t first = 0;
  int64_t last = 0;  // included
};

// Positions that may be evicted in the decode step that added `position`, where keep.slots() + 1
// tokens are held. At least one of them is held.
constexpr PositionRange Candidates(KvPolicyKind kind, KvKeep keep, int64_t position) {
  const KvKeep kept = KeptTokens(kind, keep);
  const bool competes = kind != KvPolicyKind::kH2oFlexgen || kept.heavy == 0;
  return {kept.sinks, position - kept.recent - (competes ? 0 : 1)};
}

// Score by which tokens are compared: a NaN is the lowest.
constexpr float OrderedScore(float score) {
  return score == score ? score : -std::numeric_limits<float>::infinity();
}

// The first position that the query at `position` sees.
constexpr int64_t FirstSeen(const KvKeep& keep, int64_t position) {
  return keep.window == 0 || position < keep.window ? 0 : position + 1 - keep.window;
}

// OrderedScore of a held token; the lowest where the next query does not see it.
constexpr float Standing(float score, int64_t position, int64_t first_seen) {
  return position < first_seen ? -std::numeric_limits<float>::infinity() : OrderedScore(score);
}

// Tokens held after a decode step that began with `num_held`.
inline int64_t HeldAfterStep(KvKeep keep, int64_t num_held) {
  return num_held < keep.slots() ? num_held + 1 : keep.slots();
}

}  // namespace spillway::kernels
