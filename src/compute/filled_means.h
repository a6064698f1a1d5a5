// FilledMeans: which spans of the table of key means hold those of the layer that is computed. A
// pass fills as many as its rows have positions, once a layer. Thread rule: one thread.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include "spillway/kv_block.h"

namespace spillway {

struct SpanRange {
  int64_t first = 0;
  int64_t end = 0;
};

class FilledMeans {
 public:
  // Spans that are still to be filled so that the table has the layer's means of the first
  // positions; from now on they count as filled. first >= end: none.
  SpanRange Take(int64_t decoder_layer, int64_t num_positions) {
    if (decoder_layer != decoder_layer_) num_spans_ = 0;
    decoder_layer_ = decoder_layer;
    const SpanRange missing = {num_spans_, KeyMeanSpans(num_positions)};
    num_spans_ = std::max(num_spans_, missing.end);
    return missing;
  }
  // The same of all positions up to the highest of some.
  SpanRange Take(int64_t decoder_layer, std::span<const int32_t> positions) {
    return Take(decoder_layer, 1 + *std::ranges::max_element(positions));
  }

 private:
  int64_t decoder_layer_ = -1;
  int64_t num_spans_ = 0;
};

}  // namespace spillway
