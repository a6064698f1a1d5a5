// Norm, embedding, gather, product and fetch on the GPU against their oracles.
#include <algorithm>
#include <cmath>

#include "kernels/attention/head_reflection.h"
#include "kernels/attention/head_turn.h"
#include "kernels/attention/key_centre.h"
#include "kernels/attention/kv_copy.h"
#include "kernels/matmul/matmul_fp32.h"
#include "kernels/matmul/matmul_gpu.h"
#include "kernels/matmul/matmul_workspace.h"
#include "kernels/rows/choose_experts.h"
#include "kernels/rows/embedding.h"
#include "kernels/rows/expert_rows.h"
#include "kernels/rows/fetch_host.h"
#include "kernels/rows/gather_rows.h"
#include "kernels/rows/host_rows.h"
#include "kernels/rows/norm.h"
#include "kernels/rows/rotate.h"
#include "kernels/rows/soft_cap.h"
#include "tests/gpu/embedding_pair.h"
#include "tests/gpu/gpu_test_util.h"
#include "tests/kernels/kernel_test_util.h"
#include "tests/trace_case.h"

namespace spillway::kernels {
namespace {

using OpsTest = GpuTest;

void ExpectAllNear(const std::vector<float>& a, const std::vector<float>& b, float bound) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t at = 0; at < a.size(); ++at) ASSERT_NEAR(a[at], b[at], bound) << at;
}

TEST_F(OpsTest, NormAgreesWithTheOracle) {
  for (const int64_t cols : {1, 7, 256, 257, 2560, 7168}) {
    constexpr int64_t kRows = 5;
    const int64_t stride = cols + 3;
    GpuArray<float> x(RandomFloats(kRows * stride, 1), stream());
    GpuArray<float> weight(RandomFloats(cols, 2), stream());
    GpuArray<float> bias(RandomFloats(cols, 3), stream());
    for (const auto& [kind, offset] :
         {std::pair{NormKind::kLayer, 0.0F}, {NormKind::kRms, 0.0F}, {NormKind::kRms, 1.0F}}) {
      GpuArray<float> y(std::vector<float>(static_cast<size_t>(kRows * stride), kPoison), stream());
      const NormArgs args{x.data(),      stride,      y.data(), stride, kRows, cols,
                          weight.data(), bias.data(), 1e-5F,    kind,   offset};
      NormAsync(args, stream());
      Finish();
      std::vector<float> expected(y.host());
      NormArgs on_host = args;
      on_host.x = x.host().data();
      on_host.y = expected.data();
      on_host.weight = weight.host().data();
      on_host.bias = bias.host().data();
      NormRef(on_host);
      y.Download();
      for (int64_t row = 0; row < kRows; ++row) {
        for (int64_t col = 0; col < cols; ++col) {
          const auto at = static_cast<size_t>(row * stride + col);
          ASSERT_NEAR(y.host()[at], expected[at], 2e-5F) << cols << " " << row << " " << col;
        }
        EXPECT_TRUE(std::isnan(y.host()[static_cast<size_t>(row * stride + cols)]));
      }
    }
  }
}

TEST_F(OpsTest, NormAddsWhatIsInTheOutput) {
  constexpr int64_t kRows = 5;
  constexpr int64_t kCols = 300;
  GpuArray<float> x(RandomFloats(kRows * kCols, 1), stream());
  GpuArray<float> weight(RandomFloats(kCols, 2), stream());
  GpuArray<float> y(RandomFloats(kRows * kCols, 3), stream());
  std::vector<float> expected(y.host());
  NormArgs args{x.data(), kCols, y.data(),       kCols, kRows,    kCols, weight.data(),
                nullptr,  1e-5F, NormKind::kRms, 1.0F,  y.data(), kCols};
  NormAsync(args, stream());
  args.x = x.host().data();
  args.y = expected.data();
  args.plus = expected.data();
  args.weight = weight.host().data();
  NormRef(args);
  ExpectAllNear(y.Download(), expected, 2e-5F);
}

// One kernel gives the bits of the norm and of the rounding of what it wrote.
TEST_F(OpsTest, RoundedNormIsTheNormRounded) {
  constexpr int64_t kRows = 3;
  constexpr int64_t kCols = 200;
  GpuArray<float> x(RandomFloats(kRows * kCols, 1), stream());
  GpuArray<float> weight(RandomFloats(kCols, 2), stream());
  GpuArray<float> bias(RandomFloats(kCols, 3), stream());
  for (const DType dtype : {DType::kF16, DType::kBF16}) {
    for (const NormKind kind : {NormKind::kLayer, NormKind::kRms}) {
      GpuArray<float> y(std::vector<float>(kRows * kCols, kPoison), stream());
      GpuArray<uint16_t> two_steps(std::vector<uint16_t>(kRows * kCols), stream());
      GpuArray<uint16_t> one(std::vector<uint16_t>(kRows * kCols), stream());
      NormArgs args = {x.data(), kCols, y.data(), kCols, kRows, kCols, weight.data(), bias.data()};
      args.kind = kind;
      NormAsync(args, stream());
      RoundRowsAsync({y.data(), kCols, kRows, kCols, two_steps.data(), dtype}, stream());
      RoundedNormAsync({args, one.data(), dtype}, stream());
      Finish();
      EXPECT_EQ(one.Download(), two_steps.Download());
    }
  }
}

