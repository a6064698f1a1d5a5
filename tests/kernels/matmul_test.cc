#include "kernels/matmul/matmul.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <tuple>

#include "kernels/convert/quantise.h"
#include "tests/kernels/matmul_call.h"

namespace spillway::kernels {
namespace {

float WeightOf(const MatmulPiece& piece, int64_t in, int64_t out, int64_t k) {
  const std::byte* row =
      static_cast<const std::byte*>(piece.weight) + out * RowBytes(piece.weight_dtype, in);
  if (IsQuantised(piece.weight_dtype)) return DequantiseRef(row, piece.weight_dtype, k);
  const uint16_t bits = reinterpret_cast<const uint16_t*>(row)[k];
  return piece.weight_dtype == DType::kF16 ? HalfToFloat(bits) : BFloat16ToFloat(bits);
}

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

// The plainest fp32 program: one FMA after the other.
std::vector<float> FmaLoop(const MatmulCall& call) {
  std::vector<float> y;
  for (int64_t row = 0; row < call.shape.rows; ++row) {
    for (int64_t out = 0; out < call.shape.out; ++out) {
      float sum = 0;
      for (int64_t k = 0; k < call.shape.in; ++k) {
        sum = std::fma(call.args.x[row * call.args.x_stride + k],
                       WeightOf(call.piece, call.shape.in, out, k), sum);
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

  // Rounding of AMX and VNNI beyond that of an FMA loop, root-mean-square, in units of ProductNorm:
  // x has 17 bits, or 16 or 8 beside quantised weights (matmul_amx.cc, matmul_groups.h), or 8 as
  // have the weights. Quantised ones that become floats for AMX have 16 bits.
  double UnitError() const {
    const bool has_parts = IsQuantised(dtype()) && PartsOfGroup(dtype()) > 1;
    if (dtype() == DType::kFp8) return HasTiles(isa()) ? 4e-6 : 0;
    if (has_parts && HasTiles(isa())) return dtype() == DType::kMxfp4 ? 4e-6 : 6e-6;
    if (IsQuantised(dtype()) && RoundsToBytes(isa())) return 7e-3;
    if (IsQuantised(dtype())) return MultipliesCodes(isa()) ? 3e-5 : 0;
    if (RoundsToBf16(isa())) return 2.5e-3;
    return HasTiles(isa()) ? 4e-6 : 0;
  }
};

std::vector<IsaAndDType> EveryCase() {
  std::vector<IsaAndDType> cases;
  for (const CpuCompute compute : {CpuCompute::kFp32, CpuCompute::kBf16, CpuCompute::kInt8}) {
    const std::vector<Isa> isas = ProductIsas(compute);
    for (const Isa isa : isas) {
      for (const DType dtype : {DType::kF16, DType::kBF16, DType::kQ8, DType::kQ4, DType::kMxfp4,
                                DType::kInt8, DType::kInt4, DType::kFp8, DType::kGgufQ8,
                                DType::kGgufQ4, DType::kGgufM4, DType::kGgufK4, DType::kGgufK6}) {
        // Roundings that were asked for leave groups of parts and numbers as they are with tiles:
        // the last instruction set shows it.
        const bool has_own = isa == Isa::kAmx || (dtype != DType::kFp8 && PartsOfGroup(dtype) == 1);
        const bool shows = !kTilesAreMemory && isa == isas.back();
        if (has_own || isa <= Isa::kVnniInt8 || shows) cases.push_back({isa, dtype});
      }
    }
  }
  return cases;
}

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(MatmulTest);

INSTANTIATE_TEST_SUITE_P(All, MatmulTest, testing::ValuesIn(EveryCase()), ParamName);

TEST_P(MatmulTest, AgreesWithTheOracleOnAnyShape) {
  constexpr int64_t kRows[] = {1, 3, 5, 16, 17, 33, 40};  // in turn, so that each meets many shapes
  size_t turn = 0;
  for (const int64_t in : {1, 7, 16, 31, 32, 33, 48, 100, 768, 1025, 2100}) {
    for (const int64_t out : {1, 5, 16, 17, 50, 64, 130, 200}) {
      if (in > 1000 && out > 64) continue;
      const int64_t rows = kRows[turn++ % std::size(kRows)];
      MatmulCall call({rows, in, out}, dtype(), static_cast<uint32_t>(in * 1000 + out * 10 + rows));
      const ErrorSize error = Compare(call.Run(isa()), call.Reference(), ProductNorm(in));
      ASSERT_LT(error.largest, 4e-6 + 15 * UnitError())
          << "in " << in << " out " << out << " rows " << rows;
    }
  }
}

TEST_P(MatmulTest, IsAsAccurateAsAnFmaLoopOrAsTheUnitsPartsAllow) {
  for (const int64_t in : {100, 768, 2048, 8192}) {
    MatmulCall call({17, in, 33}, dtype(), 11);
    const std::vector<float> expected = call.Reference();
    const ErrorSize ours = Compare(call.Run(isa()), expected, ProductNorm(in));
    const ErrorSize loop = Compare(FmaLoop(call), expected, ProductNorm(in));
    EXPECT_LT(ours.rms, 1.25 * loop.rms + UnitError()) << "in " << in;
    EXPECT_LT(ours.largest, 2.0 * loop.largest + 5 * UnitError()) << "in " << in;
  }
}

TEST_P(MatmulTest, ARowsBitsDoNotDependOnTheOthersOrOnThreads) {
  constexpr int64_t kAll = 300;
  for (const int64_t in : {100, 1056}) {
    MatmulCall call({kAll, in, 150}, dtype(), 21);
    call.args.activation = Activation::kGelu;
    call.piece.bias = call.bias.data();
    const std::vector<uint32_t> all = Bits(call.Run(isa()));
    for (const int64_t rows : {1, 2, 3, 4, 5, 8, 15, 16, 17, 32, 33, 64, 129, 200, 300}) {
      for (const int num_threads : {1, 2, 4}) {
        for (const int64_t first : {int64_t{0}, int64_t{1}, kAll - rows}) {
          if (first + rows > kAll) continue;
          const std::vector<uint32_t> some = Bits(call.Run(isa(), num_threads, first, rows));
          ASSERT_TRUE(std::equal(some.begin(), some.end(), all.begin() + first * 150))
              << "in " << in << " rows " << rows << " first " << first << " threads "
              << num_threads;
        }
      }
    }
  }
}

// Rows at which tiles begin, and at which x begins to be copied for them; 241: the last tile has
// one row. One workspace for all, as the engine has.
TEST_P(MatmulTest, OneWorkspaceDoesForAllSmallerCalls) {
  constexpr int64_t kMaxRows = 241;
  constexpr int64_t kMaxIn = 1056;
  for (const int num_threads : {1, 8}) {
    AlignedBytes workspace(MatmulWorkspaceBytes(kMaxRows, kMaxIn, num_threads, isa()));
    for (const int64_t in : {kMaxIn, int64_t{1024}, int64_t{1000}, int64_t{100}}) {
      MatmulCall call({kMaxRows, in, 50}, dtype(), 23);
      const std::vector<uint32_t> all = Bits(call.Run(isa()));
      for (const int64_t rows : {241, 25, 24, 60, 61, 48, 96, 128, 129, 1}) {
        ASSERT_LE(MatmulWorkspaceBytes(rows, in, num_threads, isa()),
                  static_cast<int64_t>(workspace.span().size()));
        const std::vector<uint32_t> some =
            Bits(call.Run(isa(), num_threads, 0, rows, workspace.span()));
        ASSERT_TRUE(std::equal(some.begin(), some.end(), all.begin()))
            << "in " << in << " rows " << rows << " threads " << num_threads;
      }
    }
  }
}

// Many rows of a long x are taken a part of k at a time, one row is not.
TEST_P(MatmulTest, ARowsBitsDoNotDependOnHowItsLengthIsCut) {
  constexpr int64_t kIn = 3424;
  constexpr int64_t kOut = 40;
  MatmulCall call({64, kIn, kOut}, dtype(), 25);
  const std::vector<uint32_t> all = Bits(call.Run(isa()));
  for (const int64_t rows : {1, 17, 33}) {
    const std::vector<uint32_t> some = Bits(call.Run(isa(), 2, 0, rows));
    ASSERT_TRUE(std::equal(some.begin(), some.end(), all.begin())) << rows << " rows";
  }
}

TEST_P(MatmulTest, PiecesGiveTheBitsOfTheWhole) {
  for (const int64_t rows : {1, 7, 40, 100}) {
    MatmulCall call({rows, 200, 150}, dtype(), 31);
    call.piece.bias = call.bias.data();
    const std::vector<uint32_t> whole = Bits(call.Run(isa()));
    for (const int64_t cut : {1, 16, 50, 149}) {
      std::vector<float> y(static_cast<size_t>(rows * 150), kPoison);
      // The first piece lies apart, as when its rows are in another tier.
      const int64_t cut_bytes = cut * RowBytes(dtype(), 200);
      AlignedBytes apart(cut_bytes);
      std::memcpy(apart.data(), call.weight.data(), static_cast<size_t>(cut_bytes));
      MatmulPiece pieces[2] = {call.piece, call.piece};
      pieces[0].weight = apart.data();
      pieces[0].num_out = cut;
      pieces[1].weight = call.weight.data() + cut_bytes;
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

TEST_P(MatmulTest, PiecesOfEveryTypeInOneCall) {
  for (const int64_t rows : {1, 20, 40}) {
    const DType dtypes[] = {dtype(), DType::kF16, DType::kQ4, DType::kBF16, DType::kMxfp4};
    std::vector<MatmulCall> calls;
    for (const DType type : dtypes) calls.emplace_back(Shape{rows, 96, 40}, type, 41);
    std::vector<float> y(static_cast<size_t>(rows) * 200, kPoison);
    std::vector<MatmulPiece> pieces;
    for (size_t i = 0; i < calls.size(); ++i) {
      pieces.push_back(calls[i].piece);
      pieces.back().y = y.data() + 40 * i;
      pieces.back().y_stride = 200;
    }
    MatmulArgs args = calls[0].args;
    args.pieces = pieces;
    AlignedBytes workspace(MatmulWorkspaceBytes(rows, 96, 2, isa()));
    Matmul(args, workspace.span(), Pool(2), isa());
    for (size_t i = 0; i < calls.size(); ++i) {
      const std::vector<float> alone = calls[i].Run(isa());
      for (size_t at = 0; at < alone.size(); ++at) {
        ASSERT_EQ(y[at / 40 * 200 + 40 * i + at % 40], alone[at]) << i;
      }
    }
  }
}

TEST_P(MatmulTest, BiasActivationAndResidual) {
  for (const Activation activation :
       {Activation::kNone, Activation::kRelu, Activation::kGelu, Activation::kGeluTanh,
        Activation::kSilu, Activation::kClampedSwish, Activation::kClampedOffset}) {
    for (const int64_t rows : {1, 6, 50}) {
      MatmulCall call({rows, 130, 100}, dtype(), 51);
      call.args.activation = activation;
      call.piece.bias = call.bias.data();
      call.piece.residual = call.residual.data();
      call.piece.residual_stride = 105;
      EXPECT_LT(Compare(call.Run(isa()), call.Reference(), 1.0).largest, 3e-6 + 5 * UnitError())
          << static_cast<int>(activation);
    }
  }
}

// Numbers of every size, of both signs, up to the largest.
std::vector<float> AllSizes() {
  std::vector<float> sizes = {0.0F, std::numeric_limits<float>::denorm_min(),
                              std::numeric_limits<float>::max()};
  for (float power = 1e-38F; power < 1e38F; power *= 1.3F) sizes.push_back(power);
  std::vector<float> all;
  for (const float size : sizes) {
    all.push_back(size);
    all.push_back(-size);
  }
  return all;
}

TEST_P(MatmulTest, ActivationsOverAllFiniteNumbers) {
  const std::vector<float> values = AllSizes();
  for (const Activation activation :
       {Activation::kNone, Activation::kRelu, Activation::kGelu, Activation::kGeluTanh,
        Activation::kSilu, Activation::kClampedSwish, Activation::kClampedOffset}) {
    MatmulCall call({1, 64, std::ssize(values)}, dtype(), 53);
    std::fill_n(call.x.begin(), 64, 0.0F);
    call.args.activation = activation;
    call.piece.bias = values.data();
    const std::vector<float> y = call.Run(isa());
    const std::vector<float> expected = call.Reference();
    for (std::size_t i = 0; i < values.size(); ++i) {
      ASSERT_NEAR(y[i], expected[i], 1e-6 + 2e-6 * std::abs(static_cast<double>(expected[i])))
          << "activation " << static_cast<int>(activation) << " of " << values[i];
    }
  }
}

// As what the oracle computes, and to the bit: the product without both, times, plus.
TEST_P(MatmulTest, GatedProducts) {
  for (const Activation activation : {Activation::kNone, Activation::kGelu, Activation::kSilu}) {
    for (const int64_t rows : {1, 2, 6, 50, 150}) {
      MatmulCall call({rows, 130, 101}, dtype(), 57);
      call.args.activation = activation;
      call.piece.bias = call.bias.data();
      const std::vector<float> plain = call.Run(isa());
      call.piece.times = call.times.data();
      call.piece.times_stride = 110;
      for (const bool adds : {false, true}) {
        call.piece.residual = adds ? call.residual.data() : nullptr;
        call.piece.residual_stride = 106;
        const std::vector<float> y = call.Run(isa(), 2, 0, rows);
        // A factor is up to 4.
        EXPECT_LT(Compare(y, call.Reference(), 4.0).largest, 3e-6 + 5 * UnitError()) << rows;
        for (int64_t at = 0; at < rows * 101; ++at) {
          float expected = plain[static_cast<size_t>(at)];
          expected *= call.times[static_cast<size_t>(at / 101 * 110 + at % 101)];
          if (adds) expected += call.residual[static_cast<size_t>(at / 101 * 106 + at % 101)];
          ASSERT_EQ(y[static_cast<size_t>(at)], expected) << at << " of " << rows << " rows";
        }
      }
    }
  }
}

// Results that take the place of an operand, in `memory`, are those that lie apart.
void ExpectSameInPlace(MatmulCall& call, std::vector<float>& memory, int64_t stride, Isa isa) {
  const auto [rows, in, out] = call.shape;
  const std::vector<float> apart = call.Run(isa);
  MatmulPiece piece = call.piece;
  piece.y = memory.data();
  piece.y_stride = stride;
  call.args.pieces = {&piece, 1};
  AlignedBytes workspace(MatmulWorkspaceBytes(rows, in, 2, isa));
  Matmul(call.args, workspace.span(), Pool(2), isa);
  for (int64_t at = 0; at < rows * out; ++at) {
    ASSERT_EQ(memory[static_cast<size_t>(at / out * stride + at % out)],
              apart[static_cast<size_t>(at)])
        << "row " << at / out << " of " << rows << ", column " << at % out;
  }
}

TEST_P(MatmulTest, TimesInPlace) {
  for (const int64_t rows : {1, 3, 40, 150}) {
    MatmulCall call({rows, 64, 101}, dtype(), 59);
    call.args.activation = Activation::kSilu;
    call.piece.times = call.times.data();
    call.piece.times_stride = 110;
    ASSERT_NO_FATAL_FAILURE(ExpectSameInPlace(call, call.times, 110, isa()));
  }
}

// x is zero and the bias has the values: no product's error is in the result.
TEST_P(MatmulTest, SiluIsAccurateOverItsWholeRange) {
  constexpr int64_t kSteps = 960;
  MatmulCall call({1, 16, kSteps + 6}, dtype(), 55);
  std::fill(call.x.begin(), call.x.end(), 0.0F);
  for (int64_t at = 0; at < kSteps; ++at)
    call.bias[static_cast<size_t>(at)] = static_cast<float>(at - kSteps / 2) * 0.2477F;
  const float ends[] = {-87.3F, -88.4F, -1e-30F, 1e-30F, -3e38F, 3e38F};
  std::copy(std::begin(ends), std::end(ends), call.bias.begin() + kSteps);
  call.args.activation = Activation::kSilu;
  call.piece.bias = call.bias.data();
  const std::vector<float> y = call.Run(isa());
  const std::vector<float> expected = call.Reference();
  for (size_t i = 0; i < y.size(); ++i)
    ASSERT_NEAR(y[i], expected[i], 4e-7F * std::abs(expected[i]) + 1e-35F) << call.bias[i];
}

TEST_P(MatmulTest, ResidualInPlace) {
  for (const int64_t rows : {2, 40}) {
    MatmulCall call({rows, 64, 100}, dtype(), 61);
    call.piece.residual = call.residual.data();
    call.piece.residual_stride = 105;
    ASSERT_NO_FATAL_FAILURE(ExpectSameInPlace(call, call.residual, 105, isa()));
  }
}

TEST_P(MatmulTest, ExtremeWeights) {
  if (IsQuantised(dtype())) return;  // quantise_test.cc has those of groups
  // Denormal halfs, the largest half, and x with all 24 bits. (AMX flushes products under 2^-126;
  // none is here. It drops 2^-17 of x and 2^-16 of a product.)
  float dropped = isa() == Isa::kAmx ? 0x1p-17F + 0x1p-16F : 0.0F;
  if (RoundsToBf16(isa())) {
    dropped = 0x1p-7F + 0x1p-16F;  // two roundings of up to 2^-8
  }
  for (const int64_t rows : {1, 20}) {
    MatmulCall call({rows, 32, 16}, dtype(), 71);
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
    MatmulCall call({20, 64, 32}, dtype(), 81);
    call.x[3 * 67 + 40] = bad;
    const std::vector<float> y = call.Run(isa());
    for (size_t i = 0; i < y.size(); ++i) EXPECT_EQ(std::isfinite(y[i]), i / 32 != 3) << i;
  }
}

TEST_P(MatmulTest, ClampsKeepWhatIsNoNumber) {
  for (const Activation activation : {Activation::kClampedSwish, Activation::kClampedOffset}) {
    MatmulCall call({20, 64, 32}, dtype(), 81);
    call.args.activation = activation;
    call.x[3 * 67 + 40] = kPoison;
    const std::vector<float> y = call.Run(isa());
    for (size_t i = 0; i < y.size(); ++i) EXPECT_EQ(std::isnan(y[i]), i / 32 == 3) << i;
  }
}

// The oracle on operands that are rounded: nothing else is lost.
TEST(Bf16Test, RoundsXAndWeightsOnceAndNothingElse) {
  const std::vector<Isa> isas = ProductIsas(CpuCompute::kBf16);
  if (isas.empty()) GTEST_SKIP() << "this machine has neither AMX nor AVX512-BF16";
  for (const Isa isa : isas) {
    for (const DType dtype : {DType::kF16, DType::kBF16}) {
      for (const auto& [rows, in, out] :
           {Shape{1, 2100, 50}, Shape{3, 96, 7}, Shape{17, 100, 33}, Shape{70, 577, 21}}) {
        MatmulCall call({rows, in, out}, dtype, 101);
        const std::vector<float> y = call.Run(isa);
        for (float& x : call.x) x = BFloat16ToFloat(FloatToBFloat16(x));
        for (int64_t i = 0; i < out * in && dtype == DType::kF16; ++i) {
          call.weight.words()[i] = FloatToBFloat16(HalfToFloat(call.weight.words()[i]));
        }
        call.piece.weight_dtype = DType::kBF16;
        const ErrorSize error = Compare(y, call.Reference(), ProductNorm(in));
        EXPECT_LT(error.largest, 4e-6)
            << IsaName(isa) << ' ' << DTypeName(dtype) << " rows " << rows << " in " << in;
      }
    }
  }
}

TEST_P(MatmulTest, NoRowsIsNoWork) {
  MatmulCall call({4, 64, 32}, dtype(), 91);
  EXPECT_TRUE(call.Run(isa(), 2, 0, 0).empty());
}

}  // namespace
}  // namespace spillway::kernels
