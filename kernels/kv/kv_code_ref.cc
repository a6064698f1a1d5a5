#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/convert/convert.h"
#include "kernels/kv/kv_code.h"

namespace spillway::kernels {
namespace {

constexpr float kLargestHalf = 65504.0F;

KvRange RangeOf(const float* x, int64_t size, int bits) {
  float lowest = x[0];
  float highest = x[0];
  for (int64_t i = 0; i < size; ++i) {
    if (std::isnan(x[i])) return KvRangeOf(x[i], x[i], bits);
    lowest = std::min(lowest, x[i]);
    highest = std::max(highest, x[i]);
  }
  return KvRangeOf(lowest, highest, bits);
}

unsigned CodeOf(float x, const KvRange& range, int bits) {
  const float min = HalfToFloat(range.min);
  const float scale = HalfToFloat(range.scale);
  if (scale == 0.0F) return 0;
  const float code = std::nearbyint((std::clamp(x, -kLargestHalf, kLargestHalf) - min) / scale);
  return static_cast<unsigned>(std::clamp(code, 0.0F, static_cast<float>(KvSteps(bits))));
}

}  // namespace

void EncodeKvRef(const float* x, int64_t head_dim, int bits, std::byte* codes, std::byte* ranges) {
  std::memset(codes, 0, static_cast<size_t>(KvCodeBytes(head_dim, bits)));
  for (int64_t begin = 0; begin < head_dim; begin += kKvGroup) {
    const int64_t size = std::min(kKvGroup, head_dim - begin);
    KvRange range = RangeOf(x + begin, size, bits);
    int64_t sum_of_codes = 0;
    for (int64_t i = begin; i < begin + size; ++i) {
      const KvCodePlace at = KvCodeAt(i, head_dim, bits);
      const unsigned code = CodeOf(x[i], range, bits);
      codes[at.byte] |= std::byte(code << at.shift);
      sum_of_codes += code;
    }
    if (range.scale != 0) range.min = KvMovedMin(range, KvSum(x + begin, size), sum_of_codes, size);
    std::memcpy(ranges + begin / kKvGroup * kKvRangeStride, &range, sizeof(range));
  }
}

float DecodeKvRef(const std::byte* codes, const std::byte* ranges, int64_t element,
                  int64_t head_dim, int bits) {
  KvRange range;
  std::memcpy(&range, ranges + element / kKvGroup * kKvRangeStride, sizeof(range));
  const KvCodePlace at = KvCodeAt(element, head_dim, bits);
  const unsigned steps = static_cast<unsigned>(KvSteps(bits));
  const unsigned code = std::to_integer<unsigned>(codes[at.byte] >> at.shift) & steps;
  return std::fma(HalfToFloat(range.scale), static_cast<float>(code), HalfToFloat(range.min));
}

}  // namespace spillway::kernels
