#include "kernels/convert/packed_group.cuh"
#include "kernels/matmul/matmul_packed.h"
#include "kernels/simd/activate.cuh"
#include "kernels/simd/mma_index.h"
#include "spillway/error.h"

namespace spillway::kernels {
namespace {

constexpr int kMmaOuts = 16;  // matrix rows of an mma
constexpr int kMmaRows = 8;   // rows of x
constexpr int kXGroupVectors = kXGroupWords / 4;

constexpr int kPackThreads = 256;

// grid: (groups, row). A warp packs a group of a row.
template <DType kDType>
__global__ void __launch_bounds__(kPackThreads) PackXKernel(const PackXArgs args) {
  const int groups = NumGroups(args.in);
  const int group = static_cast<int>((blockIdx.x * kPackThreads + threadIdx.x) / kWarp);
  const int64_t row = blockIdx.y;
  if (group >= groups) return;
  const int lane = threadIdx.x % kWarp;
  const int step = lane / 8;
  const int half = lane / 4 % 2;
  const int quad_lane = lane % 4;
  const int64_t first =
      int64_t{group} * kGroupWeights + ColumnWeight(kDType, step, half, quad_lane);
  const float* x = args.x + row * args.x_stride;
  const float low = first < args.in ? x[first] : 0.0F;
  const float high = first + 1 < args.in ? x[first + 1] : 0.0F;
  uint32_t* packed = static_cast<uint32_t*>(args.packed) + (row * groups + group) * kXGroupWords;
  packed[XWord(row, step, half, quad_lane)] = NarrowPair<__half>(low, high);
}

// The last row or output stands in for those behind it: they are computed and not stored.
__device__ int64_t UpTo(int64_t index, int64_t count) { return index < count ? index : count - 1; }

template <DType kDType>
__device__ PackedRowPointers RowPointers(const PackedMatmulArgs& args, int64_t first_out) {
  const auto* weight = static_cast<const uint32_t*>(args.piece.weight);
  const int64_t row_words = int64_t{NumGroups(args.in)} * GroupWords(kDType);
  const int64_t low = first_out + threadIdx.x % kWarp / 4;
  return {weight + UpTo(low, args.piece.num_out) * row_words,
          weight + UpTo(low + 8, args.piece.num_out) * row_words};
}

__device__ void Store(const PackedMatmulArgs& args, int64_t row, int64_t out, float sum) {
  const MatmulPiece& piece = args.piece;
  if (row >= args.rows || out >= piece.num_out) return;
  const float bias = piece.bias != nullptr ? piece.bias[out] : 0.0F;
  float y = Activate(__fadd_rn(sum, bias), args.activation);
  if (piece.times != nullptr) y = __fmul_rn(y, piece.times[row * piece.times_stride + out]);
  if (piece.residual != nullptr) {
    y = __fadd_rn(y, piece.residual[row * piece.residual_stride + out]);
  }
  piece.y[row * piece.y_stride + out] = y;
}

// Few rows, as in decode: the weights are read once, as fast as memory gives them. A block computes
// 16 outputs of all rows; each of its warps a part of the sums, with this many groups in flight.
// Two blocks fit a processor's registers.
constexpr int kFewThreads = kSumParts * kWarp;
template <DType kDType, int kRowTiles>
constexpr int kFewAhead = (GroupHeadWords(kDType) > 2 ? 4 : 5) - kRowTiles;

template <DType kDType, int kRowTiles>
struct FewGroup {
  PackedRows<kDType> weights[1];
  uint4 x[kRowTiles][2];
};

template <DType kDType, int kRowTiles>
struct FewSource {
  PackedRowPointers weights;
  const uint4* x[kRowTiles][2];  // the lane's vectors of group 0

