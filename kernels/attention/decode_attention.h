// Attention of one new token a row, over all of its slots, on the GPU. Bound by the bandwidth at
// which K and V are read: 16 bytes a lane and load, each key's dot product in a few lanes, and a
// row's keys in splits of kSplitSlots slots, so that few long rows fill the GPU too.
// A row's bits depend on its own cache only: splits are fixed and combined in their order.
// The oracle is AttentionRef (kernels/attention/attention.h); KvAppend has stored the new token
// before.
#pragma once

#include <cstdint>

#include "kernels/attention/attention.h"  // AttentionRow
#include "kernels/kv/kv_layout.h"
#include "spillway/dtype.h"

namespace spillway {
class Stream;
}

namespace spillway::kernels {

// Pointers are to GPU memory.
struct DecodeAttentionArgs {
  const float* q = nullptr;  // [tokens, num_heads * head_dim], stride q_stride; not yet scaled
  int64_t q_stride = 0;
  float* out = nullptr;  // [tokens, num_heads * head_dim], stride out_stride
  int64_t out_stride = 0;
  const AttentionRow* rows = nullptr;  // num_new == 1 each
  const DecodeItem* items = nullptr;   // every split of every row
  int64_t num_items = 0;
  float* partials = nullptr;  // num_items * PartialFloats(num_heads, head_dim)
  int64_t num_heads = 0;
  KvLayout layout;  // head_dim: a multiple of 8, at most kMaxGpuHeadDim
  float scale = 1.0F;
  float soft_cap = 0.0F;         // as in AttentionTensors
  const float* sinks = nullptr;  // likewise
  DType kv_dtype = DType::kF16;
  KeyMeans means = {};  // as in AttentionTensors
};

inline constexpr int64_t kMaxGpuHeadDim = 256;

// Stream: two kernels.
void DecodeAttentionAsync(const DecodeAttentionArgs& args, Stream& stream);

}  // namespace spillway::kernels
