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

// Minimum and step of some of a group's weights; of kFp8 0 and its scale.
struct Steps {
  float minimum;
  float step;
};

struct Halfs {
  float first;
  float second;
};

// Two neighbours.
Halfs HalfsOf(const std::byte* at) {
  const auto halfs = std::bit_cast<std::array<uint16_t, 2>>(HeadWordOf(at));
  return {HalfToFloat(halfs[0]), HalfToFloat(halfs[1])};
}

float CodedScale(const std::byte* group, int64_t index) {
  return static_cast<float>(std::to_integer<int8_t>(group[kCodedScalesAt + index]));
}

// Those of weight `at` of the group.
Steps StepsOf(const std::byte* group, DType dtype, int64_t at) {
  const uint32_t word = HeadWordOf(group);
  if (HasZeroPoint(dtype)) {
    const auto scale = std::bit_cast<float>(word & ~kZeroMask);
    return {-static_cast<float>(word & kZeroMask) * scale, scale};
  }
  if (dtype == DType::kFp8) return {0.0F, std::bit_cast<float>(word)};
  const auto [first, second] = HalfsOf(group);
  if (HasCodedScales(dtype)) {
    const int64_t count = NumCodedScales(dtype);
    const int64_t index = at * count / kGroupWeights;
    return {-second * CodedScale(group, count + index), first * CodedScale(group, index)};
  }
  const float scale = at < kScaledWeights ? first : second;
  if (HasTwoMinimums(dtype)) {
    const auto [of_first, of_second] = HalfsOf(group + kMinimumsAt);
    return {at < kScaledWeights ? of_first : of_second, scale};
  }
  if (HasTwoScales(dtype)) return {-static_cast<float>(MiddleCode(dtype)) * scale, scale};
  return dtype == DType::kMxfp4 ? Steps{0.0F, scale} : Steps{first, second};
}

float WeightOf(const Steps& steps, int64_t code) {
  return std::fma(static_cast<float>(code), steps.step, steps.minimum);
}

// Place of a code of 4 bits, or of the lower ones of 6, among the nibbles of its words.
struct NibblePlace {
  int64_t word;
  int64_t nibble;
};

NibblePlace PlaceOf(int64_t at) {
  int64_t nibble = 0;
  while (kNibbleBegin[nibble] != at / 8 * 8) ++nibble;
  return {at % 8, nibble};
}

int64_t CodeOf(const std::byte* codes, DType dtype, int64_t at) {
  if (CodeBits(dtype) == 8) return std::to_integer<int64_t>(codes[at]);
  const auto [word, nibble] = PlaceOf(at);
  const auto byte = std::to_integer<int64_t>(codes[word * 4 + nibble / 2]);
  const int64_t low = nibble % 2 == 0 ? byte & 15 : byte >> 4;
  if (CodeBits(dtype) == 4) return low;
  const auto high = std::to_integer<int64_t>(codes[kGroupWeights / 2 + word * 2 + nibble / 4]);
  return low | (high >> (2 * (nibble % 4)) & 3) << 4;
}

// True where a weight of the group may be no finite number.
bool MayOverflow(const std::byte* group, DType dtype, float step) {
  if (dtype == DType::kFp8) return !std::isfinite(kFp8Largest * step);
  if (!HasZeroPoint(dtype)) return false;
  const auto zero = static_cast<int64_t>(HeadWordOf(group) & kZeroMask);
  const auto most = static_cast<float>(MaxCode(dtype) - zero);
  return !std::isfinite(most * step);
}

// True of two fp16 in the place of the head's first word, or of what is there in place of them.
bool HasFiniteHead(const std::byte* group, DType dtype) {
  if (HasZeroPoint(dtype) || dtype == DType::kFp8) {
    const auto [minimum, step] = StepsOf(group, dtype, 0);
    return std::isfinite(minimum) && std::isfinite(step) && !MayOverflow(group, dtype, step);
  }
  const auto are_finite = [](const Halfs& halfs) {
    return std::isfinite(halfs.first) && std::isfinite(halfs.second);
  };
  return are_finite(HalfsOf(group)) &&
         (!HasTwoMinimums(dtype) || are_finite(HalfsOf(group + kMinimumsAt)));
}

bool HasFp8NaN(const std::byte* group) {
  return std::any_of(
      group + GroupHeadBytes(DType::kFp8), group + GroupBytes(DType::kFp8),
      [](std::byte code) { return (std::to_integer<unsigned>(code) & kFp8NaN) == kFp8NaN; });
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
    if (!HasFiniteHead(group, dtype) || (dtype == DType::kFp8 && HasFp8NaN(group)))
      return static_cast<int64_t>(at / bytes);
  }
  return -1;
}

void PackGroup(std::span<const std::byte> head, std::span<const uint8_t> codes, DType dtype,
               std::span<std::byte> group) {
  SPILLWAY_CHECK(std::ssize(codes) == kGroupWeights && std::ssize(group) == GroupBytes(dtype) &&
                 std::ssize(head) == GroupHeadBytes(dtype));
  std::ranges::copy(head, group.begin());
  const std::span<std::byte> to = group.subspan(head.size());
  if (CodeBits(dtype) == 8) {
    std::memcpy(to.data(), codes.data(), codes.size());
    return;
  }
  const std::span<std::byte> highs = to.subspan(kGroupWeights / 2);
  for (std::size_t word = 0; word < 8; ++word) {
    uint32_t low = 0;
    uint32_t high = 0;
    for (std::size_t nibble = 0; nibble < 8; ++nibble) {
      const uint32_t code = codes[static_cast<std::size_t>(kNibbleBegin[nibble]) + word];
      low |= (code & 15) << (4 * nibble);
      high |= (code >> 4) << (2 * nibble);
    }
    std::memcpy(to.data() + word * sizeof(low), &low, sizeof(low));
    if (!highs.empty()) std::memcpy(highs.data() + word * 2, &high, 2);
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
  const int64_t at = k % kGroupWeights;
  const Steps steps = StepsOf(group, dtype, at);
  const int64_t code = CodeOf(group + GroupHeadBytes(dtype), dtype, at);
  if (dtype == DType::kFp8) return Fp8Number(static_cast<uint8_t>(code)) * steps.step;
  if (dtype != DType::kMxfp4) return WeightOf(steps, code);
  const float size = 0.5F * static_cast<float>(kFp4Doubles[code % 8]) * steps.step;
  return code < 8 ? size : -size;
}

}  // namespace spillway::kernels
