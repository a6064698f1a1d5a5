#include <fmt/core.h>

#include <numeric>
#include <span>
#include <utility>
#include <vector>

#include "benchmarks/kernels/subjects.h"
#include "kernels/convert/convert.h"
#include "kernels/rows/norm.h"
#include "kernels/rows/random_fill.h"
#include "kernels/rows/rotate.h"
#include "kernels/rows/soft_cap.h"

namespace spillway::kernels {
namespace {

void BenchConversions(Bench& bench) {
  const int64_t count = bench.options().quick ? int64_t{32} << 20 : int64_t{256} << 20;
  const Bytes wide_bytes = RandomBytes(count, DType::kF32);
  const Bytes narrow_bytes = RandomBytes(count, DType::kF16);
  const std::span<std::byte> wide(wide_bytes.get(), static_cast<size_t>(count * 4));
  const std::span<std::byte> narrow(narrow_bytes.get(), static_cast<size_t>(count * 2));
  const auto print = [&](const char* op, int64_t element_bytes, const auto& work) {
    bench.Print({.op = op,
                 .shape = fmt::format("{} Mi, 1 thread", count >> 20),
                 .seconds = bench.BestSeconds(work),
                 .bytes = static_cast<double>(element_bytes * count)});
  };
  print("fp32->fp16", 6, [&] { Convert(wide, DType::kF32, narrow, DType::kF16); });
  print("fp16->fp32", 6, [&] { Convert(narrow, DType::kF16, wide, DType::kF32); });
  print("fp32->bf16", 6, [&] { Convert(wide, DType::kF32, narrow, DType::kBF16); });
  print("find fp16", 2, [&] { FindNonFinite(narrow, DType::kF16); });
  print("fill fp16", 2, [&] { FillUniform(narrow, DType::kF16, 1, 0, 1.0F); });
}

void BenchNorms(Bench& bench) {
  constexpr int64_t kRows = 512;
  constexpr int64_t kCols = 2048;
  constexpr int64_t kHeadDim = 128;
  const Bytes bytes = RandomBytes(kRows * kCols, DType::kF32);
  auto* x = reinterpret_cast<float*>(bytes.get());
  const auto print = [&](const char* op, const auto& work) {
    bench.Print({.op = op,
                 .shape = "512 x 2048, in place",
                 .rows = kRows,
                 .seconds = bench.BestSeconds(work),
                 .bytes = kRows * kCols * 8});
  };
  for (const auto& [op, kind] :
       {std::pair{"layer norm", NormKind::kLayer}, {"rms norm", NormKind::kRms}}) {
    NormArgs args{x, kCols, x, kCols, kRows, kCols};
    args.kind = kind;
    print(op, [&] { Norm(args, bench.pool(), bench.options().isa); });
  }
  const Bytes states = RandomBytes(kRows * kCols, DType::kF32);
  NormArgs added{x, kCols, x, kCols, kRows, kCols};
  added.kind = NormKind::kRms;
  added.plus = reinterpret_cast<const float*>(states.get());
  added.plus_stride = kCols;
  print("norm, added", [&] { Norm(added, bench.pool(), bench.options().isa); });
  const HeadNormArgs heads{x, kCols, kRows, kCols / kHeadDim, kHeadDim};
  print("head norm", [&] { HeadNorm(heads, bench.pool(), bench.options().isa); });
}

// Logits of 4 rows of Gemma 2.
void BenchSoftCaps(Bench& bench) {
  constexpr int64_t kCount = int64_t{4} * 256000;
  const Bytes x = RandomBytes(kCount, DType::kF32);
  const SoftCapArgs args{reinterpret_cast<float*>(x.get()), kCount, 30.0F};
  bench.Print(
      {.op = "soft cap",
       .shape = "4 x 256000, in place",
       .rows = 4,
       .seconds = bench.BestSeconds([&] { SoftCap(args, bench.pool(), bench.options().isa); }),
       .bytes = kCount * 8});
}

// 32 query heads and 8 key heads side by side.
void BenchRotations(Bench& bench) {
  constexpr int32_t kRows = 512;
  constexpr int64_t kHeads = 40;
  constexpr int64_t kHeadDim = 128;
  constexpr int64_t kCols = kHeads * kHeadDim;
  const Bytes x = RandomBytes(kRows * kCols, DType::kF32);
  const Bytes frequencies = RandomBytes(kHeadDim / 2, DType::kF32);
  std::vector<int32_t> positions(kRows);
  std::iota(positions.begin(), positions.end(), 0);
  for (const auto& [op, pairs] :
       {std::pair{"rotate half", RopePairs::kHalves}, {"rotate near", RopePairs::kNeighbours}}) {
    const RotateArgs args{reinterpret_cast<float*>(x.get()),
                          kCols,
                          kRows,
                          kHeads,
                          kHeadDim,
                          positions.data(),
                          reinterpret_cast<const float*>(frequencies.get()),
                          kHeadDim,
                          pairs};
    bench.Print(
        {.op = op,
         .shape = "512 x 40 x 128",
         .rows = kRows,
         .seconds = bench.BestSeconds([&] { Rotate(args, bench.pool(), bench.options().isa); }),
         .bytes = kRows * kCols * 8});
  }
}

}  // namespace

void BenchRows(Bench& bench) {
  BenchConversions(bench);
  BenchNorms(bench);
  BenchSoftCaps(bench);
  BenchRotations(bench);
}

}  // namespace spillway::kernels
