// MatmulCall: one product of a matrix with all its memory, for the tests of the CPU's products.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "kernels/convert/quantise.h"
#include "kernels/matmul/matmul.h"
#include "tests/kernels/kernel_test_util.h"

namespace spillway::kernels {

struct Shape {
  int64_t rows;
  int64_t in;
  int64_t out;
};

inline ThreadPool& Pool(int num_threads) {
  static std::map<int, std::unique_ptr<ThreadPool>> pools;
  auto& pool = pools[num_threads];
  if (!pool) pool = std::make_unique<ThreadPool>(num_threads);
  return *pool;
}

// A matrix as it is stored. Quantised ones have some groups of one value, some of denormals.
inline AlignedBytes Weights(int64_t out, int64_t in, DType dtype, uint32_t seed) {
  if (!IsQuantised(dtype)) return RandomWeights(out * in, dtype, seed);
  AlignedBytes halfs = RandomWeights(out * in, DType::kF16, seed);
  const int64_t row_bytes = RowBytes(dtype, in);
  AlignedBytes groups(out * row_bytes);
  for (int64_t row = 0; row < out; ++row) {
    const std::span<uint16_t> half_row(halfs.words() + row * in, static_cast<size_t>(in));
    if (row % 5 == 3) std::fill(half_row.begin(), half_row.end(), half_row[0]);
    if (row % 5 == 4) {
      for (uint16_t& half : half_row) half &= 0x83FF;
    }
    QuantiseRow(half_row, dtype,
                groups.span().subspan(static_cast<size_t>(row * row_bytes),
                                      static_cast<size_t>(row_bytes)));
  }
  return groups;
}

// A call with all its memory. y is as wide as needed and poisoned between rows.
struct MatmulCall {
  Shape shape;
  std::vector<float> x;
  AlignedBytes weight;
  std::vector<float> bias;
  std::vector<float> residual;
  std::vector<float> times;
  MatmulArgs args;
  MatmulPiece piece;

  MatmulCall(Shape s, DType dtype, uint32_t seed)
      : shape(s),
        x(RandomFloats(s.rows * (s.in + 3), seed)),
        weight(Weights(s.out, s.in, dtype, seed + 1)),
        bias(RandomFloats(s.out, seed + 2)),
        residual(RandomFloats(s.rows * (s.out + 5), seed + 3)),
        times(RandomFloats(s.rows * (s.out + 9), seed + 4)) {
    for (int64_t row = 0; row < s.rows; ++row) {  // the stride's gap must not be read
      for (int64_t i = 0; i < 3; ++i) x[static_cast<size_t>(row * (s.in + 3) + s.in + i)] = kPoison;
    }
    args.x = x.data();
    args.x_stride = s.in + 3;
    args.rows = s.rows;
    args.in = s.in;
    piece.weight = weight.data();
    piece.weight_dtype = dtype;
    piece.num_out = s.out;
  }

  // Rows [first, first + rows), with stride out + 7.
  std::vector<float> Run(Isa isa, int num_threads, int64_t first, int64_t rows) {
    AlignedBytes workspace(MatmulWorkspaceBytes(rows, shape.in, num_threads, isa));
    return Run(isa, num_threads, first, rows, workspace.span());
  }
  std::vector<float> Run(Isa isa, int num_threads, int64_t first, int64_t rows,
                         std::span<std::byte> workspace) {
    std::vector<float> y(static_cast<size_t>(rows * (shape.out + 7)), kPoison);
    MatmulArgs call = args;
    MatmulPiece to = piece;
    call.x += first * call.x_stride;
    call.rows = rows;
    to.y = y.data();
    to.y_stride = shape.out + 7;
    if (to.residual != nullptr) to.residual += first * to.residual_stride;
    if (to.times != nullptr) to.times += first * to.times_stride;
    call.pieces = {&to, 1};
    Matmul(call, workspace, Pool(num_threads), isa);
    return Compact(y, rows);
  }
  std::vector<float> Run(Isa isa) { return Run(isa, 1, 0, shape.rows); }

  // Takes the gaps out, checking that nothing was written there.
  std::vector<float> Compact(const std::vector<float>& y, int64_t rows) const {
    std::vector<float> compact;
    for (int64_t row = 0; row < rows; ++row) {
      const auto begin = y.begin() + row * (shape.out + 7);
      compact.insert(compact.end(), begin, begin + shape.out);
      EXPECT_TRUE(std::all_of(begin + shape.out, begin + shape.out + 7,
                              [](float v) { return std::isnan(v); }))
          << "row " << row;
    }
    return compact;
  }

  std::vector<float> Reference() {
    std::vector<float> y(static_cast<size_t>(shape.rows * shape.out));
    MatmulArgs call = args;
    MatmulPiece to = piece;
    to.y = y.data();
    to.y_stride = shape.out;
    call.pieces = {&to, 1};
    MatmulRef(call);
    return y;
  }
};

}  // namespace spillway::kernels
