#include "kernels/matmul/matmul_fp32.h"
#include "kernels/simd/launch.cuh"
#include "spillway/error.h"

namespace spillway::kernels {
namespace {

constexpr int kWarps = 8;
constexpr int kThreads = kWarps * kWarp;
constexpr int kRows = 8;  // of a block, which has an output a lane
constexpr int kStep = 8;  // elements of x that a warp takes at once; the next are the next warp's

struct PieceArgs {
  const float* x;
  int64_t x_stride;
  int64_t rows;
  int64_t in;
  const void* weight;
  int64_t num_out;
  const float* bias;
  float* y;
  int64_t y_stride;
};

struct alignas(16) StepOfX {
  float at[kStep];
};

template <typename T>
struct alignas(16) StepOfWeights {
  T at[kStep];
};

template <typename T>
__device__ const T& StepAt(const void* at) {
  return *static_cast<const T*>(at);
}

__device__ int64_t AtMost(int64_t at, int64_t last) { return at < last ? at : last; }

// grid: (outputs, rows). A sum is made in parts, one a warp, which are added in their order.
template <typename T>
__global__ void __launch_bounds__(kThreads) MatmulFp32Kernel(const PieceArgs args) {
  __shared__ float parts[kWarps][kRows][kWarp];
  const int64_t first_row = static_cast<int64_t>(blockIdx.y) * kRows;
  const int64_t first_out = static_cast<int64_t>(blockIdx.x) * kWarp;
  const int lane = static_cast<int>(threadIdx.x % kWarp);
  const int warp = static_cast<int>(threadIdx.x / kWarp);
  // Outputs and rows behind the last are computed from the last, and not written.
  const int64_t out = AtMost(first_out + lane, args.num_out - 1);
  const T* weight = static_cast<const T*>(args.weight) + out * args.in;
  float sums[kRows] = {};
  for (int64_t begin = warp * kStep; begin < args.in; begin += kWarps * kStep) {
    const auto w = StepAt<StepOfWeights<T>>(weight + begin);
#pragma unroll
    for (int row = 0; row < kRows; ++row) {
      const int64_t x_row = AtMost(first_row + row, args.rows - 1);
      const auto x = StepAt<StepOfX>(args.x + x_row * args.x_stride + begin);
#pragma unroll
      for (int i = 0; i < kStep; ++i) sums[row] = __fmaf_rn(Widen(w.at[i]), x.at[i], sums[row]);
    }
  }
#pragma unroll
  for (int row = 0; row < kRows; ++row) parts[warp][row][lane] = sums[row];
  __syncthreads();
  if (first_row + warp >= args.rows || first_out + lane >= args.num_out) return;
  float sum = args.bias == nullptr ? 0.0F : args.bias[out];
  for (int part = 0; part < kWarps; ++part) sum = __fadd_rn(sum, parts[part][warp][lane]);
  args.y[(first_row + warp) * args.y_stride + out] = sum;
}
static_assert(kWarps == kRows);  // at the end a warp writes a row

bool IsAligned(const void* pointer) { return reinterpret_cast<uintptr_t>(pointer) % 16 == 0; }

}  // namespace

void MatmulFp32Async(const MatmulArgs& args, Stream& stream) {
  SPILLWAY_CHECK(args.in % kStep == 0 && args.x_stride % kStep == 0 && IsAligned(args.x));
  SPILLWAY_CHECK(args.activation == Activation::kNone);
  if (args.rows == 0) return;
  for (const MatmulPiece& piece : args.pieces) {
    SPILLWAY_CHECK(piece.residual == nullptr && piece.times == nullptr && IsAligned(piece.weight));
    const PieceArgs one = {args.x,        args.x_stride, args.rows, args.in,       piece.weight,
                           piece.num_out, piece.bias,    piece.y,   piece.y_stride};
    const dim3 grid(Blocks(piece.num_out, kWarp), Blocks(args.rows, kRows));
    const bool half = piece.weight_dtype == DType::kF16;
    SPILLWAY_CHECK(half || piece.weight_dtype == DType::kBF16);
    LaunchKernel(half ? MatmulFp32Kernel<__half> : MatmulFp32Kernel<__nv_bfloat16>, grid, kThreads,
                 one, stream, "matmul fp32 launch");
  }
}

}  // namespace spillway::kernels
