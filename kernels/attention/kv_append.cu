#include "kernels/attention/kv_append.h"
#include "kernels/kv/kv_vectors.cuh"
#include "kernels/simd/launch.cuh"

namespace spillway::kernels {
namespace {

constexpr int kThreads = 128;

// One block a token.
template <typename Format>
__global__ void __launch_bounds__(kThreads) KvAppendKernel(const KvAppendArgs args) {
  const int64_t token = blockIdx.x;
  const AttentionRow& row = args.rows[RowOfToken(args.rows, args.num_rows, token)];
  const int64_t in_row = token - row.token_offset;
  if (in_row < 0 || in_row >= row.num_new) return;
  const float* k = args.k + token * args.qkv_stride;
  const float* v = args.v + token * args.qkv_stride;
  TokenStore<Format, kThreads>{
      row.kv, args.layout, row.num_past - row.prefix_slots + in_row, 0, args.layout.num_kv_heads, k,
      v}
      .Run();
}

}  // namespace

void KvAppendAsync(const KvAppendArgs& args, Stream& stream) {
  if (args.num_tokens == 0 || args.num_rows == 0) return;
  const auto blocks = static_cast<unsigned>(args.num_tokens);
  WithFormat(args.kv_dtype, args.layout.bits, [&](auto format) {
    LaunchKernel(KvAppendKernel<decltype(format)>, blocks, kThreads, args, stream,
                 "kv_append launch");
  });
}

}  // namespace spillway::kernels
