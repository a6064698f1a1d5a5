#include "kernels/rows/host_rows.h"
#include "kernels/simd/launch.cuh"
#include "spillway/error.h"

namespace spillway::kernels {
namespace {

constexpr int kThreads = 256;
constexpr int kVectorFloats = 4;

struct RowVectors {
  uint4* on_gpu;
  uint4* on_host;
  int64_t count;
};

// One block a row.
__device__ RowVectors VectorsOf(const HostRowsArgs& args) {
  const int64_t row = blockIdx.x;
  const int64_t token = args.tokens.data()[row];
  return {reinterpret_cast<uint4*>(args.on_gpu + token * args.stride),
          reinterpret_cast<uint4*>(args.on_host + row * args.cols), args.cols / kVectorFloats};
}

__global__ void __launch_bounds__(kThreads) SendRowsKernel(const HostRowsArgs args) {
  const RowVectors row = VectorsOf(args);
  for (int64_t at = threadIdx.x; at < row.count; at += kThreads) row.on_host[at] = row.on_gpu[at];
}

__global__ void __launch_bounds__(kThreads) FetchRowsKernel(const HostRowsArgs args) {
  const RowVectors row = VectorsOf(args);
  for (int64_t at = threadIdx.x; at < row.count; at += kThreads) {
    row.on_gpu[at] = __ldcv(row.on_host + at);  // the host has written it since it was last read
  }
}

void Launch(void (*kernel)(HostRowsArgs), const HostRowsArgs& args, Stream& stream,
            const char* what) {
  SPILLWAY_CHECK(args.cols % kVectorFloats == 0 && args.stride % kVectorFloats == 0);
  if (args.tokens.empty()) return;
  LaunchKernel(kernel, static_cast<unsigned>(args.tokens.size()), kThreads, args, stream, what);
}

}  // namespace

void SendRowsAsync(const HostRowsArgs& args, Stream& stream) {
  Launch(SendRowsKernel, args, stream, "send_rows launch");
}

void FetchRowsAsync(const HostRowsArgs& args, Stream& stream) {
  Launch(FetchRowsKernel, args, stream, "fetch_rows launch");
}

}  // namespace spillway::kernels
