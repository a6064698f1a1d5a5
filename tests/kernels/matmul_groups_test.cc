#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "tests/kernels/matmul_call.h"

namespace spillway::kernels {
namespace {

// One group of x as AMX and VNNI take it (matmul_groups.h), in plain C++.
struct GroupX {
  std::vector<int64_t> integers;
  float scale = 0;

  GroupX(const float* x, int64_t n, float levels) {
    float largest = 0;
    for (int64_t k = 0; k < n; ++k) largest = std::max(largest, std::abs(x[k]));
    const float inverse = largest >= 0x1p-100F ? levels / largest : 0.0F;
    for (int64_t k = 0; k < n; ++k) integers.push_back(std::lrint(x[k] * inverse));
    integers.resize(64, 0);
    scale = largest * (1.0F / levels);
  }
};

// Minimum and step of a part of a group.
struct Steps {
  float minimum;
  float step;
};

// A group's parts, and its codes from 0 on.
struct Group {
  std::vector<Steps> parts;
  std::vector<int64_t> codes;

  Group(const std::byte* bytes, DType dtype) : bytes_(bytes, bytes + GroupBytes(dtype)) {
    for (int64_t part = 0; part < PartsOfGroup(dtype); ++part)
      parts.push_back(StepsOf(dtype, static_cast<std::size_t>(part)));
    for (int64_t k = 0; k < 64; ++k) codes.push_back(CodeOf(dtype, k));
  }

 private:
  float HalfAt(std::size_t at) const {
    uint16_t half = 0;
    std::memcpy(&half, bytes_.data() + at, sizeof(half));
    return HalfToFloat(half);
  }
  float ByteAt(std::size_t at) const {
    return static_cast<float>(std::to_integer<int8_t>(bytes_[at]));
  }

  Steps StepsOf(DType dtype, std::size_t part) const {
    if (dtype == DType::kInt8 || dtype == DType::kInt4) {
      uint32_t word = 0;
      std::memcpy(&word, bytes_.data(), sizeof(word));
      const auto step = std::bit_cast<float>(word & ~kZeroMask);
      return {-static_cast<float>(word & kZeroMask) * step, step};
    }
    if (dtype == DType::kQ8 || dtype == DType::kQ4) return {HalfAt(0), HalfAt(2)};
    if (HasCodedScales(dtype)) {
      const auto count = static_cast<std::size_t>(NumCodedScales(dtype));
      return {-HalfAt(2) * ByteAt(4 + count + part), HalfAt(0) * ByteAt(4 + part)};
    }
    const float step = HalfAt(2 * part);
    if (dtype == DType::kGgufM4) return {HalfAt(4 + 2 * part), step};
    if (dtype == DType::kMxfp4) return {-6.0F * step, 0.5F * step};
    return {-static_cast<float>(MiddleCode(dtype)) * step, step};
  }

  // From what the code is worth where steps are 1 and minimums 0.
  int64_t CodeOf(DType dtype, int64_t k) const {
    std::vector<std::byte> plain = bytes_;
    const uint16_t zero = 0;
    const uint16_t one = 0x3C00;
    const auto put = [&](std::size_t at, auto value) {
      std::memcpy(plain.data() + at, &value, sizeof(value));
    };
    if (dtype == DType::kInt8 || dtype == DType::kInt4) {
      put(0, 1.0F);
    } else if (dtype == DType::kQ8 || dtype == DType::kQ4) {
      put(0, zero);
      put(2, one);
    } else if (HasCodedScales(dtype)) {
      put(0, one);
      put(2, zero);
      put(4, uint32_t{0x01010101});
    } else {
      put(0, one);
      put(2, one);
      if (dtype == DType::kGgufM4) put(4, uint32_t{0});
    }
    const float worth = DequantiseRef(plain.data(), dtype, k);
    if (dtype == DType::kMxfp4) return std::lrint(2 * worth) + 12;
    return std::lrint(worth) + (HasTwoScales(dtype) ? MiddleCode(dtype) : 0);
  }

