#include "kernels/rows/rotate.h"

#include <gtest/gtest.h>

#include <cmath>
#include <complex>
#include <limits>
#include <span>
#include <vector>

#include "tests/kernels/kernel_test_util.h"

namespace spillway::kernels {
namespace {

constexpr int64_t kHeads = 3;
constexpr RopePairs kPairs[] = {RopePairs::kHalves, RopePairs::kNeighbours};

// Rows of three heads and five more columns, of positions far and near.
struct Turned {
  int64_t head_dim;
  int64_t dims;
  int64_t stride;
  std::vector<float> frequencies;
  std::vector<int32_t> positions = {0, 1, 131072, 77, 4095, 65536, 131071};
  std::vector<float> x;

  Turned(int64_t head_dim, int64_t dims)
      : head_dim(head_dim),
        dims(dims),
        stride(kHeads * head_dim + 5),
        frequencies(InverseFrequencies(dims)),
        x(RandomFloats(rows() * stride, 1)) {}

  int64_t rows() const { return std::ssize(positions); }
  RotateArgs Args(std::vector<float>& of, RopePairs pairs) const {
    return {.x = of.data(),
            .x_stride = stride,
            .rows = rows(),
            .num_heads = kHeads,
            .head_dim = head_dim,
            .positions = positions.data(),
            .inverse_frequencies = frequencies.data(),
            .dims = dims,
            .pairs = pairs};
  }
  // Whether a float of x is among those that turn.
  bool Turns(int64_t at) const {
    const int64_t col = at % stride;
    return col < kHeads * head_dim && col % head_dim < dims;
  }
};

class RotateTest : public testing::TestWithParam<Isa> {};

INSTANTIATE_TEST_SUITE_P(Isas, RotateTest, testing::ValuesIn(SupportedIsas()), IsaParamName);

TEST_P(RotateTest, AgreesWithTheOracle) {
  ThreadPool pool(2);
  for (const auto& [head_dim, dims] : {std::pair{2, 2},
                                       {7, 6},
                                       {20, 20},
                                       {64, 64},
                                       {80, 32},
                                       {96, 90},
                                       {128, 128},
                                       {130, 66},
                                       {512, 512}}) {
    const Turned turned(head_dim, dims);
    for (const RopePairs pairs : kPairs) {
      for (const float factor : {1.0F, 1.3F}) {
        std::vector<float> ours = turned.x;
        std::vector<float> expected = turned.x;
        RotateArgs args = turned.Args(ours, pairs);
        args.factor = factor;
        Rotate(args, pool, GetParam());
        args.x = expected.data();
        RotateRef(args);
        for (int64_t i = 0; i < std::ssize(ours); ++i) {
          const auto at = static_cast<size_t>(i);
          ASSERT_NEAR(ours[at], expected[at], 2e-6) << head_dim << " " << dims << " " << i;
          if (!turned.Turns(i)) {
            ASSERT_EQ(ours[at], turned.x[at]) << i;
          }
        }
      }
    }
  }
}

// Rows turn by the table that they name, as each would by itself.
TEST_P(RotateTest, RowsMayHaveTablesOfTheirOwn) {
  ThreadPool pool(2);
  Turned turned(20, 12);
  const std::vector<float> first = turned.frequencies;
  for (const float factor : {0.5F, 2.0F}) {
    for (const float frequency : first) turned.frequencies.push_back(frequency * factor);
  }
  const std::vector<int32_t> tables = {0, 2, 1, 1, 0, 2, 1};
  for (const RopePairs pairs : kPairs) {
    std::vector<float> ours = turned.x;
    std::vector<float> oracles = turned.x;
    RotateArgs args = turned.Args(ours, pairs);
    args.tables = tables.data();
    Rotate(args, pool, GetParam());
    args.x = oracles.data();
    RotateRef(args);
    for (int64_t row = 0; row < turned.rows(); ++row) {
      std::vector<float> alone = turned.x;
      RotateArgs own = turned.Args(alone, pairs);
      own.inverse_frequencies += tables[static_cast<size_t>(row)] * 6;
      Rotate(own, pool, GetParam());
      for (int64_t at = row * turned.stride; at < (row + 1) * turned.stride; ++at) {
        ASSERT_EQ(ours[static_cast<size_t>(at)], alone[static_cast<size_t>(at)]) << at;
        ASSERT_NEAR(oracles[static_cast<size_t>(at)], alone[static_cast<size_t>(at)], 2e-6) << at;
      }
    }
  }
}

// Products of complex numbers, in long double, which the oracle must give too.
TEST_P(RotateTest, IsAProductOfComplexNumbers) {
  ThreadPool pool(1);
  const Turned turned(64, 40);
  for (const RopePairs pairs : kPairs) {
    std::vector<float> ours = turned.x;
    std::vector<float> oracles = turned.x;
    RotateArgs args = turned.Args(ours, pairs);
    args.factor = 0.5F;
    Rotate(args, pool, GetParam());
    args.x = oracles.data();
    RotateRef(args);
    for (int64_t row = 0; row < turned.rows(); ++row) {
      for (int64_t pair = 0; pair < 20; ++pair) {
        const float angle = static_cast<float>(turned.positions[static_cast<size_t>(row)]) *
                            turned.frequencies[static_cast<size_t>(pair)];
        const auto head = static_cast<size_t>(row * turned.stride + 64);  // the second
        const size_t first =
            head + static_cast<size_t>(pairs == RopePairs::kHalves ? pair : 2 * pair);
        const size_t second = first + (pairs == RopePairs::kHalves ? 20 : 1);
        const std::complex<double> product(
            std::complex<long double>(turned.x[first], turned.x[second]) *
            std::polar<long double>(0.5L, angle));
        for (const std::vector<float>* x : {&ours, &oracles}) {
          ASSERT_NEAR((*x)[first], product.real(), 1e-6) << row << " " << pair;
          ASSERT_NEAR((*x)[second], product.imag(), 1e-6) << row << " " << pair;
        }
      }
    }
  }
}

// Cosines and sines themselves, of 1 + 0i.
TEST_P(RotateTest, AnglesAreAccurate) {
  ThreadPool pool(1);
  const float frequency = 1.0F;
  for (int32_t position = 0; position <= 131072; position += 37) {
    const auto angle = static_cast<long double>(position);
    for (const RopePairs pairs : kPairs) {
      float x[2] = {1.0F, 0.0F};
      Rotate({x, 2, 1, 1, 2, &position, &frequency, 2, pairs}, pool, GetParam());
      ASSERT_NEAR(x[0], static_cast<double>(std::cos(angle)), 1e-7) << position;
      ASSERT_NEAR(x[1], static_cast<double>(std::sin(angle)), 1e-7) << position;
    }
  }
}

TEST_P(RotateTest, NeighboursAreHalvesInAnotherOrder) {
  ThreadPool pool(1);
  const Turned turned(44, 44);
  std::vector<float> halves = turned.x;
  std::vector<float> neighbours = turned.x;
  const auto place = [&](int64_t row, int64_t head, int64_t d) {
    return static_cast<size_t>(row * turned.stride + head * 44 + d);
  };
  const auto for_each = [&](const auto& visit) {
    for (int64_t row = 0; row < turned.rows(); ++row)
      for (int64_t head = 0; head < kHeads; ++head)
        for (int64_t d = 0; d < 44; ++d)
          visit(place(row, head, d), place(row, head, d % 22 * 2 + d / 22));
  };
  for_each([&](size_t half, size_t near) { neighbours[near] = halves[half]; });
  Rotate(turned.Args(halves, RopePairs::kHalves), pool, GetParam());
  Rotate(turned.Args(neighbours, RopePairs::kNeighbours), pool, GetParam());
  for_each([&](size_t half, size_t near) { ASSERT_EQ(neighbours[near], halves[half]) << half; });
}

// As the portable code has them on one thread, all rows at once.
TEST_P(RotateTest, BitsDependOnTheRowOnly) {
  Turned turned(72, 50);
  for (int32_t position = 0; position < 300; ++position) turned.positions.push_back(position * 11);
  turned.x = RandomFloats(turned.rows() * turned.stride, 2);
  ThreadPool one(1);
  for (const RopePairs pairs : kPairs) {
    std::vector<float> expected = turned.x;
    Rotate(turned.Args(expected, pairs), one, Isa::kPortable);
    for (const int num_threads : {1, 2, 4}) {
      ThreadPool pool(num_threads);
      std::vector<float> together = turned.x;
      Rotate(turned.Args(together, pairs), pool, GetParam());
      EXPECT_EQ(Bits(together), Bits(expected)) << num_threads;
    }
    std::vector<float> alone = turned.x;
    for (int64_t row = 0; row < turned.rows(); ++row) {
      RotateArgs args = turned.Args(alone, pairs);
      args.x += row * turned.stride;
      args.positions += row;
      args.rows = 1;
      Rotate(args, one, GetParam());
    }
    EXPECT_EQ(Bits(alone), Bits(expected));
  }
}

TEST_P(RotateTest, ABadValueSpoilsItsPairOnly) {
  ThreadPool pool(1);
  const Turned turned(40, 36);
  for (const float bad :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    for (const RopePairs pairs : kPairs) {
      std::vector<float> clean = turned.x;
      std::vector<float> x = turned.x;
      const auto at = static_cast<size_t>(3 * turned.stride + 40 + 4);
      const size_t other = at + (pairs == RopePairs::kHalves ? 18 : 1);
      x[at] = bad;
      Rotate(turned.Args(clean, pairs), pool, GetParam());
      Rotate(turned.Args(x, pairs), pool, GetParam());
      EXPECT_FALSE(std::isfinite(x[at]));
      EXPECT_FALSE(std::isfinite(x[other]));
      x[at] = clean[at];
      x[other] = clean[other];
      EXPECT_EQ(Bits(x), Bits(clean));
    }
  }
}

}  // namespace
}  // namespace spillway::kernels