TEST_F(OpsTest, SoftCapAgreesWithTheOracle) {
  for (const int64_t count : {1, 255, 2048, 5000}) {
    GpuArray<float> x(RandomFloats(count, 1, 20.0F), stream());
    std::vector<float> expected(x.host());
    SoftCapRef({expected.data(), count, 30.0F});
    SoftCapAsync({x.data(), count, 30.0F}, stream());
    ExpectAllNear(x.Download(), expected, 1e-5F);
  }
}

TEST_F(OpsTest, HeadNormAgreesWithTheOracle) {
  for (const int64_t head_dim : {1, 20, 64, 77, 128, 256}) {
    constexpr int64_t kRows = 7;
    constexpr int64_t kHeads = 3;
    const int64_t stride = kHeads * head_dim + 5;
    GpuArray<float> x(RandomFloats(kRows * stride, 1), stream());
    GpuArray<float> weight(RandomFloats(head_dim, 2), stream());
    std::vector<float> expected(x.host());
    HeadNormRef(
        {expected.data(), stride, kRows, kHeads, head_dim, weight.host().data(), 1e-3F, 1.0F});
    HeadNormAsync({x.data(), stride, kRows, kHeads, head_dim, weight.data(), 1e-3F, 1.0F},
                  stream());
    ExpectAllNear(x.Download(), expected, 2e-5F);
  }
}

TEST_F(OpsTest, RotationAgreesWithTheOracle) {
  constexpr int64_t kRows = 6;
  constexpr int64_t kHeads = 3;
  constexpr int64_t kHeadDim = 512;
  constexpr int64_t kStride = kHeads * kHeadDim + 5;
  GpuArray<int32_t> positions({0, 1, 77, 4095, 65536, 131072}, stream());
  for (const int64_t dims : {2, 20, 128, 512}) {
    GpuArray<float> frequencies(InverseFrequencies(dims), stream());
    for (const RopePairs pairs : {RopePairs::kHalves, RopePairs::kNeighbours}) {
      GpuArray<float> x(RandomFloats(kRows * kStride, 1), stream());
      std::vector<float> expected(x.host());
      RotateRef({expected.data(), kStride, kRows, kHeads, kHeadDim, positions.host().data(),
                 frequencies.host().data(), dims, pairs, 1.25F});
      RotateAsync({x.data(), kStride, kRows, kHeads, kHeadDim, positions.data(), frequencies.data(),
                   dims, pairs, 1.25F},
                  stream());
      ExpectAllNear(x.Download(), expected, 2e-6F);
    }
  }
}

TEST_F(OpsTest, RotationByTablesAgreesWithTheOracle) {
  constexpr int64_t kDims = 20;
  constexpr int64_t kStride = 2 * kDims;
  GpuArray<int32_t> positions({0, 1, 77, 4095}, stream());
  GpuArray<int32_t> tables({1, 0, 1, 2}, stream());
  GpuArray<float> frequencies(RandomFloats(3 * kDims / 2, 2), stream());
  GpuArray<float> x(RandomFloats(4 * kStride, 1), stream());
  std::vector<float> expected(x.host());
  RotateRef({expected.data(), kStride, 4, 2, kDims, positions.host().data(),
             frequencies.host().data(), kDims, RopePairs::kHalves, 1.25F, tables.host().data()});
  RotateAsync({x.data(), kStride, 4, 2, kDims, positions.data(), frequencies.data(), kDims,
               RopePairs::kHalves, 1.25F, tables.data()},
              stream());
  ExpectAllNear(x.Download(), expected, 2e-6F);
}

// Experts as the oracle chooses them, ties and scores that are no numbers among them.
TEST_F(OpsTest, ChoiceOfExpertsAgreesWithTheOracle) {
  for (const auto& [num_experts, top_k] : {std::pair{8, 2}, {33, 4}, {128, 8}, {512, 10}, {3, 3}}) {
    for (const ChoiceWeights weights : {ChoiceWeights::kOfAll, ChoiceWeights::kOfChosen}) {
      for (const bool shared : {false, true}) {
        constexpr int64_t kRows = 7;
        const int64_t stride = num_experts + 1;
        std::vector<float> values = RandomFloats(kRows * stride, 1, 3.0F);
        for (int64_t at = 0; at < 2 * stride; ++at)
          values[static_cast<size_t>(at)] = std::round(values[static_cast<size_t>(at)]);
        GpuArray<float> scores(std::move(values), stream());
        ChooseExpertsArgs args = {scores.data(), stride, nullptr, 0,     kRows,
                                  num_experts,   top_k,  weights, shared};
        args.choice_stride = 2 * args.slots() + 3;
        const auto size = static_cast<size_t>(kRows * args.choice_stride);
        GpuArray<float> choice(std::vector<float>(size, 0.5F), stream());
        std::vector<float> expected(choice.host());
        args.choice = choice.data();
        ChooseExpertsAsync(args, stream());
        args.scores = scores.host().data();
        args.choice = expected.data();
        ChooseExpertsRef(args);
        choice.Download();
        for (size_t at = 0; at < size; ++at) {
          const auto col = static_cast<int64_t>(at) % args.choice_stride;
          const float bound = col < args.slots() ? 0.0F : 2e-6F;
          ASSERT_NEAR(choice.host()[at], expected[at], bound) << num_experts << " " << at;
        }
      }
    }
  }
}

