// Turns of a rolling cache's keys. Such a cache holds keys as they were before rotary positions
// turned them; where one is read, it is turned by its place among the tokens that are held, as
// StreamingLLM (arXiv 2309.17453) and H2O's own code do. So positions never grow past the cache,
// however long a row is.
#pragma once

#include <cmath>
#include <cstdint>
#include <span>

#include "spillway/layer.h"  // RopePairs
#include "src/base/thread_pool.h"

namespace spillway::kernels {

// Places from 0 to num_rows - 1. What attends to a prompt turns the key in slot s by place s, its
// position. What attends to a cache of fixed size turns the new token's key by the place that its
// query was turned by, and that of the n-th token before it by the n-th place before: products of
// queries and keys depend on distances only. Which place that is depends on the row alone, as its
// bits do.
struct KeyTurns {
  // fp32 [num_rows][cosines, sines][dims / 2], of the angles of Rotate (kernels/rows/rotate.h),
  // times its factor; null: keys are read as the cache holds them.
  const float* table = nullptr;
  int64_t num_rows = 0;
  int64_t dims = 0;  // of a head, its first
  RopePairs pairs = RopePairs::kHalves;

  constexpr bool exist() const { return table != nullptr; }
  constexpr const float* Cosines(int64_t row) const { return table + row * dims; }
  constexpr const float* Sines(int64_t row) const { return Cosines(row) + dims / 2; }
  // Elements of a pair in a head.
  constexpr int64_t First(int64_t pair) const {
    return pairs == RopePairs::kHalves ? pair : 2 * pair;
  }
  constexpr int64_t Second(int64_t pair) const {
    return pairs == RopePairs::kHalves ? pair + dims / 2 : 2 * pair + 1;
  }
};

// A pair's turn: the angle is a product in fp32, as transformers has it; its cosine and sine are
// taken in double, whose last digits, where C libraries differ, are lost in the rounding.
struct PairTurn {
  float cosine;
  float sine;
};
inline PairTurn TurnOf(float position, float inverse_frequency, float factor) {
  const double angle = position * inverse_frequency;
  return {static_cast<float>(std::cos(angle)) * factor,
          static_cast<float>(std::sin(angle)) * factor};
}

// Rows of a table from `first_row` on.
struct KeyTurnRows {
  std::span<const float> inverse_frequencies = {};  // [dims / 2]
  float factor = 1.0F;
  int64_t first_row = 0;
  std::span<float> rows = {};  // whole ones
};

// Thread rule: one call at a time per pool.
void FillKeyTurns(const KeyTurnRows& args, ThreadPool& pool);

}  // namespace spillway::kernels
