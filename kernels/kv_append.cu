#include "kernels/kv_append.h"
#include "kernels/launch.cuh"

namespace spillway::kernels {
namespace {

constexpr int kThreads = 128;

// One block a token.
template <typename T>
__global__ void __launch_bounds__(kThreads) KvAppendKernel(const KvAppendArgs args) {
  const int64_t token = blockIdx.x;
  const AttentionRow& row = args.rows[RowOfToken(args.rows, args.num_rows, token)];
  const int64_t in_row = token - row.token_offset;
  if (in_row < 0 || in_row >= row.num_new) return;
  const int64_t slot = row.num_past + in_row;
  const int64_t dim = args.layout.head_dim;
  const int64_t width = args.layout.num_kv_heads * dim;
  for (int64_t at = threadIdx.x; at < 2 * width; at += kThreads) {
    const KvPart part = at < width ? KvPart::kKey : KvPart::kValue;
    const int64_t col = part == KvPart::kKey ? at : at - width;
    const float value = (part == KvPart::kKey ? args.k : args.v)[token * args.qkv_stride + col];
    T* to = reinterpret_cast<T*>(row.kv + KvOffset(args.layout, part, col / dim, slot));
    to[col % dim] = Narrow<T>(value);
  }
}

}  // namespace

void KvAppendAsync(const KvAppendArgs& args, Stream& stream) {
  if (args.num_tokens == 0 || args.num_rows == 0) return;
  const auto blocks = static_cast<unsigned>(args.num_tokens);
  if (args.kv_dtype == DType::kF16) {
    KvAppendKernel<__half><<<blocks, kThreads, 0, stream.get()>>>(args);
  } else {
    KvAppendKernel<__nv_bfloat16><<<blocks, kThreads, 0, stream.get()>>>(args);
  }
  CheckLaunch("kv_append launch");
}

}  // namespace spillway::kernels
