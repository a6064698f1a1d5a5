// KvAppend: rounds the new tokens' K and V to 16 bits, or encodes them (kernels/kv/kv_code.h, the
// same bytes as the CPU's), and stores them in their slots. GPU only: the CPU's Attention does it
// itself. Must run before the attention that reads them.
#pragma once

#include <cstdint>

#include "kernels/attention/attention.h"  // AttentionRow
#include "kernels/kv/kv_layout.h"
#include "spillway/dtype.h"

namespace spillway {
class Stream;
}

namespace spillway::kernels {

struct KvAppendArgs {
  const float* k = nullptr;  // [tokens, num_kv_heads * head_dim], stride qkv_stride
  const float* v = nullptr;
  int64_t qkv_stride = 0;
  int64_t num_tokens = 0;
  const AttentionRow* rows = nullptr;  // GPU memory; ascending. Tokens outside of them are skipped
  int64_t num_rows = 0;
  KvLayout layout;
  DType kv_dtype = DType::kF16;  // of 16 bits; not used below
};

// Stream: one kernel.
void KvAppendAsync(const KvAppendArgs& args, Stream& stream);

}  // namespace spillway::kernels