  std::vector<std::byte> bytes_;
};

float SumOfGroups(const MatmulCall& call, int64_t row, int64_t out, float levels) {
  const DType dtype = call.piece.weight_dtype;
  const std::byte* weight =
      static_cast<const std::byte*>(call.piece.weight) + out * RowBytes(dtype, call.shape.in);
  float y = 0;
  for (int64_t k = 0; k < call.shape.in; k += 64, weight += GroupBytes(dtype)) {
    const int64_t n = std::min<int64_t>(64, call.shape.in - k);
    const GroupX x(call.args.x + row * call.args.x_stride + k, n, levels);
    const Group group(weight, dtype);
    const std::size_t size = 64 / group.parts.size();
    for (std::size_t part = 0; part < group.parts.size(); ++part) {
      int64_t sum = 0;
      int64_t sum_of_x = 0;
      for (std::size_t i = part * size; i < (part + 1) * size; ++i) {
        sum += x.integers[i] * group.codes[i];
        sum_of_x += x.integers[i];
      }
      const auto [minimum, step] = group.parts[part];
      y = std::fma(step * static_cast<float>(sum), x.scale, y);
      y = std::fma(minimum, static_cast<float>(sum_of_x) * x.scale, y);
    }
  }
  return y;
}

// Groups as AMX and VNNI multiply their codes.
class GroupsTest : public testing::TestWithParam<IsaAndDType> {};

std::vector<IsaAndDType> EveryCaseOfCodes() {
  std::vector<IsaAndDType> cases;
  for (const Isa isa : {Isa::kAvx512Vnni, Isa::kVnniInt8, Isa::kAmx, Isa::kAmxInt8}) {
    if (kTilesAreMemory && !HasTiles(isa)) continue;
    for (const DType dtype :
         {DType::kQ8, DType::kQ4, DType::kInt8, DType::kInt4, DType::kMxfp4, DType::kGgufQ8,
          DType::kGgufQ4, DType::kGgufM4, DType::kGgufK4, DType::kGgufK6}) {
      if (HasTiles(isa) && PartsOfGroup(dtype) > 1) continue;  // they become floats there
      cases.push_back({isa, dtype});
    }
  }
  return cases;
}

INSTANTIATE_TEST_SUITE_P(All, GroupsTest, testing::ValuesIn(EveryCaseOfCodes()), ParamName);

TEST_P(GroupsTest, GivesTheBitsOfItsDefinition) {
  const auto [isa, dtype] = GetParam();
  const std::vector<Isa> isas = ProductIsas(ComputeOf(IsaName(isa)));
  const float levels = RoundsToBytes(isa) ? 127.0F : 32639.0F;
  if (std::find(isas.begin(), isas.end(), isa) == isas.end())
    GTEST_SKIP() << "this machine has no " << IsaName(isa);
  uint32_t seed = 0;
  for (const auto& [rows, in, out] : {Shape{1, 2100, 50}, Shape{2, 800, 35}, Shape{3, 64, 17},
                                      Shape{4, 1000, 20}, Shape{8, 33, 16}, Shape{9, 700, 40},
                                      Shape{70, 1, 3}, Shape{33, 577, 21}, Shape{262, 130, 18}}) {
    MatmulCall call({rows, in, out}, dtype, ++seed);
    // Values far from the others, a tiny group and one of zeros.
    for (int64_t row = 0; row < rows; row += 2) {
      float* x = call.x.data() + row * (in + 3);
      x[in / 2] *= 1000;
      const float factor = row % 4 == 0 ? 0 : 1e-35F;
      for (int64_t k = 64; k < std::min<int64_t>(in, 128); ++k) x[k] *= factor;
    }
    const std::vector<float> y = call.Run(isa);
    for (int64_t row = 0; row < rows; ++row) {
      for (int64_t at = 0; at < out; ++at) {
        ASSERT_EQ(y[static_cast<size_t>(row * out + at)], SumOfGroups(call, row, at, levels))
            << " rows " << rows << " in " << in << " at " << row << " " << at;
      }
    }
  }
}

}  // namespace
}  // namespace spillway::kernels
