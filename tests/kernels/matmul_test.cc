#include "kernels/matmul.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>

#include "kernels/quantise.h"
#include "tests/kernels/kernel_test_util.h"

namespace spillway::kernels {
namespace {

struct Shape {
  int64_t rows;
  int64_t in;
  int64_t out;
};

ThreadPool& Pool(int num_threads) {
  static std::map<int, std::unique_ptr<ThreadPool>> pools;
  auto& pool = pools[num_threads];
  if (!pool) pool = std::make_unique<ThreadPool>(num_threads);
  return *pool;
}

// A call with all its memory. y is as wide as needed and poisoned between rows.
struct Call {
  Shape shape;
  std::vector<float> x;
  AlignedBytes weight;
  std::vector<float> bias;
  std::vector<float> residual;
  MatmulArgs args;
  MatmulPiece piece;

  Call(Shape s, DType dtype, uint32_t seed)
      : shape(s),
        x(RandomFloats(s.rows * (s.in + 3), seed)),
        weight(RandomWeights(s.out * s.in, dtype, seed + 1)),
        bias(RandomFloats(s.out, seed + 2)),
        residual(RandomFloats(s.rows * (s.out + 5), seed + 3)) {
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
    std::vector<float> y(static_cast<size_t>(rows * (shape.out + 7)), kPoison);
    MatmulArgs call = args;
    MatmulPiece to = piece;
    call.x += first * call.x_stride;
    call.rows = rows;
    to.y = y.data();
    to.y_stride = shape.out + 7;
    if (to.residual != nullptr) to.residual += first * to.residual_stride;
    call.pieces = {&to, 1};
    AlignedBytes workspace(MatmulWorkspaceBytes(rows, shape.in, num_threads, isa));
    Matmul(call, workspace.span(), Pool(num_threads), isa);
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
                              [](float v) { return std::isnan(v); }));
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

// Largest and root-mean-square error against the oracle, in units of sum |x w| * 2^-24.
struct ErrorSize {
  double rms;
  double largest;
};

ErrorSize Compare(const std::vector<float>& y, const std::vector<float>& expected, double scale) {
  ErrorSize error = {0, 0};
  for (size_t i = 0; i < y.size(); ++i) {
    const double difference =
        std::abs(static_cast<double>(y[i]) - static_cast<double>(expected[i])) / scale;
    error.rms += difference * difference;
    error.largest = std::max(error.largest, std::isnan(difference) ? INFINITY : difference);
  }
  error.rms = std::sqrt(error.rms / static_cast<double>(y.size()));
  return error;
}

// sqrt(sum (x w)^2), about: what an error of the sum is relative to. x has deviation 1, w 0.05.
// A few products may all be large: at least 16 count.
double ProductNorm(int64_t in) { return std::sqrt(std::max(16.0, static_cast<double>(in))) * 0.05; }

// What the plainest fp32 program gives: one FMA after the other.
std::vector<float> FmaLoop(const Call& call) {
  std::vector<float> y;
  const uint16_t* weight = static_cast<const uint16_t*>(call.piece.weight);
  const auto widen = call.piece.weight_dtype == DType::kF16 ? HalfToFloat : BFloat16ToFloat;
  for (int64_t row = 0; row < call.shape.rows; ++row) {
    for (int64_t out = 0; out < call.shape.out; ++out) {
      float sum = 0;
      for (int64_t k = 0; k < call.shape.in; ++k) {
        sum = std::fma(call.args.x[row * call.args.x_stride + k],
                       widen(weight[out * call.shape.in + k]), sum);
      }
      y.push_back(sum);
    }
  }
  return y;
}

class MatmulTest : public testing::TestWithParam<IsaAndDType> {
 protected:
  Isa isa() const { return GetParam().isa; }
  DType dtype() const { return GetParam().dtype; }
};

INSTANTIATE_TEST_SUITE_P(All, MatmulTest, testing::ValuesIn(AllCases()), ParamName);

TEST_P(MatmulTest, AgreesWithTheOracleOnAnyShape) {
  constexpr int64_t kRows[] = {1, 3, 5, 16, 17, 33, 40};  // in turn, so that each meets many shapes
  size_t turn = 0;
  for (const int64_t in : {1, 7, 16, 31, 32, 33, 48, 100, 768, 1025, 2100}) {
    for (const int64_t out : {1, 5, 16, 17, 50, 64, 130, 200}) {
      if (in > 1000 && out > 64) continue;
      const int64_t rows = kRows[turn++ % std::size(kRows)];
      Call call({rows, in, out}, dtype(), static_cast<uint32_t>(in * 1000 + out * 10 + rows));
      const ErrorSize error = Compare(call.Run(isa()), call.Reference(), ProductNorm(in));
      ASSERT_LT(error.largest, isa() == Isa::kAmx ? 6e-5 : 4e-6)
          << "in " << in << " out " << out << " rows " << rows;
    }
  }
}

// AMX: 17 bits of x, 16 of the product of the parts (matmul_amx.cc).
TEST_P(MatmulTest, IsAsAccurateAsAnFmaLoopOrAsTheAmxPartsAllow) {
  for (const int64_t in : {100, 768, 2048, 8192}) {
    Call call({17, in, 33}, dtype(), 11);
    const std::vector<float> expected = call.Reference();
    const ErrorSize ours = Compare(call.Run(isa()), expected, ProductNorm(in));
    const ErrorSize loop = Compare(FmaLoop(call), expected, ProductNorm(in));
    EXPECT_LT(ours.rms, 1.25 * loop.rms + (isa() == Isa::kAmx ? 4e-6 : 0)) << "in " << in;
    EXPECT_LT(ours.largest, 2.0 * loop.largest + (isa() == Isa::kAmx ? 1.6e-5 : 0)) << "in " << in;
  }
}

TEST_P(MatmulTest, ARowsBitsDoNotDependOnTheOthersOrOnThreads) {
  for (const int64_t in : {100, 1056}) {
    Call call({200, in, 150}, dtype(), 21);
    call.args.activation = Activation::kGelu;
    call.piece.bias = call.bias.data();
    const std::vector<uint32_t> all = Bits(call.Run(isa()));
    for (const int64_t rows : {1, 2, 3, 4, 5, 8, 15, 16, 17, 32, 33, 64, 129, 200}) {
      for (const int num_threads : {1, 2, 4}) {
        for (const int64_t first : {int64_t{0}, int64_t{1}, 200 - rows}) {
          if (first + rows > 200) continue;
          const std::vector<uint32_t> some = Bits(call.Run(isa(), num_threads, first, rows));
          ASSERT_TRUE(std::equal(some.begin(), some.end(), all.begin() + first * 150))
              << "in " << in << " rows " << rows << " first " << first << " threads "
              << num_threads;
        }
      }
    }
  }
}

TEST_P(MatmulTest, PiecesGiveTheBitsOfTheWhole) {
  for (const int64_t rows : {1, 7, 40}) {
    Call call({rows, 200, 150}, dtype(), 31);
    call.piece.bias = call.bias.data();
    const std::vector<uint32_t> whole = Bits(call.Run(isa()));
    for (const int64_t cut : {1, 16, 50, 149}) {
      std::vector<float> y(static_cast<size_t>(rows * 150), kPoison);
      // The first piece lies apart, as when its rows are in another tier.
      AlignedBytes apart(cut * 200 * 2);
      std::memcpy(apart.data(), call.weight.data(), static_cast<size_t>(cut * 200 * 2));
      MatmulPiece pieces[2] = {call.piece, call.piece};
      pieces[0].weight = apart.data();
      pieces[0].num_out = cut;
      pieces[1].weight = call.weight.words() + cut * 200;
      pieces[1].num_out = 150 - cut;
      pieces[1].bias += cut;
      pieces[0].y = y.data();
      pieces[1].y = y.data() + cut;
      pieces[0].y_stride = pieces[1].y_stride = 150;
      MatmulArgs args = call.args;
      args.pieces = pieces;
      AlignedBytes workspace(MatmulWorkspaceBytes(rows, 200, 2, isa()));
      Matmul(args, workspace.span(), Pool(2), isa());
      EXPECT_EQ(Bits(y), whole) << "rows " << rows << " cut " << cut;
    }
  }
}

TEST_P(MatmulTest, MixedDtypesInOneCall) {
  Call half({20, 96, 40}, DType::kF16, 41);
  Call brain({20, 96, 40}, DType::kBF16, 41);
  brain.args.x = half.args.x;
  std::vector<float> y(20 * 80, kPoison);
  MatmulPiece pieces[2] = {half.piece, brain.piece};
  pieces[0].y = y.data();
  pieces[1].y = y.data() + 40;
  pieces[0].y_stride = pieces[1].y_stride = 80;
  MatmulArgs args = half.args;
  args.pieces = pieces;
  AlignedBytes workspace(MatmulWorkspaceBytes(20, 96, 2, isa()));
  Matmul(args, workspace.span(), Pool(2), isa());
  const std::vector<float> first = half.Run(isa());
  const std::vector<float> second = brain.Run(isa());
  for (size_t row = 0; row < 20; ++row) {
    for (size_t out = 0; out < 40; ++out) {
      EXPECT_EQ(y[row * 80 + out], first[row * 40 + out]);
      EXPECT_EQ(y[row * 80 + 40 + out], second[row * 40 + out]);
    }
  }
}

TEST_P(MatmulTest, BiasActivationAndResidual) {
  for (const Activation activation :
       {Activation::kNone, Activation::kRelu, Activation::kGelu, Activation::kGeluTanh}) {
    for (const int64_t rows : {1, 6, 50}) {
      Call call({rows, 130, 100}, dtype(), 51);
      call.args.activation = activation;
      call.piece.bias = call.bias.data();
      call.piece.residual = call.residual.data();
      call.piece.residual_stride = 105;
      EXPECT_LT(Compare(call.Run(isa()), call.Reference(), 1.0).largest,
                isa() == Isa::kAmx ? 2e-5 : 3e-6)
          << static_cast<int>(activation);
    }
  }
}

TEST_P(MatmulTest, ResidualInPlace) {
  for (const int64_t rows : {2, 40}) {
    Call call({rows, 64, 100}, dtype(), 61);
    call.piece.residual = call.residual.data();
    call.piece.residual_stride = 105;
    const std::vector<float> apart = call.Run(isa());
    MatmulPiece piece = call.piece;
    piece.y = call.residual.data();
    piece.y_stride = 105;
    call.args.pieces = {&piece, 1};
    AlignedBytes workspace(MatmulWorkspaceBytes(rows, 64, 2, isa()));
    Matmul(call.args, workspace.span(), Pool(2), isa());
    for (int64_t row = 0; row < rows; ++row) {
      for (int64_t out = 0; out < 100; ++out) {
        ASSERT_EQ(call.residual[static_cast<size_t>(row * 105 + out)],
                  apart[static_cast<size_t>(row * 100 + out)]);
      }
    }
  }
}

TEST_P(MatmulTest, ExtremeWeights) {
  // Denormal halfs, the largest half, and x with all 24 bits. (AMX flushes products under 2^-126;
  // none is here. It drops 2^-17 of x and 2^-16 of a product.)
  const float dropped = isa() == Isa::kAmx ? 0x1p-17F + 0x1p-16F : 0.0F;
  for (const int64_t rows : {1, 20}) {
    Call call({rows, 32, 16}, dtype(), 71);
    std::fill_n(call.weight.words(), 32 * 16, uint16_t{0});
    const uint16_t halfs[] = {0x0001, 0x03FF, 0x0400, 0x7BFF, 0x8001, 0xFBFF, 0x3555, 0x3C01};
    const uint16_t brains[] = {0x1000, 0x7E00, 0x3F81, 0x4049, 0x9000, 0xBF81, 0x3EAA, 0x2F00};
    for (int out = 0; out < 8; ++out)
      call.weight.words()[out * 33] = dtype() == DType::kF16 ? halfs[out] : brains[out];
    const std::vector<float> y = call.Run(isa());
    const std::vector<float> expected = call.Reference();
    for (size_t i = 0; i < y.size(); ++i) {
      ASSERT_NEAR(y[i], expected[i], std::abs(expected[i]) * (2.4e-7F + dropped)) << i;
    }
  }
}

TEST_P(MatmulTest, NonFiniteInputsShow) {
  for (const float bad : {std::numeric_limits<float>::infinity(), kPoison}) {
    Call call({20, 64, 32}, dtype(), 81);
    call.x[3 * 67 + 40] = bad;
    const std::vector<float> y = call.Run(isa());
    for (size_t i = 0; i < y.size(); ++i) EXPECT_EQ(std::isfinite(y[i]), i / 32 != 3) << i;
  }
}

// A matrix in groups, and the halfs it is worth.
struct QuantisedWeights {
  AlignedBytes groups;
  AlignedBytes halfs;