  __device__ explicit FewSource(const PackedMatmulArgs& args)
      : weights(RowPointers<kDType>(args, static_cast<int64_t>(blockIdx.x) * kMmaOuts)) {
    const int lane = threadIdx.x % kWarp;
    const int groups = NumGroups(args.in);
#pragma unroll
    for (int n = 0; n < kRowTiles; ++n) {
      const int64_t row = UpTo(n * kMmaRows + lane / 4, args.rows);
      const uint4* begin = static_cast<const uint4*>(args.x) + row * groups * kXGroupVectors;
#pragma unroll
      for (int pair = 0; pair < 2; ++pair) x[n][pair] = begin + XVector(row, pair, lane % 4);
    }
  }

  __device__ void Load(int group, FewGroup<kDType, kRowTiles>& to) const {
    weights.Load<kDType>(group, to.weights[0]);
#pragma unroll
    for (int n = 0; n < kRowTiles; ++n) {
#pragma unroll
      for (int pair = 0; pair < 2; ++pair) {
        to.x[n][pair] = __ldg(x[n][pair] + group * kXGroupVectors);
      }
    }
  }
};

template <DType kDType, int kRowTiles>
__device__ void SumPart(const PackedMatmulArgs& args, float (&sums)[1][kRowTiles][4]) {
  const int groups = NumGroups(args.in);
  const int part = threadIdx.x / kWarp;
  const int end = PartBegin(part + 1, groups);
  int group = PartBegin(part, groups);
  const FewSource<kDType, kRowTiles> source(args);
  constexpr int kAhead = kFewAhead<kDType, kRowTiles>;
  FewGroup<kDType, kRowTiles> ahead[kAhead];
#pragma unroll
  for (int slot = 0; slot < kAhead; ++slot) {
    if (group + slot < end) source.Load(group + slot, ahead[slot]);
  }
  for (; group < end; group += kAhead) {
#pragma unroll
    for (int slot = 0; slot < kAhead; ++slot) {
      if (group + slot >= end) break;
      MultiplyGroup<kDType, 1, kRowTiles>(
          ahead[slot].weights, [&](int n, int pair) { return ahead[slot].x[n][pair]; }, sums);
      if (group + slot + kAhead < end) source.Load(group + slot + kAhead, ahead[slot]);
    }
  }
}

// grid: 16 outputs.
template <DType kDType, int kRowTiles>
__global__ void __launch_bounds__(kFewThreads, 2) FewRowsKernel(const PackedMatmulArgs args) {
  constexpr int kSums = 4 * kRowTiles;  // of a lane
  static_assert(kSums * kWarp <= kFewThreads);
  __shared__ float parts[kSumParts][kSums][kWarp];
  float sums[1][kRowTiles][4] = {};
  SumPart<kDType, kRowTiles>(args, sums);
  const int lane = threadIdx.x % kWarp;
#pragma unroll
  for (int i = 0; i < kSums; ++i) parts[threadIdx.x / kWarp][i][lane] = sums[0][i / 4][i % 4];
  __syncthreads();
  const int i = threadIdx.x / kWarp;
  if (i >= kSums) return;
  float total = 0.0F;
#pragma unroll
  for (int part = 0; part < kSumParts; ++part) total += parts[part][i][lane];
  const TilePlace place = SumPlace(lane, i % 4);
  Store(args, i / 4 * kMmaRows + place.col, static_cast<int64_t>(blockIdx.x) * kMmaOuts + place.row,
        total);
}

// Many rows: a block computes 64 rows of x and 64 or 128 outputs, part by part. x comes through
// shared memory in stages of a group, weights straight to registers.
constexpr int kManyWarps = 4;
constexpr int kManyThreads = kManyWarps * kWarp;
constexpr int kManyRows = 64;
constexpr int kManyRowTiles = kManyRows / kMmaRows;
constexpr int kStages = 4;

struct XStage {
  uint4 vectors[kManyRows * kXGroupVectors];  // 8 KiB
};

__device__ unsigned StageOf(int group) { return static_cast<unsigned>(group) % kStages; }

// Begins to copy a group of the block's rows; those past the last one are zero.
__device__ void CopyX(const PackedMatmulArgs& args, int group, XStage& stage) {
  const int groups = NumGroups(args.in);
  const int64_t first_row = static_cast<int64_t>(blockIdx.x) * kManyRows;
#pragma unroll
  for (int at = threadIdx.x; at < kManyRows * kXGroupVectors; at += kManyThreads) {
    const int64_t row = first_row + at / kXGroupVectors;
    const bool is_there = row < args.rows;
    const uint4* from = static_cast<const uint4*>(args.x) +
                        ((is_there ? row : 0) * groups + group) * kXGroupVectors +
                        at % kXGroupVectors;
    CopyAsync16(&stage.vectors[at], from, is_there);
  }
}

template <DType kDType, int kOutTiles>
struct ManySums {
  float part[kOutTiles][kManyRowTiles][4] = {};
  float total[kOutTiles][kManyRowTiles][4] = {};

