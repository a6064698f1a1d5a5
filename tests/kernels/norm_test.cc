#include "kernels/rows/norm.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <span>
#include <tuple>
#include <vector>

#include "tests/kernels/kernel_test_util.h"

namespace spillway::kernels {
namespace {

class NormTest : public testing::TestWithParam<Isa> {
 protected:
  static NormArgs Args(const std::vector<float>& x, std::vector<float>& y, int64_t rows,
                       int64_t cols, NormKind kind) {
    NormArgs args;
    args.x = x.data();
    args.y = y.data();
    args.x_stride = args.y_stride = cols + 3;
    args.rows = rows;
    args.cols = cols;
    args.kind = kind;
    return args;
  }
  static const float* NoVector() { return nullptr; }
};

INSTANTIATE_TEST_SUITE_P(Isas, NormTest, testing::ValuesIn(SupportedIsas()), IsaParamName);

TEST_P(NormTest, AgreesWithTheOracle) {
  ThreadPool pool(2);
  for (const int64_t cols : {1, 3, 16, 17, 64, 100, 768, 2048}) {
    for (const bool affine : {false, true}) {
      const int64_t rows = 7;
      std::vector<float> x = RandomFloats(rows * (cols + 3), 1, 3.0F);
      for (int64_t row = 0; row < rows; ++row) {
        for (int64_t i = 0; i < cols; ++i)
          x[static_cast<size_t>(row * (cols + 3) + i)] += 10.0F;  // a large mean
        for (int64_t i = 0; i < 3; ++i)
          x[static_cast<size_t>(row * (cols + 3) + cols + i)] = kPoison;
      }
      std::vector<float> ours(x.size(), kPoison);
      std::vector<float> expected(x.size(), kPoison);
      const std::vector<float> weight = RandomFloats(cols, 2);
      const std::vector<float> bias = RandomFloats(cols, 3);
      NormArgs args = Args(x, ours, rows, cols, NormKind::kLayer);
      if (affine) args.weight = weight.data();
      if (affine) args.bias = bias.data();
      Norm(args, pool, GetParam());
      args.y = expected.data();
      NormRef(args);
      for (size_t i = 0; i < x.size(); ++i) {
        if (i % static_cast<size_t>(cols + 3) < static_cast<size_t>(cols)) {
          // One column: x - mean is pure rounding error, which epsilon keeps small but does not
          // hide.
          ASSERT_NEAR(ours[i], expected[i], cols == 1 ? 1e-3 : 2e-5) << "cols " << cols;
        } else {
          ASSERT_TRUE(std::isnan(ours[i])) << "wrote between rows";
        }
      }
    }
  }
}

TEST_P(NormTest, RmsAgreesWithTheOracle) {
  ThreadPool pool(2);
  for (const int64_t cols : {1, 3, 16, 17, 64, 100, 768, 2048}) {
    const std::vector<float> x = RandomFloats(7 * (cols + 3), 1, 3.0F);
    const std::vector<float> weight = RandomFloats(cols, 2);
    const std::vector<float> bias = RandomFloats(cols, 3);
    for (const auto& [weights, offset, biases] : {std::tuple{weight.data(), 0.0F, bias.data()},
                                                  {weight.data(), 1.0F, NoVector()},
                                                  {NoVector(), 1.0F, NoVector()}}) {
      std::vector<float> ours(x.size(), kPoison);
      std::vector<float> expected(x.size(), kPoison);
      NormArgs args = Args(x, ours, 7, cols, NormKind::kRms);
      args.weight = weights;
      args.weight_offset = offset;
      args.bias = biases;
      Norm(args, pool, GetParam());
      args.y = expected.data();
      NormRef(args);
      for (size_t i = 0; i < x.size(); ++i) {
        ASSERT_EQ(std::isnan(ours[i]), std::isnan(expected[i])) << "cols " << cols << " " << i;
        if (std::isnan(expected[i])) continue;  // between rows
        ASSERT_NEAR(ours[i], expected[i], 2e-5) << "cols " << cols << " " << i;
      }
    }
  }
}

// The output itself may be added, as where a branch is added to the states.
TEST_P(NormTest, SumsAreOfTheNormAndWhatIsAdded) {
  ThreadPool pool(2);
  for (const int64_t cols : {1, 17, 64, 768}) {
    const std::vector<float> x = RandomFloats(7 * (cols + 3), 1, 3.0F);
    const std::vector<float> weight = RandomFloats(cols, 2);
    const std::vector<float> states = RandomFloats(7 * (cols + 5), 3);
    for (const NormKind kind : {NormKind::kLayer, NormKind::kRms}) {
      std::vector<float> ours = states;
      std::vector<float> expected = states;
      std::vector<float> normed(states.size());
      NormArgs args = Args(x, ours, 7, cols, kind);
      args.weight = weight.data();
      args.y_stride = args.plus_stride = cols + 5;
      args.plus = ours.data();
      Norm(args, pool, GetParam());
      args.plus = args.y = expected.data();
      NormRef(args);
      args.plus = nullptr;
      args.y = normed.data();
      Norm(args, pool, GetParam());
      for (size_t i = 0; i < ours.size(); ++i) {
        const bool between = i % static_cast<size_t>(cols + 5) >= static_cast<size_t>(cols);
        ASSERT_NEAR(ours[i], expected[i], cols == 1 ? 1e-3 : 2e-5) << cols << " " << i;
        ASSERT_EQ(ours[i], between ? states[i] : states[i] + normed[i]) << cols << " " << i;
      }
    }
  }
}

// Values by hand, which the oracle must have too.
TEST_P(NormTest, FollowsTheFormulas) {
  ThreadPool pool(1);
  const std::vector<float> x = {1.0F, -7.0F, 0.0F, 0.0F, 0.0F};  // mean -3, mean square 25
  const std::vector<float> weight = {0.5F, 2.0F};
  const std::vector<float> bias = {10.0F, 20.0F};
  std::vector<float> y(x.size());
  for (const auto& [kind, offset, first, second] :
       {std::tuple{NormKind::kLayer, 0.0F, 10.5F, 18.0F},
        {NormKind::kLayer, 1.0F, 11.5F, 17.0F},
        {NormKind::kRms, 0.0F, 10.1F, 17.2F},
        {NormKind::kRms, 1.0F, 10.3F, 15.8F}}) {
    NormArgs args = Args(x, y, 1, 2, kind);
    args.weight = weight.data();
    args.bias = bias.data();
    args.epsilon = 0.0F;
    args.weight_offset = offset;
    Norm(args, pool, GetParam());
    EXPECT_NEAR(y[0], first, 1e-5);
    EXPECT_NEAR(y[1], second, 1e-5);
    NormRef(args);
    EXPECT_NEAR(y[0], first, 1e-5);
    EXPECT_NEAR(y[1], second, 1e-5);
  }
  NormArgs args = Args(x, y, 1, 2, NormKind::kRms);
  args.epsilon = 75.0F;  // beside the 25
  Norm(args, pool, GetParam());
  EXPECT_NEAR(y[1], -0.7F, 1e-6);
}

TEST_P(NormTest, AWeightOfMinusZeroKeepsItsSign) {
  ThreadPool pool(1);
  const std::vector<float> x = {1.0F, -1.0F, 0.0F, 0.0F, 0.0F};
  const std::vector<float> weight = {-0.0F, -0.0F};
  std::vector<float> y(x.size(), kPoison);
  NormArgs args = Args(x, y, 1, 2, NormKind::kLayer);
  args.weight = weight.data();
  Norm(args, pool, GetParam());
  EXPECT_TRUE(std::signbit(y[0]));
  EXPECT_FALSE(std::signbit(y[1]));
}

TEST_P(NormTest, ABadRowSpoilsItselfOnly) {
  ThreadPool pool(1);
  const int64_t cols = 77;
  const std::vector<float> x = RandomFloats(5 * (cols + 3), 6);
  std::vector<float> bad = x;
  bad[static_cast<size_t>(1 * (cols + 3) + 76)] = std::numeric_limits<float>::quiet_NaN();
  bad[static_cast<size_t>(3 * (cols + 3) + 5)] = std::numeric_limits<float>::infinity();
  for (const NormKind kind : {NormKind::kLayer, NormKind::kRms}) {
    std::vector<float> clean(x.size(), 0.0F);
    std::vector<float> y(x.size(), 0.0F);
    Norm(Args(x, clean, 5, cols, kind), pool, GetParam());
    Norm(Args(bad, y, 5, cols, kind), pool, GetParam());
    EXPECT_TRUE(std::isnan(y[static_cast<size_t>(1 * (cols + 3))]));
    EXPECT_TRUE(std::isnan(y[static_cast<size_t>(3 * (cols + 3) + 5)]));
    for (const int64_t row : {0, 2, 4}) {
      const auto first = static_cast<size_t>(row * (cols + 3));
      EXPECT_EQ(Bits(std::span(y).subspan(first, cols)),
                Bits(std::span(clean).subspan(first, cols)))
          << row;
    }
  }
}

// Three heads a row, and columns behind them that stay.
TEST_P(NormTest, EachHeadIsNormedByItself) {
  for (const int64_t head_dim : {1, 20, 64, 77, 128}) {
    const int64_t rows = 150;
    const int64_t stride = 3 * head_dim + 5;
    const std::vector<float> x = RandomFloats(rows * stride, 7);
    const std::vector<float> weight = RandomFloats(head_dim, 8);
    std::vector<float> expected = x;
    std::vector<float> as_rows = x;
    ThreadPool one(1);
    HeadNormArgs args{expected.data(), stride, rows, 3, head_dim, weight.data(), 1e-3F, 1.0F};
    HeadNormRef(args);
    for (int64_t row = 0; row < rows; ++row) {
      float* heads = as_rows.data() + row * stride;
      Norm({heads, head_dim, heads, head_dim, 3, head_dim, weight.data(), nullptr, 1e-3F,
            NormKind::kRms, 1.0F},
           one, GetParam());
    }
    for (const int num_threads : {1, 3}) {
      ThreadPool pool(num_threads);
      std::vector<float> ours = x;
      args.x = ours.data();
      HeadNorm(args, pool, GetParam());
      EXPECT_EQ(Bits(ours), Bits(as_rows)) << head_dim;
      for (size_t i = 0; i < x.size(); ++i) ASSERT_NEAR(ours[i], expected[i], 2e-5) << i;
    }
    for (int64_t row = 0; row < rows; ++row)
      ASSERT_EQ(expected[static_cast<size_t>(row * stride + 3 * head_dim)],
                x[static_cast<size_t>(row * stride + 3 * head_dim)]);
  }
}

TEST_P(NormTest, InPlaceAndAnyRowsAndThreadsGiveTheSameBits) {
  const int64_t cols = 1000;
  const std::vector<float> x = RandomFloats(200 * (cols + 3), 4);
  for (const NormKind kind : {NormKind::kLayer, NormKind::kRms}) {
    std::vector<float> whole(x.size(), 0.0F);
    ThreadPool one(1);
    Norm(Args(x, whole, 200, cols, kind), one, GetParam());
    for (const int num_threads : {1, 2, 4}) {
      ThreadPool pool(num_threads);
      for (const int64_t rows : {1, 2, 33, 200}) {
        std::vector<float> y = x;
        NormArgs args = Args(y, y, rows, cols, kind);
        Norm(args, pool, GetParam());
        for (int64_t row = 0; row < rows; ++row) {
          for (int64_t i = 0; i < cols; ++i) {
            const size_t at = static_cast<size_t>(row * (cols + 3) + i);
            ASSERT_EQ(y[at], whole[at])
                << num_threads << " threads, row " << row << " of " << rows << ", column " << i;
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace spillway::kernels
