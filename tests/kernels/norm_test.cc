#include "kernels/rows/norm.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/kernels/kernel_test_util.h"

namespace spillway::kernels {
namespace {

class NormTest : public testing::TestWithParam<Isa> {
 protected:
  static NormArgs Args(const std::vector<float>& x, std::vector<float>& y, int64_t rows,
                       int64_t cols) {
    NormArgs args;
    args.x = x.data();
    args.y = y.data();
    args.x_stride = args.y_stride = cols + 3;
    args.rows = rows;
    args.cols = cols;
    return args;
  }
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
      NormArgs args = Args(x, ours, rows, cols);
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

TEST_P(NormTest, InPlaceAndAnyRowsAndThreadsGiveTheSameBits) {
  const int64_t cols = 1000;
  const std::vector<float> x = RandomFloats(200 * (cols + 3), 4);
  std::vector<float> whole(x.size(), 0.0F);
  ThreadPool one(1);
  Norm(Args(x, whole, 200, cols), one, GetParam());
  for (const int num_threads : {1, 2, 4}) {
    ThreadPool pool(num_threads);
    for (const int64_t rows : {1, 2, 33, 200}) {
      std::vector<float> y = x;
      NormArgs args = Args(y, y, rows, cols);
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

}  // namespace
}  // namespace spillway::kernels
