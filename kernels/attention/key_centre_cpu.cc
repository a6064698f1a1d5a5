#include <algorithm>
#include <cmath>

#include "kernels/attention/head_turn.h"
#include "kernels/attention/key_centre.h"
#include "kernels/kv/key_turns.h"  // TurnOf
#include "spillway/error.h"

namespace spillway::kernels {
namespace {

constexpr int64_t kRowsPerTask = 16;

// Adds one head's key, turned back from its position.
void SumKey(const KeySumArgs& args, int64_t position, const float* key, double* sums) {
  const HeadRotation& rotation = args.rotation;
  for (int64_t pair = 0; pair < rotation.dims / 2; ++pair) {
    const PairTurn turn =
        TurnOf(static_cast<float>(position), args.inverse_frequencies[pair], 1.0F);
    const double a = key[rotation.First(pair)];
    const double b = key[rotation.Second(pair)];
    sums[rotation.First(pair)] += a * turn.cosine + b * turn.sine;
    sums[rotation.Second(pair)] += b * turn.cosine - a * turn.sine;
  }
  for (int64_t d = rotation.dims; d < args.head_dim; ++d) sums[d] += key[d];
}

// One head's mean at a span.
void TurnMean(const SpanMeanArgs& args, const float* mean, int64_t span, float* to) {
  const HeadRotation& rotation = args.rotation;
  const float* cosines = args.turns + span * args.turns_stride;
  const float* sines = cosines + rotation.dims / 2;
  for (int64_t pair = 0; pair < rotation.dims / 2; ++pair) {
    const float a = mean[rotation.First(pair)];
    const float b = mean[rotation.Second(pair)];
    to[rotation.First(pair)] = a * cosines[pair] - b * sines[pair];
    to[rotation.Second(pair)] = b * cosines[pair] + a * sines[pair];
  }
  std::copy(mean + rotation.dims, mean + args.head_dim, to + rotation.dims);
}

}  // namespace

void SumKeys(const KeySumArgs& args) {
  for (int64_t row = 0; row < args.rows; ++row) {
    for (int64_t head = 0; head < args.num_kv_heads; ++head) {
      const int64_t at = head * args.head_dim;
      SumKey(args, args.first_position + row, args.keys + row * args.stride + at, args.sums + at);
    }
  }
}

void MakeKeyMeans(const KeyMeanArgs& args) {
  for (int64_t i = 0; i < args.size; ++i) {
    const double mean = args.sums[i] / static_cast<double>(std::max<int64_t>(args.num_keys, 1));
    args.means[i] = std::isfinite(mean) ? static_cast<float>(mean) : 0.0F;
    args.sums[i] = 0.0;
  }
}

void FillSpanTurns(const SpanTurnArgs& args, ThreadPool& pool) {
  const auto half = static_cast<int64_t>(args.inverse_frequencies.size());
  SPILLWAY_CHECK(2 * half <= args.stride);
  auto fill = [&](int64_t index, int /*worker*/) {
    const int64_t first = (args.first_span + index) * kKeyMeanSpan;
    float* cosines = args.turns + index * args.stride;
    for (int64_t pair = 0; pair < half; ++pair) {
      const float frequency = args.inverse_frequencies[static_cast<std::size_t>(pair)];
      double cosine = 0.0;
      double sine = 0.0;
      for (int64_t i = 0; i < kKeyMeanSpan; ++i) {
        const PairTurn turn = TurnOf(static_cast<float>(first + i), frequency, 1.0F);
        cosine += turn.cosine;
        sine += turn.sine;
      }
      cosines[pair] = static_cast<float>(cosine / kKeyMeanSpan);
      cosines[half + pair] = static_cast<float>(sine / kKeyMeanSpan);
    }
  };
  pool.Run(args.num_spans, fill);
}

void FillSpanMeans(const SpanMeanArgs& args, ThreadPool& pool) {
  if (args.first >= args.end) return;
  SPILLWAY_CHECK(args.end <= args.num_spans);
  const int64_t num_filled = args.end - args.first;
  auto fill = [&](int64_t index, int /*worker*/) {
    const int64_t span = args.first + index;
    for (int64_t head = 0; head < args.num_kv_heads; ++head) {
      TurnMean(args, args.means + head * args.head_dim, span,
               args.table + (head * args.num_spans + span) * args.head_dim);
    }
  };
  pool.Run(num_filled, fill);
  for (int64_t head = 0; head < args.num_kv_heads; ++head) {
    TurnHeads({args.table + (head * args.num_spans + args.first) * args.head_dim, args.head_dim,
               num_filled, 1, args.head_dim},
              pool);
  }
}

void CentreKeys(const CentreKeysArgs& args, ThreadPool& pool) {
  auto centre = [&](int64_t task, int /*worker*/) {
    const int64_t end = std::min(args.rows, (task + 1) * kRowsPerTask);
    for (int64_t row = task * kRowsPerTask; row < end; ++row) {
      SPILLWAY_CHECK(args.positions[row] < args.means.num_spans * kKeyMeanSpan);
      for (int64_t head = 0; head < args.num_kv_heads; ++head) {
        const float* mean = args.means.At(head, args.positions[row], args.head_dim);
        float* key = args.keys + row * args.stride + head * args.head_dim;
        for (int64_t d = 0; d < args.head_dim; ++d) key[d] -= mean[d];
      }
    }
  };
  pool.Run((args.rows + kRowsPerTask - 1) / kRowsPerTask, centre);
}

}  // namespace spillway::kernels
