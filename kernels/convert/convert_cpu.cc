#include <bit>

#include "kernels/convert/convert.h"
#include "kernels/convert/convert_isa.h"
#include "spillway/error.h"
#include "src/base/isa.h"

namespace spillway::kernels {

const ConvertFunctions& BestConvert() {
  static const ConvertFunctions& best = []() -> const ConvertFunctions& {
#if defined(SPILLWAY_X86)
    const Isa isa = SupportedIsas().back();
    if (isa >= Isa::kAvx512) return kConvertAvx512;
    if (isa == Isa::kAvx2) return kConvertAvx2;
#endif
    return kConvertPortable;
  }();
  return best;
}

int64_t Convert(std::span<const std::byte> in, DType in_dtype, std::span<std::byte> out,
                DType out_dtype) {
  const int64_t count = static_cast<int64_t>(in.size()) / DTypeBytes(in_dtype);
  SPILLWAY_CHECK(static_cast<int64_t>(out.size()) == count * DTypeBytes(out_dtype));
  return BestConvert().convert({in.data(), in_dtype, out.data(), out_dtype, count});
}

int64_t FindNonFinite(std::span<const std::byte> data, DType dtype) {
  const int64_t count = static_cast<int64_t>(data.size()) / DTypeBytes(dtype);
  return BestConvert().find_non_finite(data.data(), dtype, count);
}

uint16_t FloatToHalf(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t magnitude = bits & 0x7FFFFFFFU;
  uint32_t half = 0;
  if (magnitude > 0x7F800000U) {
    half = 0x7E00U | ((magnitude >> 13) & 0x3FFU);  // NaN
  } else if (magnitude >= 0x477FF000U) {
    half = 0x7C00U;  // 65520 and up round to infinity
  } else if (magnitude >= 0x38800000U) {
    half = (magnitude + 0xFFFU + ((magnitude >> 13) & 1U) - (112U << 23)) >> 13;
  } else {  // the adder rounds at the last place of a half denormal: 0.5 has ulp 2^-24
    half = std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) + 0.5F) - 0x3F000000U;
  }
  return static_cast<uint16_t>(half | ((bits >> 16) & 0x8000U));
}

float BFloat16ToFloat(uint16_t bits) {
  return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
}

uint16_t FloatToBFloat16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7FFFFFFFU) > 0x7F800000U) return static_cast<uint16_t>((bits >> 16) | 0x40U);
  return static_cast<uint16_t>((bits + 0x7FFFU + ((bits >> 16) & 1U)) >> 16);
}

}  // namespace spillway::kernels