TEST_F(OpsTest, ChoicesOfNoNumbersNameExpertsOnce) {
  constexpr int64_t kExperts = 40;
  std::vector<float> values = RandomFloats(2 * kExperts, 1);
  std::fill_n(values.begin(), kExperts, kPoison);
  std::fill_n(values.begin() + kExperts, kExperts - 3, -INFINITY);
  GpuArray<float> scores(std::move(values), stream());
  GpuArray<float> choice(std::vector<float>(2 * 16), stream());
  ChooseExpertsAsync({scores.data(), kExperts, choice.data(), 16, 2, kExperts, 8}, stream());
  choice.Download();
  for (int64_t row = 0; row < 2; ++row) {
    std::vector<float> numbers(choice.host().begin() + row * 16,
                               choice.host().begin() + row * 16 + 8);
    std::ranges::sort(numbers);
    EXPECT_EQ(std::ranges::adjacent_find(numbers), numbers.end());
    EXPECT_GE(numbers.front(), 0.0F);
    EXPECT_LT(numbers.back(), static_cast<float>(kExperts));
  }
}

TEST_F(OpsTest, RowsOfExpertsHaveTheCpusBits) {
  constexpr int64_t kCols = 300;
  constexpr int64_t kStride = 310;
  GpuArray<float> states(RandomFloats(6 * kStride, 1), stream());
  GpuArray<float> taken(std::vector<float>(3 * kCols, kPoison), stream());
  GpuArray<float> weights(RandomFloats(3, 2), stream());
  std::vector<float> expected_states(states.host());
  std::vector<float> expected_taken(taken.host());
  const auto rows_of = [](float* of) {
    return std::vector<float*>{of + 4 * kStride, of, of + 5 * kStride};
  };
  const std::vector<float*> on_host = rows_of(expected_states.data());
  GpuArray<float*> on_gpu(rows_of(states.data()), stream());
  ThreadPool pool(1);
  TakeExpertRows({on_host, 10, kCols, expected_taken.data(), kCols}, pool);
  AddExpertRows({on_host, 3, weights.host(), expected_taken.data(), kCols, kCols}, pool);
  TakeExpertRowsAsync({on_gpu.span(), 10, kCols, taken.data(), kCols}, stream());
  AddExpertRowsAsync({on_gpu.span(), 3, weights.span(), taken.data(), kCols, kCols}, stream());
  Finish();
  EXPECT_EQ(Bits(taken.Download()), Bits(expected_taken));
  EXPECT_EQ(Bits(states.Download()), Bits(expected_states));
}

// Products in fp32 for any number of rows and outputs; a row's bits are those that it has alone.
TEST_F(OpsTest, Fp32ProductsAgreeWithTheOracle) {
  for (const DType dtype : {DType::kF16, DType::kBF16}) {
    for (const auto& [rows, in, outs] :
         {std::tuple{1, 8, 1}, {9, 200, 8}, {40, 2048, 33}, {7, 4096, 128}}) {
      const int64_t x_stride = in + 16;
      const int64_t y_stride = outs + 1;
      GpuArray<float> x(RandomFloats(rows * x_stride, 1), stream());
      AlignedBytes weight = RandomWeights(outs * in, dtype, 2);
      GpuArray<std::byte> on_gpu({weight.span().begin(), weight.span().end()}, stream());
      GpuArray<float> bias(RandomFloats(outs, 3), stream());
      const auto size = static_cast<size_t>(rows * y_stride);
      GpuArray<float> y(std::vector<float>(size, kPoison), stream());
      GpuArray<float> alone(std::vector<float>(size, kPoison), stream());
      std::vector<float> expected(size);
      MatmulPiece piece = {on_gpu.data(), dtype, outs, bias.data(), y.data(), y_stride};
      MatmulArgs args = {x.data(), x_stride, rows, in, Activation::kNone, {&piece, 1}};
      MatmulFp32Async(args, stream());
      const MatmulPiece last = {on_gpu.data(), dtype, outs, bias.data(), alone.data(), y_stride};
      MatmulFp32Async(
          {x.data() + (rows - 1) * x_stride, x_stride, 1, in, Activation::kNone, {&last, 1}},
          stream());
      piece = {weight.span().data(), dtype, outs, bias.host().data(), expected.data(), y_stride};
      args.x = x.host().data();
      MatmulRef(args);
      y.Download();
      alone.Download();
      for (int64_t row = 0; row < rows; ++row) {
        for (int64_t out = 0; out < outs; ++out) {
          const auto at = static_cast<size_t>(row * y_stride + out);
          ASSERT_NEAR(y.host()[at], expected[at], 1e-5F * std::sqrt(static_cast<float>(in))) << at;
          if (row < rows - 1) continue;
          ASSERT_EQ(y.host()[at], alone.host()[static_cast<size_t>(out)]);
        }
        EXPECT_TRUE(std::isnan(y.host()[static_cast<size_t>(row * y_stride + outs)]));
      }
    }
  }
}

