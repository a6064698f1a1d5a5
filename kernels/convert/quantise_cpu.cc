#include <array>
#include <cmath>
#include <cstring>

#include "kernels/convert/convert.h"
#include "kernels/convert/convert_isa.h"
#include "kernels/convert/quantise.h"
#include "spillway/error.h"

namespace spillway::kernels {
namespace {

struct GroupHead {  // of kMxfp4 two scales
  float minimum;
  float step;
};

GroupHead HeadOf(const std::byte* group) {
  std::array<uint16_t, 2> halfs;
  std::memcpy(halfs.data(), group, sizeof(halfs));
  return {HalfToFloat(halfs[0]), HalfToFloat(halfs[1])};
}

float WeightOf(const GroupHead& head, int64_t code) {
  return std::fma(static_cast<float>(code), head.step, head.minimum);
}

}  // namespace

void QuantiseRow(std::span<const uint16_t> halfs, DType dtype, std::span<std::byte> row) {
  const auto count = static_cast<int64_t>(halfs.size());
  SPILLWAY_CHECK(IsQuantised(dtype) && static_cast<int64_t>(row.size()) == RowBytes(dtype, count));
  BestConvert().quantise(halfs.data(), count, dtype, row.data());
}

void DequantiseRow(const std::byte* row, DType dtype, std::span<float> floats) {
  SPILLWAY_CHECK(IsQuantised(dtype));
  BestConvert().dequantise(row, dtype, floats.data(), static_cast<int64_t>(floats.size()));
}

int64_t FindNonFiniteGroup(std::span<const std::byte> rows, DType dtype) {
  const auto bytes = static_cast<std::size_t>(GroupBytes(dtype));
  SPILLWAY_CHECK(IsQuantised(dtype) && rows.size() % bytes == 0);
  for (std::size_t at = 0; at < rows.size(); at += bytes) {
    const GroupHead head = HeadOf(rows.data() + at);
    if (!std::isfinite(head.minimum) || !std::isfinite(head.step)) {
      return static_cast<int64_t>(at / bytes);
    }
  }
  return -1;
}

float DequantiseRef(const std::byte* row, DType dtype, int64_t k) {
  const std::byte* group = row + k / kGroupWeights * GroupBytes(dtype);
  const std::byte* codes = group + kGroupHeadBytes;
  const int64_t at = k % kGroupWeights;
  if (dtype == DType::kQ8) return WeightOf(HeadOf(group), std::to_integer<int64_t>(codes[at]));
  std::size_t nibble = 0;
  while (kNibbleBegin[nibble] != at / 8 * 8) ++nibble;
  const auto byte = std::to_integer<int64_t>(codes[at % 8 * 4 + static_cast<int64_t>(nibble / 2)]);
  const int64_t code = nibble % 2 == 0 ? byte & 15 : byte >> 4;
  const GroupHead head = HeadOf(group);
  if (dtype != DType::kMxfp4) return WeightOf(head, code);
  const float scale = at < kScaledWeights ? head.minimum : head.step;
  const float size = 0.5F * static_cast<float>(kFp4Doubles[code % 8]) * scale;
  return code < 8 ? size : -size;
}

}  // namespace spillway::kernels
