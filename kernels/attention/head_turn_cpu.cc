#include <algorithm>
#include <bit>
#include <cmath>

#include "kernels/attention/head_turn.h"
#include "spillway/error.h"

namespace spillway::kernels {
namespace {

constexpr int64_t kRowsPerTask = 16;

// One stage: sums and differences of the two halves, interleaved. After log2(dim) of them, all
// alike, each element is in its place. Contiguous reads let the compiler use registers of lanes.
void Stage(const float* __restrict from, int64_t half, float scale, float* __restrict to) {
  for (int64_t i = 0; i < half; ++i) {
    const float a = from[i];
    const float b = from[half + i];
    to[2 * i] = (a + b) * scale;
    to[2 * i + 1] = (a - b) * scale;
  }
}

void TurnHead(float* x, int64_t dim) {
  float parts[2][kMaxTurnedDim];
  float* from = x;
  int64_t left = std::countr_zero(static_cast<uint64_t>(dim));
  const float scale = 1.0F / std::sqrt(static_cast<float>(dim));
  for (int part = 0; left > 0; --left, part = 1 - part) {
    Stage(from, dim / 2, left == 1 ? scale : 1.0F, parts[part]);
    from = parts[part];
  }
  if (from != x) std::copy_n(from, dim, x);
}

}  // namespace

void TurnHeads(const HeadTurnArgs& args, ThreadPool& pool) {
  SPILLWAY_CHECK(std::has_single_bit(static_cast<uint64_t>(args.head_dim)) &&
                 args.head_dim <= kMaxTurnedDim);
  auto turn = [&](int64_t task, int /*worker*/) {
    const int64_t end = std::min(args.rows, (task + 1) * kRowsPerTask);
    for (int64_t row = task * kRowsPerTask; row < end; ++row) {
      for (int64_t head = 0; head < args.num_heads; ++head)
        TurnHead(args.x + row * args.stride + head * args.head_dim, args.head_dim);
    }
  };
  pool.Run((args.rows + kRowsPerTask - 1) / kRowsPerTask, turn);
}

}  // namespace spillway::kernels
