#include "kernels/attention/key_centre.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numeric>

#include "kernels/attention/head_turn.h"
#include "kernels/rows/rotate.h"
#include "tests/kernels/kernel_test_util.h"
#include "tests/trace_case.h"

namespace spillway::kernels {
namespace {

constexpr int64_t kKvHeads = 3;
constexpr int64_t kSpans = 9;

struct Form {
  int64_t head_dim;
  HeadRotation rotation;
};

std::vector<Form> Forms() {
  return {{64, {64, RopePairs::kHalves}},
          {128, {128, RopePairs::kNeighbours}},
          {64, {16, RopePairs::kHalves}},
          {8, {8, RopePairs::kHalves}}};
}

std::vector<float> Frequencies(int64_t dims) {
  std::vector<float> frequencies;
  for (int64_t pair = 0; pair < dims / 2; ++pair) {
    frequencies.push_back(static_cast<float>(
        std::pow(10000.0, -2.0 * static_cast<double>(pair) / static_cast<double>(dims))));
  }
  return frequencies;
}

// Keys of one head at positions from `first` on, turned as the model turns them.
std::vector<float> Rotated(const Form& form, std::vector<float> keys, int64_t rows, int64_t heads,
                           int64_t first) {
  std::vector<int32_t> positions(static_cast<size_t>(rows));
  std::iota(positions.begin(), positions.end(), static_cast<int32_t>(first));
  const std::vector<float> frequencies = Frequencies(form.rotation.dims);
  RotateArgs args;
  args.x = keys.data();
  args.x_stride = std::ssize(keys) / rows;
  args.rows = rows;
  args.num_heads = heads;
  args.head_dim = form.head_dim;
  args.positions = positions.data();
  args.inverse_frequencies = frequencies.data();
  args.dims = form.rotation.dims;
  args.pairs = form.rotation.pairs;
  RotateRef(args);
  return keys;
}

std::vector<float> SpanMeansOf(const Form& form, const std::vector<float>& means, int num_threads) {
  ThreadPool pool(num_threads);
  const std::vector<float> frequencies = Frequencies(form.rotation.dims);
  std::vector<float> turns(static_cast<size_t>(kSpans * form.head_dim));
  // In parts, as a GPU gets turns, and as longer rows come.
  for (const auto& [first, end] : {std::pair{0, 4}, std::pair{4, 9}}) {
    FillSpanTurns(
        {frequencies, first, end - first, form.head_dim, turns.data() + first * form.head_dim},
        pool);
  }
  std::vector<float> table(static_cast<size_t>(kKvHeads * kSpans * form.head_dim), kPoison);
  for (const auto& [first, end] : {std::pair{0, 2}, std::pair{2, 9}}) {
    FillSpanMeans({means.data(), turns.data(), form.head_dim, form.rotation, kKvHeads, kSpans,
                   form.head_dim, table.data(), first, end},
                  pool);
  }
  return table;
}

TEST(KeyCentreTest, MeansAreThoseOfTheKeysBeforePositionsTurnedThem) {
  for (const Form& form : Forms()) {
    SCOPED_TRACE(CaseOf("head_dim", form.head_dim, "turned", form.rotation.dims));
    constexpr int64_t kRows = 23;
    const int64_t width = kKvHeads * form.head_dim;
    const int64_t stride = width + 5;
    const std::vector<float> keys = RandomFloats(kRows * stride, 3);
    const std::vector<float> turned = Rotated(form, keys, kRows, kKvHeads, 4);
    const std::vector<float> frequencies = Frequencies(form.rotation.dims);
    std::vector<double> sums(static_cast<size_t>(width));
    for (const auto& [begin, rows] : {std::pair{0, 10}, std::pair{10, 13}}) {
      SumKeys({turned.data() + begin * stride, stride, rows, 4 + begin, kKvHeads, form.head_dim,
               form.rotation, frequencies.data(), sums.data()});
    }
    std::vector<float> means(static_cast<size_t>(width), kPoison);
    MakeKeyMeans({sums.data(), width, kRows, means.data()});
    for (int64_t i = 0; i < width; ++i) {
      double mean = 0.0;
      for (int64_t row = 0; row < kRows; ++row)
        mean += keys[static_cast<size_t>(row * stride + i)] / static_cast<double>(kRows);
      ASSERT_NEAR(means[static_cast<size_t>(i)], mean, 2e-6) << i;
      ASSERT_EQ(sums[static_cast<size_t>(i)], 0.0);
    }
  }
}

TEST(KeyCentreTest, WhatIsNotANumberLeavesNoMean) {
  std::vector<double> sums = {1.0, std::numeric_limits<double>::infinity(),
                              std::numeric_limits<double>::quiet_NaN(), 8.0};
  std::vector<float> means(4, kPoison);
  MakeKeyMeans({sums.data(), 4, 2, means.data()});
  EXPECT_EQ(means, (std::vector<float>{0.5F, 0.0F, 0.0F, 4.0F}));
  MakeKeyMeans({sums.data(), 4, 0, means.data()});
  EXPECT_EQ(means, std::vector<float>(4, 0.0F));
}

// Of each span the mean of what its positions make of it, in turned heads.
TEST(KeyCentreTest, SpansHaveTheMeanOfTheirPositions) {
  for (const Form& form : Forms()) {
    SCOPED_TRACE(CaseOf("head_dim", form.head_dim, "turned", form.rotation.dims));
    const int64_t dim = form.head_dim;
    const std::vector<float> means = RandomFloats(kKvHeads * dim, 5, 3.0F);
    const std::vector<float> table = SpanMeansOf(form, means, 2);
    ThreadPool pool(1);
    for (int64_t head = 0; head < kKvHeads; ++head) {
      std::vector<float> rows;
      for (int64_t position = 0; position < kSpans * kKeyMeanSpan; ++position)
        rows.insert(rows.end(), means.begin() + head * dim, means.begin() + (head + 1) * dim);
      rows = Rotated(form, rows, kSpans * kKeyMeanSpan, 1, 0);
      TurnHeads({rows.data(), dim, kSpans * kKeyMeanSpan, 1, dim}, pool);
      for (int64_t i = 0; i < kSpans * dim; ++i) {
        double mean = 0.0;
        for (int64_t row = 0; row < kKeyMeanSpan; ++row) {
          const int64_t at = (i / dim * kKeyMeanSpan + row) * dim + i % dim;
          mean += static_cast<double>(rows[static_cast<size_t>(at)]) / kKeyMeanSpan;
        }
        ASSERT_NEAR(table[static_cast<size_t>(head * kSpans * dim + i)], mean, 1e-5) << i;
      }
    }
    EXPECT_EQ(SpanMeansOf(form, means, 1), table);
  }
}

TEST(KeyCentreTest, KeysLoseTheMeanAtTheirPositions) {
  constexpr int64_t kDim = 16;
  constexpr int64_t kStride = kKvHeads * kDim + 2;
  const std::vector<int32_t> positions = {0, 15, 16, 143, 40};
  const auto rows = std::ssize(positions);
  const std::vector<float> keys = RandomFloats(rows * kStride, 8);
  const std::vector<float> table = RandomFloats(kKvHeads * kSpans * kDim, 9);
  for (const int num_threads : {1, 2}) {
    std::vector<float> centred = keys;
    ThreadPool pool(num_threads);
    CentreKeys(
        {centred.data(), kStride, rows, positions.data(), kKvHeads, kDim, {table.data(), kSpans}},
        pool);
    for (int64_t i = 0; i < std::ssize(keys); ++i) {
      const int64_t column = i % kStride;
      const int64_t span = positions[static_cast<size_t>(i / kStride)] / kKeyMeanSpan;
      const int64_t at = (column / kDim * kSpans + span) * kDim + column % kDim;
      const float mean = column < kKvHeads * kDim ? table[static_cast<size_t>(at)] : 0.0F;
      ASSERT_EQ(centred[static_cast<size_t>(i)], keys[static_cast<size_t>(i)] - mean) << i;
    }
  }
}

}  // namespace
}  // namespace spillway::kernels
