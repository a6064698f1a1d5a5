// Means of keys, which a cache with keys of 4 bits leaves out. Before rotary positions turn them,
// the keys of a KV head have much in common, and what they have in common would take up the range
// of their codes. So their mean is taken away, turned as a key at its position is, and added again
// where attention reads a key (kernels/attention/key_centre.h makes the table). Neighbouring
// positions share a mean: of the turns that differ within a span only what they have in common is
// left out, and a block of codes of a full cache is one span.
#pragma once

#include <cstdint>

#include "spillway/kv_block.h"

namespace spillway::kernels {

// Place of a head's element in a row of a GPU's table, whose vectors of 8 are those of keys of 4
// bits (VectorElement of kernels/kv/kv_layout.h), one behind the other.
constexpr int64_t MeanPlace(int64_t element, int64_t head_dim) {
  const int64_t group = element / kKvGroup * kKvGroup;
  if (group + kKvGroup > head_dim) return element;
  const int64_t in_group = element - group;
  return group + in_group % 16 / 2 * 8 + in_group % 2 * 4 + in_group / 16;
}

struct KeyMeans {
  // fp32 [kv_head][span][head_dim], heads turned as those of the cache are, on a GPU by MeanPlace;
  // null: keys are as the cache holds them.
  const float* table = nullptr;
  int64_t num_spans = 0;

  constexpr bool exist() const { return table != nullptr; }
  constexpr const float* At(int64_t kv_head, int64_t position, int64_t head_dim) const {
    return table + (kv_head * num_spans + position / kKeyMeanSpan) * head_dim;
  }
  // Those of the heads from `kv_head` on.
  constexpr KeyMeans From(int64_t kv_head, int64_t head_dim) const {
    return {exist() ? At(kv_head, 0, head_dim) : nullptr, num_spans};
  }
};

}  // namespace spillway::kernels
