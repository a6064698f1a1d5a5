// One token's K or V as the oracles write and read it, element by element, at any width.
// A view of a KvHead. Any thread. Private to the oracles and tests.
#pragma once

#include <algorithm>
#include <cmath>
#include <span>
#include <vector>

#include "kernels/convert/convert.h"
#include "kernels/kv/key_means.h"
#include "kernels/kv/key_turns.h"
#include "kernels/kv/kv_code.h"
#include "kernels/kv/kv_head.h"
#include "spillway/dtype.h"

namespace spillway::kernels {

struct KvTokenRef {
  std::byte* codes;  // or elements
  std::byte* ranges;
  int64_t head_dim;
  int bits;
  DType dtype;  // of 16 bits

  static KvTokenRef Key(const KvHead<std::byte>& head, int64_t slot, DType dtype) {
    return {head.Key(slot), head.KeyRanges(slot), head.head_dim, head.bits.key, dtype};
  }
  static KvTokenRef Value(const KvHead<std::byte>& head, int64_t slot, DType dtype) {
    return {head.Value(slot), head.ValueRanges(slot), head.head_dim, head.bits.value, dtype};
  }
  void Store(const float* x) const {
    if (bits != 16) return EncodeKvRef(x, head_dim, bits, codes, ranges);
    const auto narrow = dtype == DType::kF16 ? FloatToHalf : FloatToBFloat16;
    for (int64_t d = 0; d < head_dim; ++d) reinterpret_cast<uint16_t*>(codes)[d] = narrow(x[d]);
  }
  double At(int64_t d) const {
    if (bits != 16) return DecodeKvRef(codes, ranges, d, head_dim, bits);
    const uint16_t element = reinterpret_cast<const uint16_t*>(codes)[d];
    return dtype == DType::kF16 ? HalfToFloat(element) : BFloat16ToFloat(element);
  }
};

// A key, as a query meets it: turned by a row of the turns, where there are any.
inline std::vector<double> TurnedKeyRef(const KvTokenRef& key, const KeyTurns& turns, int64_t row) {
  std::vector<double> x(static_cast<size_t>(key.head_dim));
  for (int64_t d = 0; d < key.head_dim; ++d) x[static_cast<size_t>(d)] = key.At(d);
  for (int64_t pair = 0; turns.exist() && pair < turns.dims / 2; ++pair) {
    const auto first = static_cast<size_t>(turns.First(pair));
    const auto second = static_cast<size_t>(turns.Second(pair));
    const double cosine = static_cast<double>(turns.Cosines(row)[pair]);
    const double sine = static_cast<double>(turns.Sines(row)[pair]);
    const double a = x[first];
    x[first] = a * cosine - x[second] * sine;
    x[second] = x[second] * cosine + a * sine;
  }
  return x;
}

// A query's head, scaled, as it meets keys of codes (kernels/kv/kv_code.h).
inline std::vector<double> RoundedQueryRef(std::vector<double> q) {
  for (size_t begin = 0; begin < q.size(); begin += kKvGroup) {
    const std::span<double> group =
        std::span(q).subspan(begin, std::min<size_t>(kKvGroup, q.size() - begin));
    float largest = 0.0F;
    for (const double element : group)
      largest = std::max(largest, std::abs(static_cast<float>(element)));
    double bad = 0;  // or NaN
    for (const double element : group) bad += element * 0.0;
    const float factor = largest < kKvQueryLeast ? 0.0F : kKvQueryMost / largest;
    for (double& element : group) {
      const float number = std::nearbyint(static_cast<float>(element) * factor);
      element = factor == 0.0F ? 0.0 : static_cast<double>(number) * (largest / kKvQueryMost);
      element += bad;
    }
  }
  return q;
}

// Adds the mean of a head's keys at a position, where there are means.
inline void AddMeanRef(const KeyMeans& means, int64_t kv_head, int64_t position,
                       std::vector<double>& key) {
  if (!means.exist()) return;
  const float* mean = means.At(kv_head, position, static_cast<int64_t>(key.size()));
  for (double& element : key) element += static_cast<double>(*mean++);
}

// AttentionTensors::soft_cap applied to a score.
inline double SoftCapRef(double score, float cap) {
  return cap == 0.0F ? score : cap * std::tanh(score / cap);
}

// AttentionTensors::sinks of a head; minus infinity, which no softmax notices, where there are
// none.
inline double SinkRef(const float* sinks, int64_t head) {
  return sinks == nullptr ? -HUGE_VAL : static_cast<double>(sinks[head]);
}

}  // namespace spillway::kernels
