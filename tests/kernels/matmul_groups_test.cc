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
  float total = 0;

  GroupX(const float* x, int64_t n) {
    float largest = 0;
    for (int64_t k = 0; k < n; ++k) largest = std::max(largest, std::abs(x[k]));
    const float inverse = largest >= 0x1p-100F ? 32639.0F / largest : 0.0F;
    int64_t sum = 0;
    for (int64_t k = 0; k < n; ++k) {
      integers.push_back(std::lrint(x[k] * inverse));
      sum += integers.back();
    }
    scale = largest * (1.0F / 32639.0F);
    total = static_cast<float>(sum) * scale;
  }
};

// Minimum and step of a group, and its codes: worths where those are 0 and 1.
struct Group {
  float head[2];
  std::vector<float> codes;

  Group(const std::byte* bytes, DType dtype) {
    if (dtype == DType::kInt8 || dtype == DType::kInt4) {
      TakeIntegers(bytes, dtype);
      return;
    }
    uint16_t halfs[2];
    std::memcpy(halfs, bytes, sizeof(halfs));
    for (int i = 0; i < 2; ++i) head[i] = HalfToFloat(halfs[i]);
    std::vector<std::byte> group(bytes, bytes + GroupBytes(dtype));
    const uint16_t plain[2] = {0, 0x3C00};
    std::memcpy(group.data(), plain, sizeof(plain));
    for (int64_t k = 0; k < 64; ++k) codes.push_back(DequantiseRef(group.data(), dtype, k));
  }

 private:
  void TakeIntegers(const std::byte* bytes, DType dtype) {
    uint32_t word = 0;
    std::memcpy(&word, bytes, sizeof(word));
    head[1] = std::bit_cast<float>(word & ~kZeroMask);
    head[0] = -static_cast<float>(word & kZeroMask) * head[1];
    std::vector<std::byte> group(bytes, bytes + GroupBytes(dtype));
    const float plain = 1.0F;
    std::memcpy(group.data(), &plain, sizeof(plain));
    for (int64_t k = 0; k < 64; ++k) codes.push_back(DequantiseRef(group.data(), dtype, k));
  }
};

float SumOfGroups(const MatmulCall& call, int64_t row, int64_t out) {
  const DType dtype = call.piece.weight_dtype;
  const std::byte* weight =
      static_cast<const std::byte*>(call.piece.weight) + out * RowBytes(dtype, call.shape.in);
  float y = 0;
  for (int64_t k = 0; k < call.shape.in; k += 64, weight += GroupBytes(dtype)) {
    const int64_t n = std::min<int64_t>(64, call.shape.in - k);
    const GroupX x(call.args.x + row * call.args.x_stride + k, n);
    const Group group(weight, dtype);
    int64_t sum = 0;
    for (size_t i = 0; i < x.integers.size(); ++i) {
      sum += x.integers[i] * static_cast<int64_t>(group.codes[i]);
    }
    y = std::fma(group.head[1] * static_cast<float>(sum), x.scale, y);
    y = std::fma(group.head[0], x.total, y);
  }
  return y;
}

// Groups as AMX and VNNI multiply their codes.
class GroupsTest : public testing::TestWithParam<IsaAndDType> {};

std::vector<IsaAndDType> EveryCaseOfCodes() {
  std::vector<IsaAndDType> cases;
  for (const Isa isa : {Isa::kAvx512Vnni, Isa::kAmx}) {
    for (const DType dtype : {DType::kQ8, DType::kQ4, DType::kInt8, DType::kInt4})
      cases.push_back({isa, dtype});
  }
  return cases;
}

INSTANTIATE_TEST_SUITE_P(All, GroupsTest, testing::ValuesIn(EveryCaseOfCodes()), ParamName);

TEST_P(GroupsTest, GivesTheBitsOfItsDefinition) {
  const auto [isa, dtype] = GetParam();
  const std::vector<Isa> isas = SupportedIsas();
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
        ASSERT_EQ(y[static_cast<size_t>(row * out + at)], SumOfGroups(call, row, at))
            << " rows " << rows << " in " << in << " at " << row << " " << at;
      }
    }
  }
}

}  // namespace
}  // namespace spillway::kernels