  __device__ void ClosePart() {
#pragma unroll
    for (int m = 0; m < kOutTiles; ++m) {
#pragma unroll
      for (int n = 0; n < kManyRowTiles; ++n) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          total[m][n][i] += part[m][n][i];
          part[m][n][i] = 0.0F;
        }
      }
    }
  }

  __device__ void Multiply(const PackedRows<kDType> (&weights)[kOutTiles], const XStage& stage) {
    const int row = threadIdx.x % kWarp / 4;  // its parity is that of all rows this lane reads
    const int vectors[2] = {XVector(row, 0, threadIdx.x % 4), XVector(row, 1, threadIdx.x % 4)};
    MultiplyGroup<kDType, kOutTiles, kManyRowTiles>(
        weights,
        [&](int n, int pair) {
          return stage.vectors[(n * kMmaRows + row) * kXGroupVectors + vectors[pair]];
        },
        part);
  }
};

template <int kOutTiles>
__device__ int64_t FirstOut() {
  const int64_t warp = static_cast<int64_t>(blockIdx.y) * kManyWarps + threadIdx.x / kWarp;
  return warp * kOutTiles * kMmaOuts;
}

template <DType kDType, int kOutTiles>
__device__ void SumAll(const PackedMatmulArgs& args, XStage* stages,
                       ManySums<kDType, kOutTiles>& sums) {
  constexpr int kAhead = kOutTiles == 1 ? 8 : 2;  // groups of weights in flight; registers end
  const int groups = NumGroups(args.in);
  PackedRowPointers from[kOutTiles];
#pragma unroll
  for (int m = 0; m < kOutTiles; ++m) {
    from[m] = RowPointers<kDType>(args, FirstOut<kOutTiles>() + m * kMmaOuts);
  }
  PackedRows<kDType> ahead[kAhead][kOutTiles];
  const auto load = [&](int group, PackedRows<kDType>(&to)[kOutTiles]) {
    if (group >= groups) return;
#pragma unroll
    for (int m = 0; m < kOutTiles; ++m) from[m].template Load<kDType>(group, to[m]);
  };
  // Every thread commits for every group, an empty copy too: the count says what has arrived.
  const auto copy = [&](int group) {
    if (group < groups) CopyX(args, group, stages[StageOf(group)]);
    CommitCopies();
  };
#pragma unroll
  for (int slot = 0; slot < kAhead; ++slot) load(slot, ahead[slot]);
  for (int group = 0; group < kStages - 1; ++group) copy(group);
  int part_end = PartEndOf(0, groups);
  for (int begin = 0; begin < groups; begin += kAhead) {
#pragma unroll
    for (int slot = 0; slot < kAhead; ++slot) {
      const int group = begin + slot;
      if (group >= groups) break;
      WaitForCopies<kStages - 2>();
      __syncthreads();  // the group is here for all, and all are done with the one before it
      copy(group + kStages - 1);
      sums.Multiply(ahead[slot], stages[StageOf(group)]);
      load(group + kAhead, ahead[slot]);
      if (group + 1 == part_end) {
        sums.ClosePart();
        part_end = PartEndOf(part_end, groups);
      }
    }
  }
}

