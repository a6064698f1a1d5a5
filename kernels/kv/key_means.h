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

struct KeyMeans {
  // fp32 [kv_head][span][head_dim], heads turned as those of the cache are, on a GPU in the order
  // of their codes (MeanPlace of kernels/attention/key_centre.h); null: keys are as the cache holds
  // them.
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
