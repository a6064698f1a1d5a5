// Means of centred keys for tests: a table of random ones.
#pragma once

#include <vector>

#include "kernels/attention/key_centre.h"
#include "kernels/kv/key_means.h"
#include "tests/kernels/kernel_test_util.h"

namespace spillway::kernels {

struct MeanTable {
  int64_t num_spans;
  std::vector<float> table;

  MeanTable(int64_t num_positions, int64_t num_kv_heads, int64_t head_dim)
      : num_spans(KeyMeanSpans(num_positions)),
        table(RandomFloats(num_kv_heads * num_spans * head_dim, 77, 2.0F)) {}

  KeyMeans means() const { return {table.data(), num_spans}; }

  // The table as a GPU's kernels read it.
  std::vector<float> OnGpu(int64_t head_dim) const {
    std::vector<float> placed(table.size());
    for (int64_t i = 0; i < std::ssize(table); ++i) {
      const int64_t to = i / head_dim * head_dim + MeanPlace(i % head_dim, head_dim);
      placed[static_cast<size_t>(to)] = table[static_cast<size_t>(i)];
    }
    return placed;
  }
};

}  // namespace spillway::kernels
