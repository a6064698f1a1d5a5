// CudaAttention: enqueues the attention of one chunk of tokens: appends K and V, attends to
// prompts, evicts what does not stay of them, attends to single tokens. Thread rule: one thread.
// Allocates nothing.
#pragma once

#include <cstdint>

#include "kernels/attention/prefill_attention.h"
#include "spillway/plan.h"
#include "src/compute/layer_args.h"
#include "src/cuda/stream.h"
#include "src/gpu/attention_lists.h"
#include "src/gpu/exchange.h"
#include "src/memory/arena.h"

namespace spillway {

// Buffers that a chunk's attention reads and writes, fp32 in GPU memory.
struct AttentionBuffers {
  float* qkv;       // [tokens, q + k + v]
  float* attended;  // [tokens, q]
  int64_t num_tokens;
};

class CudaAttention {
 public:
  // `device` is the GPU's arena, `scratch` lies in plan.exchange.device.
  // Lifetime: all of these outlive the object.
  CudaAttention(const Plan& plan, const Arena& device, const AttentionScratch& scratch,
                const LayerArgs& layer)
      : plan_(plan), device_(device), scratch_(scratch), layer_(layer) {}

  // Stream: some kernels. Throws: Error kGpu.
  void Attend(const spillway::Attend& op, const AttentionBuffers& buffers, const ChunkRows& chunk,
              Stream& stream) const;

  // Attends to the plan's prefix, a row of its own; its scores are [head][token]. Stream and throws
  // as Attend.
  void AttendPrefix(const spillway::Attend& op, const AttentionBuffers& buffers,
                    const ChunkRows& chunk, Stream& stream) const;

  // Attends to the reference prompt, with a cache of 16 bits. Stream and throws as Attend.
  void AttendReference(const spillway::Attend& op, const AttentionBuffers& buffers,
                       const ChunkRows& chunk, Stream& stream) const;

 private:
  kernels::PrefillAttentionArgs PrefillArgs(const spillway::Attend& op,
                                            const AttentionBuffers& buffers,
                                            const ChunkRows& chunk) const;
  void AttendPrompts(const kernels::PrefillAttentionArgs& prefill, const ChunkRows& chunk,
                     int64_t num_tokens, Stream& stream) const;
  void Decode(const kernels::PrefillAttentionArgs& prefill, const ChunkRows& chunk,
              Stream& stream) const;
  void EvictPrompts(const kernels::PrefillAttentionArgs& prefill, const ChunkRows& chunk,
                    Stream& stream) const;
  template <typename T>
  T* Scratch(const Region& region) const {
    return ExchangeAt<T>(plan_, device_, region);
  }

  const Plan& plan_;
  const Arena& device_;
  const AttentionScratch& scratch_;
  const LayerArgs& layer_;
};

}  // namespace spillway
