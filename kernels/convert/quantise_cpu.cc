#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>

#include "kernels/convert/convert.h"
#include "kernels/convert/convert_isa.h"
#include "kernels/convert/quantise.h"
#include "spillway/error.h"

namespace spillway::kernels {
namespace {

uint32_t HeadWordOf(const std::byte* group) {
  uint32_t word = 0;
  std::memcpy(&word, group, sizeof(word));
  return word;
}

struct GroupHead {  // of kMxfp4 two scales, of kFp8 0 and its scale
  float minimum;
  float step;
};

GroupHead HeadOf(const std::byte* group, DType dtype) {
  const uint32_t head = HeadWordOf(group);
  if (HasZeroPoint(dtype)) {
    const auto scale = std::bit_cast<float>(head & ~kZeroMask);
    return {-static_cast<float>(head & kZeroMask) * scale, scale};
  }
  if (dtype == DType::kFp8) return {0.0F, std::bit_cast<float>(head)};
  const auto halfs = std::bit_cast<std::array<uint16_t, 2>>(head);
  return {HalfToFloat(halfs[0]), HalfToFloat(halfs[1])};
}

float WeightOf(const GroupHead& head, int64_t code) {
  return std::fma(static_cast<float>(code), head.step, head.minimum);
}

// True where a weight of the group may be no finite number.
bool MayOverflow(const std::byte* group, DType dtype, const GroupHead& head) {
  if (dtype == DType::kFp8) return !std::isfinite(kFp8Largest * head.step);
  if (!HasZeroPoint(dtype)) return false;
  const auto zero = static_cast<int64_t>(HeadWordOf(group) & kZeroMask);
  const auto most = static_cast<float>(MaxCode(dtype) - zero);
  return !std::isfinite(most * head.step);
}

bool HasFp8NaN(const std::byte* group) {
  return std::any_of(group + kGroupHeadBytes, group + GroupBytes(DType::kFp8), [](std::byte code) {
    return (std::to_integer<unsigned>(code) & kFp8NaN) == kFp8NaN;
  });
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
    const std::byte* group = rows.data() + at;
    const GroupHead head = HeadOf(group, dtype);
    if (!std::isfinite(head.minimum) || !std::isfinite(head.step) ||
        MayOverflow(group, dtype, head) || (dtype == DType::kFp8 && HasFp8NaN(group))) {
      return static_cast<int64_t>(at / bytes);
    }
  }
  return -1;
}

void PackGroup(uint32_t head, std::span<const uint8_t> codes, DType dtype,
               std::span<std::byte> group) {
  SPILLWAY_CHECK(std::ssize(codes) == kGroupWeights && std::ssize(group) == GroupBytes(dtype));
  std::memcpy(group.data(), &head, sizeof(head));
  const std::span<std::byte> to = group.subspan(kGroupHeadBytes);
  if (CodeBits(dtype) == 8) {
    std::memcpy(to.data(), codes.data(), codes.size());
    return;
  }
  for (std::size_t word = 0; word < 8; ++word) {
    uint32_t packed = 0;
    for (std::size_t nibble = 0; nibble < 8; ++nibble) {
      const auto from = static_cast<std::size_t>(kNibbleBegin[nibble]) + word;
      packed |= static_cast<uint32_t>(codes[from]) << (4 * nibble);
    }
    std::memcpy(to.data() + word * sizeof(packed), &packed, sizeof(packed));
  }
}

float Fp8Number(uint8_t code) {
  const int exponent = code >> 3 & 15;
  const auto mantissa = static_cast<float>(code & 7);
  const float size =
      exponent == 0 ? std::ldexp(mantissa, -9) : std::ldexp(8.0F + mantissa, exponent - 7 - 3);
  return code < 128 ? size : -size;
}

float DequantiseRef(const std::byte* row, DType dtype, int64_t k) {
  const std::byte* group = row + k / kGroupWeights * GroupBytes(dtype);
  const std::byte* codes = group + kGroupHeadBytes;
  const int64_t at = k % kGroupWeights;
  const GroupHead head = HeadOf(group, dtype);
  if (CodeBits(dtype) == 8) {
    const auto byte = std::to_integer<uint8_t>(codes[at]);
    return dtype == DType::kFp8 ? Fp8Number(byte) * head.step : WeightOf(head, byte);
  }
  std::size_t nibble = 0;
  while (kNibbleBegin[nibble] != at / 8 * 8) ++nibble;
  const auto byte = std::to_integer<int64_t>(codes[at % 8 * 4 + static_cast<int64_t>(nibble / 2)]);
  const int64_t code = nibble % 2 == 0 ? byte & 15 : byte >> 4;
  if (dtype != DType::kMxfp4) return WeightOf(head, code);
  const float scale = at < kScaledWeights ? head.minimum : head.step;
  const float size = 0.5F * static_cast<float>(kFp4Doubles[code % 8]) * scale;
  return code < 8 ? size : -size;
}

}  // namespace spillway::kernels