// Runs of one vector, of a whole and of a part of what the blocks of a launch copy at a time.
TEST_F(OpsTest, RunsOfCachesAreCopiedAsTheCpuDoes) {
  constexpr int64_t kVectors = 20000;
  GpuArray<float> memory(RandomFloats(8 * kVectors, 1), stream());
  std::vector<float> expected(memory.host());
  const auto runs_of = [](float* of) {
    const auto run = [&](int64_t from, int64_t to, int64_t vectors) {
      return KvRun{reinterpret_cast<const std::byte*>(of + 4 * from),
                   reinterpret_cast<std::byte*>(of + 4 * to), 16 * vectors};
    };
    return std::vector<KvRun>{run(0, kVectors, 1), run(7, kVectors + 1, 4096),
                              run(3, kVectors + 4097, 9001)};
  };
  ThreadPool pool(1);
  CopyKv(runs_of(expected.data()), pool);
  GpuArray<KvRun> runs(runs_of(memory.data()), stream());
  CopyKvAsync(runs.span(), stream());
  EXPECT_EQ(Bits(memory.Download()), Bits(expected));
}

TEST_F(OpsTest, EmbeddingIsExact) {
  for (const DType dtype : {DType::kF16, DType::kBF16}) {
    SCOPED_TRACE(DTypeName(dtype));
    AlignedBytes table = RandomWeights(EmbeddingPair::kTableRows * EmbeddingPair::kCols, dtype, 4);
    EmbeddingPair pair({table.span().begin(), table.span().end()}, dtype, stream());
    EmbeddingLookup(pair.on_host());
    EmbeddingAdd(pair.on_host());
    EmbeddingLookupAsync(pair.on_gpu(), stream());
    EmbeddingAddAsync(pair.on_gpu(), stream());
    Finish();
    EXPECT_EQ(Bits(pair.Download()), Bits(pair.expected()));
    EmbeddingArgs on_host = pair.on_host();
    EmbeddingArgs on_gpu = pair.on_gpu();
    on_host.scale = on_gpu.scale = 55.5F;
    EmbeddingLookup(on_host);
    EmbeddingLookupAsync(on_gpu, stream());
    Finish();
    EXPECT_EQ(Bits(pair.Download()), Bits(pair.expected()));
  }
}

TEST_F(OpsTest, ReflectionAgreesWithTheCpus) {
  for (const int64_t dim : {64, 80, 128, 24}) {
    constexpr int64_t kRows = 9;
    const int64_t stride = 6 * dim + 5;
    GpuArray<float> keys(RandomFloats(kRows * stride, 6), stream());
    std::vector<double> sums(static_cast<size_t>(2 * dim), 0.0);
    GpuArray<double> gpu_sums(sums, stream());
    std::vector<float> reflectors(sums.size(), kPoison);
    GpuArray<float> gpu_reflectors(reflectors, stream());
    for (const auto& [begin, count] : {std::pair{0, 4}, {4, 5}}) {
      AddKeyDirections({keys.host().data() + begin * stride, stride, count, 2, dim, sums.data()});
      AddKeyDirectionsAsync({keys.data() + begin * stride, stride, count, 2, dim, gpu_sums.data()},
                            stream());
    }
    MakeReflectors({sums.data(), 2, dim, reflectors.data()});
    MakeReflectorsAsync({gpu_sums.data(), 2, dim, gpu_reflectors.data()}, stream());
    EXPECT_EQ(gpu_sums.Download(), sums) << "zeros again";
    ExpectAllNear(gpu_reflectors.Download(), reflectors, 1e-6F);

    ThreadPool pool(1);
    ReflectHeads({keys.host().data(), stride, kRows, 6, 2, dim, reflectors.data()}, pool);
    const std::vector<float> expected = keys.host();
    ReflectHeadsAsync({keys.data(), stride, kRows, 6, 2, dim, gpu_reflectors.data()}, stream());
    ExpectAllNear(keys.Download(), expected, 1e-5F);
  }
}

TEST_F(OpsTest, TurnAgreesWithTheCpus) {
  for (const int64_t dim : {8, 32, 64, 128, 256}) {
    constexpr int64_t kRows = 5;
    const int64_t stride = 6 * dim + 5;
    GpuArray<float> x(RandomFloats(kRows * stride, 8), stream());
    std::vector<float> expected = x.host();
    ThreadPool pool(1);
    TurnHeads({expected.data(), stride, kRows, 6, dim}, pool);
    TurnHeadsAsync({x.data(), stride, kRows, 6, dim}, stream());
    ExpectAllNear(x.Download(), expected, 1e-5F);
  }
}