  QuantisedWeights(int64_t out, int64_t in, DType dtype, uint32_t seed)
      : groups(out * RowBytes(dtype, in)), halfs(RandomWeights(out * in, DType::kF16, seed)) {
    for (int64_t row = 0; row < out; ++row) {
      const std::span<uint16_t> half_row(halfs.words() + row * in, static_cast<size_t>(in));
      std::byte* group_row = groups.data() + row * RowBytes(dtype, in);
      // Some groups of one value, and some of denormals.
      if (row % 5 == 3) std::fill(half_row.begin(), half_row.end(), half_row[0]);
      if (row % 5 == 4) {
        for (uint16_t& half : half_row) half &= 0x83FF;
      }
      QuantiseRow(half_row, dtype, {group_row, static_cast<size_t>(RowBytes(dtype, in))});
      for (int64_t k = 0; k < in; ++k) {
        half_row[static_cast<size_t>(k)] = FloatToHalf(DequantiseRef(group_row, dtype, k));
      }
    }
  }
};

class QuantisedMatmulTest : public testing::TestWithParam<IsaAndDType> {
 protected:
  Isa isa() const { return GetParam().isa; }
  DType dtype() const { return GetParam().dtype; }

  // The calls differ in their weights alone.
  void ExpectSameBits(Shape shape, uint32_t seed, std::span<const int> threads) const {
    Call half(shape, DType::kF16, seed);
    QuantisedWeights weights(shape.out, shape.in, dtype(), seed + 9);
    half.piece.weight = weights.halfs.data();
    half.piece.bias = half.bias.data();
    half.args.activation = Activation::kGelu;
    const std::vector<uint32_t> expected = Bits(half.Run(isa()));
    const std::vector<float> reference = half.Reference();
    half.piece.weight = weights.groups.data();
    half.piece.weight_dtype = dtype();
    EXPECT_EQ(Bits(half.Reference()), Bits(reference));
    for (const int num_threads : threads) {
      ASSERT_EQ(Bits(half.Run(isa(), num_threads, 0, shape.rows)), expected)
          << "in " << shape.in << " out " << shape.out << " rows " << shape.rows << " threads "
          << num_threads;
    }
  }
};

std::vector<IsaAndDType> QuantisedCases() {
  std::vector<IsaAndDType> cases;
  for (const Isa isa : SupportedIsas()) {
    for (const DType dtype : {DType::kQ8, DType::kQ4}) cases.push_back({isa, dtype});
  }
  return cases;
}

INSTANTIATE_TEST_SUITE_P(All, QuantisedMatmulTest, testing::ValuesIn(QuantisedCases()), ParamName);

TEST_P(QuantisedMatmulTest, GivesTheBitsOfWhatTheWeightsAreWorth) {
  constexpr int64_t kRows[] = {1, 3, 5, 16, 17, 33, 40};
  constexpr int kThreads[] = {1, 2};
  size_t turn = 0;
  for (const int64_t in : {1, 7, 31, 32, 33, 63, 64, 65, 96, 97, 100, 513, 768, 1025, 2100}) {
    for (const int64_t out : {1, 5, 16, 17, 50, 130, 200}) {
      if (in > 1000 && out > 50) continue;
      const int64_t rows = kRows[turn++ % std::size(kRows)];
      ExpectSameBits({rows, in, out}, static_cast<uint32_t>(in * 1000 + out * 10 + rows), kThreads);
    }
  }
}

TEST_P(QuantisedMatmulTest, WithAnyNumberOfRowsAndThreads) {
  constexpr int kThreads[] = {1, 2, 4};
  for (const int64_t rows : {1, 2, 4, 8, 15, 16, 17, 31, 32, 33, 63, 64, 65, 129, 200}) {
    ExpectSameBits({rows, 672, 150}, static_cast<uint32_t>(rows), kThreads);
  }
  // Long enough for k to be cut into blocks.
  constexpr int kOne[] = {2};
  ExpectSameBits({200, 8200, 70}, 3, kOne);
}

TEST_P(QuantisedMatmulTest, PiecesOfOtherTypesBesideIt) {
  constexpr int64_t kIn = 200;
  for (const int64_t rows : {1, 40}) {
    Call call({rows, kIn, 150}, DType::kF16, 31);
    QuantisedWeights weights(150, kIn, dtype(), 32);
    call.piece.weight = weights.halfs.data();
    const std::vector<uint32_t> whole = Bits(call.Run(isa()));
    for (const int64_t cut : {1, 16, 50, 149}) {
      std::vector<float> y(static_cast<size_t>(rows * 150), kPoison);
      MatmulPiece pieces[2] = {call.piece, call.piece};
      pieces[0].weight = weights.groups.data();
      pieces[0].weight_dtype = dtype();
      pieces[0].num_out = cut;
      pieces[1].weight = weights.halfs.words() + cut * kIn;
      pieces[1].num_out = 150 - cut;
      pieces[0].y = y.data();
      pieces[1].y = y.data() + cut;
      pieces[0].y_stride = pieces[1].y_stride = 150;
      MatmulArgs args = call.args;
      args.pieces = pieces;
      AlignedBytes workspace(MatmulWorkspaceBytes(rows, kIn, 2, isa()));
      Matmul(args, workspace.span(), Pool(2), isa());
      EXPECT_EQ(Bits(y), whole) << "rows " << rows << " cut " << cut;
    }
  }
}

TEST_P(MatmulTest, NoRowsIsNoWork) {
  Call call({4, 64, 32}, dtype(), 91);
  EXPECT_TRUE(call.Run(isa(), 2, 0, 0).empty());
}

}  // namespace
}  // namespace spillway::kernels
