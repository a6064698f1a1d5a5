#include "src/gpu/cuda_attention.h"

#include "kernels/attention/budget_attention.h"
#include "kernels/attention/decode_attention.h"
#include "kernels/attention/kv_append.h"
#include "kernels/attention/kv_compact.h"
#include "kernels/attention/kv_copy.h"

namespace spillway {

// Attends to prompts, then to single tokens.
void CudaAttention::Attend(const spillway::Attend& op, const AttentionBuffers& buffers,
                           const ChunkRows& chunk, Stream& stream) const {
  const kernels::PrefillAttentionArgs prefill = PrefillArgs(op, buffers, chunk);
  AttendPrompts(prefill, chunk, buffers.num_tokens, stream);
  if (!plan_.kept.evicts()) return Decode(prefill, chunk, stream);
  EvictPrompts(prefill, chunk, stream);
  kernels::BudgetAttentionAsync(
      {layer_.Budget(op, buffers.qkv, buffers.attended, chunk.budget_rows),
       Scratch<float>(scratch_.weights), scratch_.weights_stride,
       Scratch<int32_t>(scratch_.turn_rows)},
      stream);
}

void CudaAttention::AttendPrefix(const spillway::Attend& op, const AttentionBuffers& buffers,
                                 const ChunkRows& chunk, Stream& stream) const {
  const kernels::PrefillAttentionArgs prefill = PrefillArgs(op, buffers, chunk);
  AttendPrompts(prefill, chunk, buffers.num_tokens, stream);
  kernels::PrefillScoresAsync(
      {prefill, chunk.key_tiles.data(), static_cast<int64_t>(chunk.key_tiles.size()),
       plan_.prefix.num_tokens()},
      stream);
}

void CudaAttention::AttendReference(const spillway::Attend& op, const AttentionBuffers& buffers,
                                    const ChunkRows& chunk, Stream& stream) const {
  const ModelShape& shape = plan_.shape;
  kernels::PrefillAttentionArgs args = PrefillArgs(op, buffers, chunk);
  args.layout = kernels::FullKvLayout(shape.num_kv_heads, shape.head_dim);
  args.kv_dtype = DType::kF16;
  args.means = {};
  AttendPrompts(args, chunk, buffers.num_tokens, stream);
}

kernels::PrefillAttentionArgs CudaAttention::PrefillArgs(const spillway::Attend& op,
                                                         const AttentionBuffers& buffers,
                                                         const ChunkRows& chunk) const {
  const kernels::AttentionTensors plain = layer_.Tensors(op, buffers.qkv, buffers.attended);
  kernels::PrefillAttentionArgs args;
  args.q = plain.q;
  args.q_stride = plain.qkv_stride;
  args.out = plain.out;
  args.out_stride = plain.out_stride;
  args.log_sums = Scratch<float>(scratch_.log_sums);
  args.rows = chunk.rows.data();
  args.tiles = chunk.tiles.data();
  args.num_tiles = static_cast<int64_t>(chunk.tiles.size());
  args.num_heads = plain.num_heads;
  args.layout =
      kernels::FullKvLayout(plain.num_kv_heads, plain.head_dim, plain.kv_bits, plain.kv_block_fill);
  args.scale = plain.scale;
  args.soft_cap = plain.soft_cap;
  args.sinks = plain.sinks;
  args.window = op.window;
  args.kv_dtype = plain.kv_dtype;
  args.turns = plain.turns;
  args.means = plain.means;
  return args;
}

void CudaAttention::AttendPrompts(const kernels::PrefillAttentionArgs& prefill,
                                  const ChunkRows& chunk, int64_t num_tokens,
                                  Stream& stream) const {
  const int64_t kv = plan_.shape.num_kv_heads * plan_.shape.head_dim;
  const float* k = prefill.q + prefill.out_stride;
  for (const std::span<const kernels::AttentionRow> rows : {chunk.rows, chunk.stored_rows}) {
    kernels::KvAppendAsync({k, k + kv, prefill.q_stride, num_tokens, rows.data(),
                            static_cast<int64_t>(rows.size()), prefill.layout, prefill.kv_dtype},
                           stream);
  }
  kernels::CopyKvAsync(chunk.shared_runs, stream);
  kernels::PrefillAttentionAsync(prefill, stream);
}

void CudaAttention::Decode(const kernels::PrefillAttentionArgs& prefill, const ChunkRows& chunk,
                           Stream& stream) const {
  kernels::DecodeAttentionAsync(
      {prefill.q, prefill.q_stride, prefill.out, prefill.out_stride, prefill.rows,
       chunk.items.data(), static_cast<int64_t>(chunk.items.size()),
       Scratch<float>(scratch_.partials), prefill.num_heads, prefill.layout, prefill.scale,
       prefill.soft_cap, prefill.sinks, prefill.kv_dtype, prefill.means},
      stream);
}

// Compacts the prompts that end here into their rows' caches.
void CudaAttention::EvictPrompts(const kernels::PrefillAttentionArgs& prefill,
                                 const ChunkRows& chunk, Stream& stream) const {
  const ModelShape& shape = plan_.shape;
  const PromptKvPlan& prompt = plan_.workspace.prompt;
  kernels::PrefillScoresAsync({prefill, chunk.key_tiles.data(),
                               static_cast<int64_t>(chunk.key_tiles.size()), prompt.columns()},
                              stream);
  kernels::KvCompactAsync(
      {{chunk.compact_rows, plan_.kept.kind, prompt.columns(), shape.num_heads, shape.num_kv_heads,
        shape.head_dim, plan_.policy.kv_bits, plan_.RunHeads(), plan_.kv_block_fill},
       prompt.columns(),
       Scratch<float>(scratch_.compact_scores),
       Scratch<int32_t>(scratch_.compact_kept)},
      stream);
}

}  // namespace spillway
