#include "kernels/rows/embedding.h"

#include <gtest/gtest.h>

#include <cmath>

#include "kernels/convert/quantise.h"
#include "tests/kernels/kernel_test_util.h"
#include "tests/trace_case.h"

namespace spillway::kernels {
namespace {

class EmbeddingTest : public testing::TestWithParam<DType> {};

INSTANTIATE_TEST_SUITE_P(DTypes, EmbeddingTest, testing::Values(DType::kF16, DType::kBF16),
                         [](const auto& info) { return std::string(DTypeName(info.param)); });

TEST_P(EmbeddingTest, LookupThenAdd) {
  for (const int64_t cols : {1, 16, 37, 128}) {
    AlignedBytes table = RandomWeights(10 * cols, GetParam(), 1);
    const std::vector<int32_t> ids = {3, 0, 9, 3};
    const std::vector<int32_t> positions = {1, 2, 2, 4};
    std::vector<float> y(4 * static_cast<size_t>(cols + 2), kPoison);
    // The table in two pieces, the second of which lies apart.
    AlignedBytes apart(7 * cols * 2);
    std::memcpy(apart.data(), table.words() + 3 * cols, static_cast<size_t>(7 * cols * 2));
    const EmbeddingPiece pieces[] = {{table.data(), 0, 3}, {apart.data(), 3, 10}};
    EmbeddingArgs args;
    args.pieces = pieces;
    args.dtype = GetParam();
    args.cols = cols;
    args.ids = ids;
    args.y = y.data();
    args.y_stride = cols + 2;
    EmbeddingLookup(args);
    args.ids = positions;
    args.first_row = 2;
    EmbeddingAdd(args);
    const auto widen = GetParam() == DType::kF16 ? HalfToFloat : BFloat16ToFloat;
    for (size_t row = 0; row < 4; ++row) {
      for (int64_t i = 0; i < cols; ++i) {
        const float first = widen(table.words()[ids[row] * cols + i]);
        const float second = widen(table.words()[(positions[row] + 2) * cols + i]);
        EXPECT_EQ(y[row * static_cast<size_t>(cols + 2) + static_cast<size_t>(i)], first + second);
      }
      EXPECT_TRUE(std::isnan(y[row * static_cast<size_t>(cols + 2) + static_cast<size_t>(cols)]));
    }
  }
}

TEST_P(EmbeddingTest, LookupScales) {
  for (const int64_t cols : {1, 16, 37, 128}) {
    AlignedBytes table = RandomWeights(10 * cols, GetParam(), 1);
    const std::vector<int32_t> ids = {3, 0, 9};
    const EmbeddingPiece pieces[] = {{table.data(), 0, 10}};
    std::vector<float> plain(3 * static_cast<size_t>(cols + 2), kPoison);
    std::vector<float> scaled = plain;
    EmbeddingLookup({pieces, GetParam(), cols, 0, ids, plain.data(), cols + 2});
    EmbeddingLookup({pieces, GetParam(), cols, 0, ids, scaled.data(), cols + 2, 55.5F});
    for (size_t i = 0; i < plain.size(); ++i) {
      if (std::isnan(plain[i])) {
        EXPECT_TRUE(std::isnan(scaled[i])) << i;
      } else {
        EXPECT_EQ(scaled[i], 55.5F * plain[i]) << i;
      }
    }
  }
}

TEST(QuantisedEmbedding, GivesWhatTheRowIsWorth) {
  for (const DType dtype : {DType::kQ8, DType::kQ4}) {
    for (const int64_t cols : {1, 37, 64, 200}) {
      SCOPED_TRACE(CaseOf("dtype", DTypeName(dtype), "cols", cols));
      AlignedBytes halfs = RandomWeights(10 * cols, DType::kF16, 3);
      const int64_t row_bytes = RowBytes(dtype, cols);
      AlignedBytes table(10 * row_bytes);
      for (int64_t row = 0; row < 10; ++row) {
        QuantiseRow({halfs.words() + row * cols, static_cast<size_t>(cols)}, dtype,
                    {table.data() + row * row_bytes, static_cast<size_t>(row_bytes)});
      }
      const std::vector<int32_t> ids = {3, 0, 9};
      const EmbeddingPiece pieces[] = {{table.data(), 0, 4}, {table.data() + 4 * row_bytes, 4, 10}};
      std::vector<float> y(ids.size() * static_cast<size_t>(cols + 2), kPoison);
      EmbeddingLookup({pieces, dtype, cols, 0, ids, y.data(), cols + 2});
      for (size_t row = 0; row < ids.size(); ++row) {
        const float* found = y.data() + row * static_cast<size_t>(cols + 2);
        for (int64_t k = 0; k < cols; ++k) {
          EXPECT_EQ(found[k], DequantiseRef(table.data() + ids[row] * row_bytes, dtype, k))
              << "row " << row << " element " << k;
        }
        EXPECT_TRUE(std::isnan(found[cols])) << "row " << row;
      }
    }
  }
}

TEST(EmbeddingDeathTest, IdsAreChecked) {
  AlignedBytes table = RandomWeights(10 * 4, DType::kF16, 1);
  const EmbeddingPiece pieces[] = {{table.data(), 0, 10}};
  std::vector<float> y(4);
  for (const int32_t id : {10, -1}) {
    const std::vector<int32_t> ids = {id};
    EmbeddingArgs args;
    args.pieces = pieces;
    args.cols = 4;
    args.ids = ids;
    args.y = y.data();
    args.y_stride = 4;
    EXPECT_DEATH(EmbeddingLookup(args), "args.pieces") << id;
  }
}

}  // namespace
}  // namespace spillway::kernels