// grid: (64 rows, outputs): blocks that run together read the same weights.
template <DType kDType, int kOutTiles>
__global__ void __launch_bounds__(kManyThreads, 2) ManyRowsKernel(const PackedMatmulArgs args) {
  alignas(16) __shared__ XStage stages[kStages];
  ManySums<kDType, kOutTiles> sums;
  SumAll<kDType, kOutTiles>(args, stages, sums);
  __syncthreads();
  // Sums pass through shared memory, so that the last step is a loop and not one copy of code for
  // each sum.
  constexpr int kSums = kOutTiles * kManyRowTiles * 4;
  static_assert(kSums * kManyThreads * sizeof(float) <= sizeof(stages));
  float* mine = reinterpret_cast<float*>(stages) + threadIdx.x;
#pragma unroll
  for (int i = 0; i < kSums; ++i) {
    mine[i * kManyThreads] = sums.total[i / 4 / kManyRowTiles][i / 4 % kManyRowTiles][i % 4];
  }
#pragma unroll 1
  for (int i = 0; i < kSums; ++i) {
    const TilePlace place = SumPlace(threadIdx.x % kWarp, i % 4);
    Store(
        args,
        static_cast<int64_t>(blockIdx.x) * kManyRows + i / 4 % kManyRowTiles * kMmaRows + place.col,
        FirstOut<kOutTiles>() + i / 4 / kManyRowTiles * kMmaOuts + place.row,
        mine[i * kManyThreads]);
  }
}

// Number of blocks of 128 outputs that occupies the largest GPUs; where there are fewer, twice as
// many blocks of 64 outputs run.
constexpr int64_t kManyBlocks = 256;

template <DType kDType, int kOutTiles>
void LaunchMany(const PackedMatmulArgs& args, Stream& stream) {
  const dim3 grid(Blocks(args.rows, kManyRows),
                  Blocks(args.piece.num_out, kManyWarps * kOutTiles * kMmaOuts));
  LaunchKernel(ManyRowsKernel<kDType, kOutTiles>, grid, kManyThreads, args, stream,
               "packed matmul launch");
}

template <DType kDType>
void Launch(const PackedMatmulArgs& args, Stream& stream) {
  const unsigned few_blocks = Blocks(args.piece.num_out, kMmaOuts);
  if (args.rows <= kMmaRows) {
    LaunchKernel(FewRowsKernel<kDType, 1>, few_blocks, kFewThreads, args, stream,
                 "packed matmul launch");
  } else if (args.rows <= 2 * kMmaRows) {
    LaunchKernel(FewRowsKernel<kDType, 2>, few_blocks, kFewThreads, args, stream,
                 "packed matmul launch");
  } else if (DivideUp(args.rows, kManyRows) *
                 DivideUp(args.piece.num_out, 2 * kManyWarps * kMmaOuts) >=
             kManyBlocks) {
    LaunchMany<kDType, 2>(args, stream);
  } else {
    LaunchMany<kDType, 1>(args, stream);
  }
}

}  // namespace

void PackXAsync(const PackXArgs& args, Stream& stream) {
  if (args.rows == 0) return;
  const dim3 grid(Blocks(DivideUp(args.in, kGroupWeights) * kWarp, kPackThreads),
                  static_cast<unsigned>(args.rows));
  // Only where codes lie counts.
  if (FormOf(args.weight_dtype) == FormOfX::kPackedFor8Bits) {
    LaunchKernel(PackXKernel<DType::kQ8>, grid, kPackThreads, args, stream,
                 "matmul packing launch");
  } else {
    LaunchKernel(PackXKernel<DType::kQ4>, grid, kPackThreads, args, stream,
                 "matmul packing launch");
  }
}

void PackedMatmulAsync(const PackedMatmulArgs& args, Stream& stream) {
  SPILLWAY_CHECK(IsQuantised(args.piece.weight_dtype));
  if (args.rows == 0 || args.piece.num_out == 0) return;
  WithQuantised(args.piece.weight_dtype, [&]<DType kType>() { Launch<kType>(args, stream); });
}

}  // namespace spillway::kernels