// Means of keys: found, turned by spans and taken away, as the CPU does.
TEST_F(OpsTest, KeysAreCentred) {
  constexpr int64_t kRows = 7;
  constexpr int64_t kHeads = 3;
  constexpr int64_t kSpans = 5;
  ThreadPool pool(1);
  for (const auto& [dim, rotation] :
       {std::pair{int64_t{64}, HeadRotation{64, RopePairs::kHalves}},
        std::pair{int64_t{128}, HeadRotation{96, RopePairs::kNeighbours}},
        std::pair{int64_t{16}, HeadRotation{8, RopePairs::kHalves}}}) {
    SCOPED_TRACE(CaseOf("head_dim", dim));
    const int64_t width = kHeads * dim;
    const int64_t stride = width + 4;
    GpuArray<float> keys(RandomFloats(kRows * stride, 4), stream());
    std::vector<float> rates = RandomFloats(rotation.dims / 2, 6);
    for (float& rate : rates) rate = 0.1F + 0.05F * rate;
    GpuArray<float> frequencies(rates, stream());
    std::vector<double> sums(static_cast<size_t>(width), 0.5);
    GpuArray<double> gpu_sums(sums, stream());
    std::vector<float> means(static_cast<size_t>(width));
    GpuArray<float> gpu_means(means, stream());
    SumKeys(
        {keys.host().data(), stride, kRows, 3, kHeads, dim, rotation, rates.data(), sums.data()});
    MakeKeyMeans({sums.data(), width, kRows, means.data()});
    SumKeysAsync(
        {keys.data(), stride, kRows, 3, kHeads, dim, rotation, frequencies.data(), gpu_sums.data()},
        stream());
    MakeKeyMeansAsync({gpu_sums.data(), width, kRows, gpu_means.data()}, stream());
    ExpectAllNear(gpu_means.Download(), means, 1e-6F);
    EXPECT_EQ(gpu_sums.Download(), sums);

    std::vector<float> turns(static_cast<size_t>(kSpans * dim));
    FillSpanTurns({rates, 0, kSpans, dim, turns.data()}, pool);
    GpuArray<float> gpu_turns(turns, stream());
    std::vector<float> table(static_cast<size_t>(kHeads * kSpans * dim), 7.0F);
    GpuArray<float> gpu_table(table, stream());
    SpanMeanArgs fill = {means.data(), turns.data(), dim, rotation,
                         kHeads,       kSpans,       dim, table.data()};
    SpanMeanArgs gpu_fill = fill;
    gpu_fill.means = gpu_means.data();
    gpu_fill.turns = gpu_turns.data();
    gpu_fill.table = gpu_table.data();
    for (const auto& [first, end] : {std::pair{0, 1}, std::pair{1, 4}}) {
      fill.first = gpu_fill.first = first;
      fill.end = gpu_fill.end = end;
      FillSpanMeans(fill, pool);
      FillSpanMeansAsync(gpu_fill, stream());
    }
    std::vector<float> placed(table.size());
    for (int64_t i = 0; i < std::ssize(table); ++i) {
      const bool filled = i / dim % kSpans < 4;
      const int64_t place = filled ? MeanPlace(i % dim, dim) : i % dim;
      placed[static_cast<size_t>(i / dim * dim + place)] = table[static_cast<size_t>(i)];
    }
    ExpectAllNear(gpu_table.Download(), placed, 1e-5F);

    const std::vector<int32_t> positions = {0, 15, 16, 47, 48, 63, 20};
    GpuArray<int32_t> gpu_positions(positions, stream());
    std::vector<float> centred = keys.host();
    CentreKeys(
        {centred.data(), stride, kRows, positions.data(), kHeads, dim, {table.data(), kSpans}},
        pool);
    CentreKeysAsync(
        {keys.data(), stride, kRows, gpu_positions.data(), kHeads, dim, {gpu_table.data(), kSpans}},
        stream());
    ExpectAllNear(keys.Download(), centred, 1e-5F);
  }
}

TEST_F(OpsTest, GatherCopiesRows) {
  constexpr int64_t kCols = 300;
  GpuArray<float> x(RandomFloats(10 * kCols, 5), stream());
  const std::vector<int64_t> wanted = {9, 0, 4, 4};
  std::vector<const float*> rows;
  for (const int64_t row : wanted) rows.push_back(x.data() + row * kCols);
  GpuArray<const float*> list(rows, stream());
  GpuArray<float> y(std::vector<float>(wanted.size() * kCols), stream());
  GatherRowsAsync({list.span(), kCols, y.data(), kCols}, stream());
  Finish();
  y.Download();
  for (size_t row = 0; row < wanted.size(); ++row) {
    EXPECT_TRUE(std::equal(y.host().begin() + static_cast<int64_t>(row) * kCols,
                           y.host().begin() + static_cast<int64_t>(row + 1) * kCols,
                           x.host().begin() + wanted[row] * kCols));
  }
}

TEST_F(OpsTest, RowsCrossToTheHostAndBack) {
  constexpr int64_t kRows = 9;
  constexpr int64_t kCols = 260;
  constexpr int64_t kStride = kCols + 8;
  const std::vector<int32_t> wanted = {1, 2, 5, 8};
  const auto row = [](const std::vector<float>& of, int32_t token) {
    return std::span(of).subspan(static_cast<size_t>(token * kStride), kCols);
  };
  GpuArray<float> x(RandomFloats(kRows * kStride, 1), stream());
  GpuArray<int32_t> tokens(wanted, stream());
  const int64_t bytes = std::ssize(wanted) * kCols * 4;
  const PinnedArena pinned(bytes);
  auto* host = pinned.As<float>({0, bytes});
  auto* mapped = reinterpret_cast<float*>(GpuAddressOf(pinned.View({0, bytes}).data()));
  SendRowsAsync({x.data(), kStride, tokens.span(), kCols, mapped}, stream());
  Finish();
  for (size_t at = 0; at < wanted.size(); ++at) {
    float* sent = host + static_cast<int64_t>(at) * kCols;
    EXPECT_TRUE(std::equal(sent, sent + kCols, row(x.host(), wanted[at]).begin())) << at;
    for (int64_t col = 0; col < kCols; ++col) sent[col] += 1.0F;
  }
  std::vector<float> expected = x.host();
  for (const int32_t token : wanted) {
    for (int64_t col = 0; col < kCols; ++col)
      expected[static_cast<size_t>(token * kStride + col)] += 1.0F;
  }
  FetchRowsAsync({x.data(), kStride, tokens.span(), kCols, mapped}, stream());
  Finish();
  EXPECT_EQ(x.Download(), expected);  // and no other row
}

