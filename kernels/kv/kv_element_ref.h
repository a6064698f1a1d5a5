// One token's K or V as the oracles write and read it, element by element, at any width.
// A view of a KvHead. Any thread. Private to the oracles and tests.
#pragma once

#include <cmath>

#include "kernels/convert/convert.h"
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
