#include "kernels/attention/head_reflection.h"
#include "kernels/simd/launch.cuh"
#include "spillway/error.h"
#include "spillway/kv_block.h"  // kKvGroup

namespace spillway::kernels {
namespace {

constexpr int kWarps = 4;
constexpr int kThreads = kWarps * kWarp;
constexpr int kLaneElements = static_cast<int>(kKvGroup) / kWarp;

// grid: (heads in blocks of warps, row). A warp reflects one head.
__global__ void __launch_bounds__(kThreads) ReflectKernel(const HeadReflectionArgs args) {
  const int64_t head = static_cast<int64_t>(blockIdx.x) * kWarps + threadIdx.x / kWarp;
  if (head >= args.num_heads) return;  // the whole warp
  const int64_t dim = args.head_dim;
  const float* v = args.reflectors + head / (args.num_heads / args.num_kv_heads) * dim;
  float* x = args.x + blockIdx.y * args.stride + head * dim;
  for (int64_t begin = 0; begin < dim; begin += kKvGroup) {
    const int64_t end = begin + kKvGroup < dim ? begin + kKvGroup : dim;
    float own[kLaneElements];
    float along = 0.0F;
#pragma unroll
    for (int n = 0; n < kLaneElements; ++n) {
      const int64_t d = begin + n * kWarp + threadIdx.x % kWarp;
      own[n] = d < end ? v[d] : 0.0F;
      along = fmaf(own[n], d < end ? x[d] : 0.0F, along);
    }
    along = SumOverLanes<kWarp>(along);
#pragma unroll
    for (int n = 0; n < kLaneElements; ++n) {
      const int64_t d = begin + n * kWarp + threadIdx.x % kWarp;
      if (d < end) x[d] = fmaf(-along, own[n], x[d]);
    }
  }
}

// A group of one KV head's dimensions, with a thread of the block for each. Once for each layer of
// a run, so every thread computes the sums by itself.
struct HeadGroup {
  int64_t first;  // of all KV heads' dimensions
  int64_t size;

  __device__ HeadGroup(int64_t head_dim) {
    const int64_t begin = blockIdx.y * kKvGroup;
    first = blockIdx.x * head_dim + begin;
    size = head_dim - begin < kKvGroup ? head_dim - begin : kKvGroup;
  }
};

// grid: (KV head, group).
__global__ void __launch_bounds__(kKvGroup) AddKeyDirectionsKernel(const KeyDirectionArgs args) {
  const HeadGroup group(args.head_dim);
  if (threadIdx.x >= group.size) return;
  double sum = args.common[group.first + threadIdx.x];
  for (int64_t row = 0; row < args.rows; ++row) {
    const float* key = args.keys + row * args.stride + group.first;
    double squares = 0.0;
    for (int64_t d = 0; d < group.size; ++d) squares += static_cast<double>(key[d]) * key[d];
    if (squares != 0.0) sum += key[threadIdx.x] / sqrt(squares);
  }
  args.common[group.first + threadIdx.x] = sum;
}

// MakeReflectors on the GPU. grid: (KV head, group).
__global__ void __launch_bounds__(kKvGroup) MakeReflectorsKernel(const ReflectorArgs args) {
  const HeadGroup group(args.head_dim);
  double* common = args.common + group.first;
  double squares = 0.0;
  double sum = 0.0;
  for (int64_t d = 0; d < group.size; ++d) {
    squares += common[d] * common[d];
    sum += common[d];
  }
  const bool is_there = threadIdx.x < group.size;
  const double own = is_there ? common[threadIdx.x] : 0.0;
  __syncthreads();  // all have read
  if (!is_there) return;
  common[threadIdx.x] = 0.0;
  float reflector = 0.0F;
  if (squares > 0.0 && squares < static_cast<double>(INFINITY)) {
    const double length = sqrt(squares);
    const double root = sqrt(static_cast<double>(group.size));
    const double scale = 1.0 / sqrt(1.0 + fabs(sum) / length / root);
    reflector = static_cast<float>(scale * (own / length + copysign(1.0 / root, sum)));
  }
  args.reflectors[group.first + threadIdx.x] = reflector;
}

dim3 GroupGrid(int64_t num_kv_heads, int64_t head_dim) {
  return {static_cast<unsigned>(num_kv_heads), static_cast<unsigned>(KvGroups(head_dim))};
}

}  // namespace

void ReflectHeadsAsync(const HeadReflectionArgs& args, Stream& stream) {
  SPILLWAY_CHECK(args.num_kv_heads > 0 && args.num_heads % args.num_kv_heads == 0);
  if (args.rows == 0) return;
  const dim3 grid(Blocks(args.num_heads, kWarps), static_cast<unsigned>(args.rows));
  LaunchKernel(ReflectKernel, grid, kThreads, args, stream, "head_reflection launch");
}

void AddKeyDirectionsAsync(const KeyDirectionArgs& args, Stream& stream) {
  LaunchKernel(AddKeyDirectionsKernel, GroupGrid(args.num_kv_heads, args.head_dim), kKvGroup, args,
               stream, "key directions launch");
}

void MakeReflectorsAsync(const ReflectorArgs& args, Stream& stream) {
  LaunchKernel(MakeReflectorsKernel, GroupGrid(args.num_kv_heads, args.head_dim), kKvGroup, args,
               stream, "reflectors launch");
}

}  // namespace spillway::kernels