TEST_F(OpsTest, FetchCopiesPinnedMemory) {
  for (const int64_t bytes : {1, 16, 17, 4096, 1 << 20}) {
    const PinnedArena pinned(2 << 20);
    const std::span<std::byte> host = pinned.View({4096, bytes});
    for (size_t at = 0; at < host.size(); ++at) host[at] = static_cast<std::byte>(at * 7 + 1);
    GpuArray<std::byte> there(std::vector<std::byte>(static_cast<size_t>(bytes + 16)), stream());
    FetchHostAsync({GpuAddressOf(host.data()), there.data(), bytes}, stream());
    Finish();
    there.Download();
    EXPECT_TRUE(std::equal(host.begin(), host.end(), there.host().begin())) << bytes;
  }
}

// A plan aligns regions to 64 bytes, the library's own workspace wants more. Few rows and many.
TEST_F(OpsTest, ProductsTakeAnyWorkspaceOfAPlan) {
  constexpr int64_t kIn = 64;
  constexpr int64_t kMaxRows = 80;
  const std::array<int64_t, 1> ins = {kIn};
  GpuMatmul matmul(ins, DType::kF16, kMaxRows);
  constexpr uint16_t kOne = 0x3C00;
  GpuArray<uint16_t> weight(std::vector<uint16_t>(kIn * 16, kOne), stream());
  GpuArray<float> x(std::vector<float>(kMaxRows * kIn, 0.5F), stream());
  const auto bytes = static_cast<size_t>(GpuMatmulWorkspaceBytes(kMaxRows, kIn));
  GpuArray<std::byte> workspace(std::vector<std::byte>(bytes + 256), stream());
  for (const int64_t rows : {int64_t{1}, kMaxRows}) {
    for (const size_t offset : {0U, 64U, 192U}) {
      GpuArray<float> y(std::vector<float>(static_cast<size_t>(rows * 16), kPoison), stream());
      const std::array pieces = {
          MatmulPiece{weight.data(), DType::kF16, 16, nullptr, y.data(), 16, nullptr, 0}};
      matmul.MatmulAsync({x.data(), kIn, rows, kIn, Activation::kNone, pieces},
                         {workspace.data() + offset, bytes}, stream());
      Finish();
      EXPECT_EQ(y.Download(), std::vector<float>(static_cast<size_t>(rows * 16), 32.0F)) << offset;
    }
  }
}

// An algorithm for many rows is used only where it gives the bits of that for few.
TEST_F(OpsTest, ProductsOfManyRowsHaveTheBitsOfFew) {
  constexpr int64_t kIn = 320;
  constexpr int64_t kOut = 32;
  constexpr int64_t kRows = 144;
  const std::array<int64_t, 1> ins = {kIn};
  GpuMatmul matmul(ins, DType::kF16, kRows);
  AlignedBytes weights = RandomWeights(kIn * kOut, DType::kF16, 3);
  GpuArray<uint16_t> weight({weights.words(), weights.words() + kIn * kOut}, stream());
  GpuArray<float> x(RandomFloats(kRows * kIn, 4), stream());
  GpuArray<std::byte> workspace(
      std::vector<std::byte>(static_cast<size_t>(GpuMatmulWorkspaceBytes(4 * kRows, kIn))),
      stream());
  const std::span<std::byte> scratch = {workspace.data(), workspace.host().size()};
  matmul.ChooseForManyRows(scratch, stream());
  const auto product = [&](int64_t first, int64_t rows) {
    GpuArray<float> y(std::vector<float>(static_cast<size_t>(rows * kOut), kPoison), stream());
    const std::array pieces = {
        MatmulPiece{weight.data(), DType::kF16, kOut, nullptr, y.data(), kOut, nullptr, 0}};
    matmul.MatmulAsync({x.data() + first * kIn, kIn, rows, kIn, Activation::kNone, pieces}, scratch,
                       stream());
    Finish();
    return y.Download();
  };
  std::vector<float> apart;
  for (int64_t first = 0; first < kRows; first += 48) {
    const std::vector<float> some = product(first, 48);
    apart.insert(apart.end(), some.begin(), some.end());
  }
  EXPECT_EQ(Bits(product(0, kRows)), Bits(apart));
}

// The last step of products of 16-bit weights, on rows that are longer than what is finished.
class FinishTest : public GpuTest {
 protected:
  static constexpr int64_t kRows = 3;
  static constexpr int64_t kStride = 1044;
  static constexpr int64_t kTimesStride = 1048;

