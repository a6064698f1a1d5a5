#include "kernels/attention/head_reflection.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/kv/kv_code.h"
#include "tests/kernels/kernel_test_util.h"
#include "tests/trace_case.h"

namespace spillway::kernels {
namespace {

constexpr int64_t kDims[] = {64, 80, 128, 16, 7, 1};

std::vector<float> ReflectorOf(const std::vector<float>& common) {
  std::vector<double> wide(common.begin(), common.end());
  std::vector<float> reflector(common.size(), kPoison);
  MakeReflectors({wide.data(), 1, std::ssize(wide), reflector.data()});
  return reflector;
}

// Queries of four heads, keys of two.
struct Heads {
  int64_t head_dim;
  int64_t rows;
  std::vector<float> q;
  std::vector<float> k;
  std::vector<float> reflectors;

  Heads(int64_t dim, int64_t num_rows)
      : head_dim(dim),
        rows(num_rows),
        q(RandomFloats(num_rows * 4 * dim, 1)),
        k(RandomFloats(num_rows * 2 * dim, 2)) {
    for (const uint32_t seed : {3U, 4U}) {
      const std::vector<float> reflector = ReflectorOf(RandomFloats(dim, seed, 5.0F));
      reflectors.insert(reflectors.end(), reflector.begin(), reflector.end());
    }
  }
  void Reflect(int num_threads) {
    ThreadPool pool(num_threads);
    ReflectHeads({q.data(), 4 * head_dim, rows, 4, 2, head_dim, reflectors.data()}, pool);
    ReflectHeads({k.data(), 2 * head_dim, rows, 2, 2, head_dim, reflectors.data()}, pool);
  }
  double Dot(int64_t row, int64_t head, int64_t key_row) const {
    double sum = 0.0;
    for (int64_t d = 0; d < head_dim; ++d) {
      sum += static_cast<double>(q[static_cast<size_t>((row * 4 + head) * head_dim + d)]) *
             k[static_cast<size_t>((key_row * 2 + head / 2) * head_dim + d)];
    }
    return sum;
  }
};

TEST(HeadReflectionTest, ProductsOfQueriesAndKeysStay) {
  for (const int64_t dim : kDims) {
    SCOPED_TRACE(CaseOf("head_dim", dim));
    const Heads plain(dim, 5);
    Heads reflected = plain;
    reflected.Reflect(1);
    EXPECT_NE(reflected.q, plain.q);
    for (int64_t row = 0; row < 5; ++row) {
      for (int64_t head = 0; head < 4; ++head)
        EXPECT_NEAR(reflected.Dot(row, head, 4 - row), plain.Dot(row, head, 4 - row), 1e-5 * 64)
            << "row " << row << " head " << head;
    }
  }
}

TEST(HeadReflectionTest, TheCommonDirectionBecomesEqualElementsOfEachGroup) {
  for (const int64_t dim : kDims) {
    for (const float sign : {1.0F, -1.0F}) {
      std::vector<float> common = RandomFloats(dim, 9);
      for (float& x : common) x += sign;
      std::vector<float> x = common;
      const std::vector<float> reflector = ReflectorOf(common);
      ThreadPool pool(1);
      ReflectHeads({x.data(), dim, 1, 1, 1, dim, reflector.data()}, pool);
      for (int64_t d = 0; d < dim; ++d) {
        const float first = x[static_cast<size_t>(d / kKvGroup * kKvGroup)];
        EXPECT_NEAR(x[static_cast<size_t>(d)], first, 1e-5) << dim << " " << d;
      }
    }
  }
}

// The purpose of it: a large part along the direction no longer widens the steps of the codes.
TEST(HeadReflectionTest, CodesAreOfWhatIsLeft) {
  constexpr int64_t kDim = 64;
  const std::vector<float> common = RandomFloats(kDim, 21, 20.0F);
  const std::vector<float> reflector = ReflectorOf(common);
  const std::vector<float> rest = RandomFloats(kDim, 22, 0.5F);
  std::vector<float> x = common;
  for (size_t d = 0; d < x.size(); ++d) x[d] += rest[d];
  const auto scale_of = [](const std::vector<float>& values) {
    const auto [lowest, highest] = std::ranges::minmax(values);
    return HalfToFloat(KvRangeOf(lowest, highest, 4).scale);
  };
  const float before = scale_of(x);
  ThreadPool pool(1);
  ReflectHeads({x.data(), kDim, 1, 1, 1, kDim, reflector.data()}, pool);
  EXPECT_LT(scale_of(x), 0.1F * before);
}

TEST(HeadReflectionTest, ARowDependsOnNoOtherAndOnNoThread) {
  Heads alone(80, 50);
  Heads shared = alone;
  alone.Reflect(1);
  shared.Reflect(3);
  EXPECT_EQ(alone.q, shared.q);
  EXPECT_EQ(alone.k, shared.k);
  Heads first(80, 50);
  first.rows = 1;
  first.Reflect(1);
  EXPECT_TRUE(std::equal(first.q.begin(), first.q.begin() + 4 * 80, alone.q.begin()));
}

TEST(HeadReflectionTest, AGroupWithoutADirectionStays) {
  for (const float bad : {0.0F, kPoison, HUGE_VALF}) {
    SCOPED_TRACE(CaseOf("bad", bad));
    std::vector<float> common = RandomFloats(128, 5);
    std::fill(common.begin() + 64, common.end(), bad);
    const std::vector<float> reflector = ReflectorOf(common);
    for (size_t d = 0; d < 64; ++d) EXPECT_NE(reflector[d], 0.0F) << d;
    for (size_t d = 64; d < 128; ++d) EXPECT_EQ(reflector[d], 0.0F) << d;
  }
}

// A long key's direction counts as much as a short one's, group by group, in whatever calls they
// come; a key of zeros has none; and the sums are ready for the next layer.
TEST(HeadReflectionTest, ReflectsTheMeanDirection) {
  constexpr int64_t kDim = 80;
  constexpr int64_t kWidth = 2 * kDim;
  std::vector<float> keys(3 * kWidth, 0.0F);
  keys[0] =
      50.0F;  // token 0 along dimension 0, head 1 along dimension 2 and, of its last group, 70
  keys[kDim + 2] = 2.0F;
  keys[kDim + 70] = 0.1F;
  keys[kWidth + 1] = 1.0F;  // token 1 along dimension 1
  keys[kWidth + kDim + 2] = 1.0F;
  std::vector<double> common(kWidth, 0.0);
  AddKeyDirections({keys.data(), kWidth, 1, 2, kDim, common.data()});
  AddKeyDirections({keys.data() + kWidth, kWidth, 2, 2, kDim, common.data()});
  std::vector<float> reflectors(kWidth, kPoison);
  MakeReflectors({common.data(), 2, kDim, reflectors.data()});
  EXPECT_EQ(common, std::vector<double>(kWidth, 0.0));
  const auto along = [](const std::vector<size_t>& dims) {
    std::vector<float> direction(kDim, 0.0F);
    for (const size_t d : dims) direction[d] = 1.0F;
    return ReflectorOf(direction);
  };
  std::vector<float> expected = along({0, 1});
  const std::vector<float> of_head_1 = along({2, 70});
  expected.insert(expected.end(), of_head_1.begin(), of_head_1.end());
  EXPECT_EQ(Bits(reflectors), Bits(expected));
}

}  // namespace
}  // namespace spillway::kernels