  struct Case {
    int64_t cols;
    Activation activation;
    bool multiplies;
  };

  // y [kRows, kStride], `offset` floats behind the begin of an allocation.
  std::vector<float> Run(const Case& of, int64_t offset) {
    std::vector<float> before(static_cast<size_t>(offset), kPoison);
    before.insert(before.end(), products_.begin(), products_.end());
    GpuArray<float> y(before, stream());
    GpuArray<float> bias(bias_, stream());
    GpuArray<float> times(times_, stream());
    FinishAsync({y.data() + offset, kStride, kRows, of.cols, bias.data(), of.activation,
                 of.multiplies ? times.data() : nullptr, kTimesStride},
                stream());
    Finish();
    y.Download();
    return {y.host().begin() + offset, y.host().end()};
  }

  // [kRows, cols] in 16 bits, `offset` numbers behind the begin of an allocation; y is finished
  // first where `in_two_steps` says so.
  std::vector<uint16_t> Rounded(const Case& of, int64_t offset, DType dtype, bool in_two_steps) {
    GpuArray<float> y(products_, stream());
    GpuArray<float> bias(bias_, stream());
    GpuArray<float> times(times_, stream());
    const auto count = static_cast<size_t>(offset + kRows * of.cols);
    GpuArray<uint16_t> rounded(std::vector<uint16_t>(count), stream());
    const FinishArgs finish = {y.data(),
                               kStride,
                               kRows,
                               of.cols,
                               bias.data(),
                               of.activation,
                               of.multiplies ? times.data() : nullptr,
                               kTimesStride};
    if (in_two_steps) {
      FinishAsync(finish, stream());
      RoundRowsAsync({y.data(), kStride, kRows, of.cols, rounded.data() + offset, dtype}, stream());
    } else {
      RoundFinishedAsync({finish, rounded.data() + offset, of.cols, dtype}, stream());
    }
    Finish();
    rounded.Download();
    return {rounded.host().begin() + offset, rounded.host().end()};
  }

  // Products of nothing, for which the oracle finishes the bias.
  std::vector<float> Expected(const Case& of) const {
    std::vector<float> y = products_;
    const std::vector<uint16_t> weights(kStride);
    const float x = 0.0F;
    for (int64_t row = 0; row < kRows; ++row) {
      std::vector<float> sums;
      for (int64_t col = 0; col < of.cols; ++col)
        sums.push_back(products_[static_cast<size_t>(row * kStride + col)] +
                       bias_[static_cast<size_t>(col)]);
      const float* times = of.multiplies ? times_.data() + row * kTimesStride : nullptr;
      const MatmulPiece piece = {
          weights.data(), DType::kF16, of.cols, sums.data(), y.data() + row * kStride,
          kStride,        nullptr,     0,       times,       kTimesStride};
      MatmulRef({&x, 1, 1, 1, of.activation, {&piece, 1}});
    }
    return y;
  }

  std::vector<float> products_ = RandomFloats(kRows * kStride, 9);
  std::vector<float> bias_ = RandomFloats(kStride, 10);
  std::vector<float> times_ = RandomFloats(kRows * kTimesStride, 11);
};

// Whole vectors of floats and single ones give the same bits.
TEST_F(FinishTest, AgreesWithTheOracleWhateverTheAlignment) {
  for (const Activation activation :
       {Activation::kNone, Activation::kRelu, Activation::kGelu, Activation::kGeluTanh,
        Activation::kSilu, Activation::kClampedSwish, Activation::kClampedOffset}) {
    for (const int64_t cols : {4, 1040, 1041}) {
      for (const bool multiplies : {false, true}) {
        const Case of = {cols, activation, multiplies};
        const std::vector<float> y = Run(of, 0);
        ExpectAllNear(y, Expected(of), 1e-5F);
        EXPECT_EQ(Bits(Run(of, 1)), Bits(y)) << cols;
        EXPECT_EQ(Bits(Run(of, 2)), Bits(y)) << cols;
      }
    }
  }
}

TEST_F(FinishTest, RoundsInOneStepToTheBitsOfTwo) {
  for (const int64_t cols : {int64_t{1}, int64_t{1040}, int64_t{1042}}) {
    for (const Activation activation : {Activation::kNone, Activation::kRelu, Activation::kSilu}) {
      for (const DType dtype : {DType::kF16, DType::kBF16}) {
        const Case of = {cols, activation, activation == Activation::kSilu};
        const std::vector<uint16_t> expected = Rounded(of, 0, dtype, true);
        for (const int64_t offset : {0, 1, 4}) {
          EXPECT_EQ(Rounded(of, offset, dtype, false), expected) << cols << " at " << offset;
        }
      }
    }
  }
}

// A product with one weight matrix, which MatmulTest::Run cuts into pieces as tiers do.
struct Product {
  int64_t in;
  int64_t out;
  DType dtype;
  Activation activation;
  bool adds;  // to y
  bool multiplies = false;
};

class MatmulTest : public GpuTest {
 protected:
  // y [rows, out], computed on the GPU in pieces that end at `cuts`.
  std::vector<float> Run(const Product& p, int64_t rows, const std::vector<int64_t>& cuts) {
    const Data data = Make(p, rows);
    GpuArray<uint16_t> weight(data.weight, stream());
    GpuArray<float> x(data.x, stream());
    GpuArray<float> bias(data.bias, stream());
    GpuArray<float> y(data.y, stream());
    GpuArray<float> times(data.times, stream());
    GpuArray<std::byte> workspace(
        std::vector<std::byte>(static_cast<size_t>(GpuMatmulWorkspaceBytes(kMaxRows, p.in))),
        stream());
    std::vector<MatmulPiece> pieces;
    int64_t begin = 0;
    for (const int64_t end : cuts) {
      float* to = y.data() + begin;
      pieces.push_back({weight.data() + begin * p.in, p.dtype, end - begin, bias.data() + begin, to,
                        p.out, p.adds ? to : nullptr, p.adds ? p.out : 0,
                        p.multiplies ? times.data() + begin : nullptr, TimesStride(p)});
      begin = end;
    }
    const std::array<int64_t, 1> ins = {p.in};
    GpuMatmul matmul(ins, p.dtype, kMaxRows);
    matmul.ChooseForManyRows({workspace.data(), workspace.host().size()}, stream());
    matmul.MatmulAsync({x.data(), p.in, rows, p.in, p.activation, pieces},
                       {workspace.data(), workspace.host().size()}, stream());
    Finish();
    return y.Download();
  }

  struct Data {
    std::vector<uint16_t> weight;
    std::vector<float> x, bias, y, times;
  };
  static int64_t TimesStride(const Product& p) { return p.out + 4; }
  static Data Make(const Product& p, int64_t rows) {
    AlignedBytes weight = RandomWeights(p.in * p.out, p.dtype, 6);
    Data data;
    data.weight.assign(weight.words(), weight.words() + p.in * p.out);
    data.x = RandomFloats(kMaxRows * p.in, 7);
    data.x.resize(static_cast<size_t>(rows * p.in));
    data.bias = RandomFloats(p.out, 8);
    data.y = RandomFloats(rows * p.out, 9);
    data.times = RandomFloats(rows * TimesStride(p), 10, 0.25F);
    return data;
  }

  // Pieces end at `cuts`.
  void ExpectAgreement(const Product& p, int64_t rows, const std::vector<int64_t>& cuts) {
    const Data data = Make(p, rows);
    std::vector<float> expected = data.y;
    const std::array pieces = {MatmulPiece{data.weight.data(), p.dtype, p.out, data.bias.data(),
                                           expected.data(), p.out, p.adds ? data.y.data() : nullptr,
                                           p.out, p.multiplies ? data.times.data() : nullptr,
                                           TimesStride(p)}};
    MatmulRef({data.x.data(), p.in, rows, p.in, p.activation, pieces});
    const std::vector<float> y = Run(p, rows, cuts);
    // x is rounded: half a unit in the last place of each factor, added up at random.
    const float unit = p.dtype == DType::kF16 ? 0x1p-11F : 0x1p-8F;
    const float bound = 6.0F * unit * 0.05F * std::sqrt(static_cast<float>(p.in)) + 1e-5F;
    for (size_t at = 0; at < y.size(); ++at) ASSERT_NEAR(y[at], expected[at], bound) << at;
  }

  static constexpr int64_t kMaxRows = 512;
};

TEST_F(MatmulTest, AgreesWithTheOracle) {
  for (const DType dtype : {DType::kF16, DType::kBF16}) {
    for (const Product& p : {Product{256, 1024, dtype, Activation::kRelu, false},
                             Product{1024, 256, dtype, Activation::kNone, true},
                             Product{2560, 64, dtype, Activation::kGelu, false},
                             Product{512, 96, dtype, Activation::kSilu, false},
                             Product{4096, 4096, dtype, Activation::kGeluTanh, false}}) {
      for (const int64_t rows : {1, 3, 64, 200}) ExpectAgreement(p, rows, {p.out});
    }
  }
}

// What follows the library's product, on a GPU in software too.
using GatedTest = MatmulTest;

TEST_F(GatedTest, AgreesWithTheOracle) {
  for (const DType dtype : {DType::kF16, DType::kBF16}) {
    for (const Activation activation : {Activation::kNone, Activation::kSilu}) {
      const Product p = {160, 96, dtype, activation, false, true};
      for (const int64_t rows : {1, 3, 130}) ExpectAgreement(p, rows, {16, 36, 96});
    }
  }
}

TEST_F(MatmulTest, ARowsBitsDependOnTheRowOnly) {
  const Product p = {1024, 512, DType::kF16, Activation::kNone, false};
  const std::vector<float> all = Run(p, kMaxRows, {p.out});
  for (const int64_t rows : {1, 2, 7, 16, 33, 64, 65, 129, 400}) {
    const std::vector<float> some = Run(p, rows, {p.out});
    EXPECT_EQ(Bits(some), Bits(std::span(all).first(some.size()))) << rows << " rows";
  }
}

TEST_F(MatmulTest, TilesGiveTheBitsOfTheWhole) {
  const Product p = {1024, 512, DType::kF16, Activation::kRelu, false};
  const std::vector<float> whole = Run(p, 30, {512});
  EXPECT_EQ(Bits(Run(p, 30, {16, 128, 144, 512})), Bits(whole));
}

}  // namespace
}  // namespace spillway::kernels
