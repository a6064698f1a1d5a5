#include "src/execute/exchange.h"

#include <algorithm>

#include "kernels/embedding.h"
#include "spillway/reference_prompt.h"
#include "src/execute/reference_keys.h"
#include "src/execute/table_writer.h"

namespace spillway {
namespace {

int64_t EmbeddingTableBytes(const Plan& plan, int64_t tokens) {
  int64_t bytes = 2 * TableBytes(tokens * int64_t{sizeof(int32_t)});
  for (const PlannedTensor& tensor : plan.layers.front().tensors) {
    bytes +=
        TableBytes(static_cast<int64_t>(tensor.tiles.size() * sizeof(kernels::EmbeddingPiece)));
  }
  return bytes;
}

// The reference prompt's, which goes through a layer ahead of its first compute. A chunk may be one
// token.
int64_t ReferenceTableBytes(const Plan& plan) {
  if (plan.policy.kv_bits == 16) return 0;
  const int64_t tokens = ReferenceTokens(plan.shape);
  const AttentionLimits prompt = {1, tokens, ReferenceSlots(plan.shape), 0};
  return std::max(EmbeddingTableBytes(plan, tokens), AttentionLists::MaxBytes(prompt, tokens));
}

// Tokens of the longest prompt whose token scores are wanted.
int64_t LongestScored(const Plan& plan) {
  return plan.workspace.prompt.scores.bytes > 0 ? plan.longest.prompt_tokens : 0;
}

AttentionScratch LayOutScratch(const Plan& plan, int64_t begin) {
  AttentionScratch scratch;
  scratch.end = begin;
  const auto take = [&](int64_t floats) {
    const Region region = {scratch.end, floats * int64_t{sizeof(float)}};
    scratch.end += TableBytes(region.bytes);
    return region;
  };
  const ModelShape& shape = plan.shape;
  scratch.reference = take(DivideUp(ReferenceKeys::Bytes(plan), sizeof(float)));
  if (!plan.policy.kv.evicts()) {
    scratch.partials = take(kernels::MaxDecodeItems(plan.batch.rows, plan.batch.slots) *
                            kernels::PartialFloats(shape.num_heads, shape.head_dim));
    return scratch;
  }
  const int64_t prompt_slots = plan.workspace.prompt.slots();
  if (LongestScored(plan) > 0) {
    scratch.log_sums = take(plan.workspace.chunk_tokens * shape.num_heads);
  }
  scratch.compact_scores = take(shape.num_kv_heads * prompt_slots);
  scratch.compact_kept = take(shape.num_kv_heads * prompt_slots);
  scratch.weights_stride = plan.MostRowSlots(plan.longest.slots());
  scratch.weights = take(plan.batch.rows * shape.num_heads * scratch.weights_stride);
  return scratch;
}

}  // namespace

AttentionLimits ChunkLimits(const Plan& plan) {
  return {plan.batch.rows, plan.workspace.chunk_tokens, plan.batch.slots, LongestScored(plan)};
}

ExchangeLayout LayOutExchange(const Plan& plan) {
  // Each tier's share of the tokens is cut on its own.
  const int64_t num_chunks = plan.batch.prompt_tokens / plan.workspace.chunk_tokens + 3;
  const AttentionLimits pass = {plan.batch.rows, plan.batch.prompt_tokens, plan.batch.slots,
                                LongestScored(plan)};
  ExchangeLayout layout;
  layout.table_bytes = std::max({EmbeddingTableBytes(plan, plan.batch.prompt_tokens),
                                 AttentionLists::MaxBytes(pass, num_chunks),
                                 TableBytes(plan.batch.logits * int64_t{sizeof(float*)})});
  layout.table_bytes = TableBytes(layout.table_bytes + ReferenceTableBytes(plan));
  layout.scratch = LayOutScratch(plan, layout.table_bytes);
  layout.logits_bytes =
      TableBytes(plan.batch.logits * plan.shape.vocab_size * int64_t{sizeof(float)});
  return layout;
}

ExchangeBytes ExchangeBytesOf(const Plan& plan) {
  const ExchangeLayout layout = LayOutExchange(plan);
  return {layout.scratch.end, kHostTables * layout.table_bytes + layout.logits_bytes};
}

}  // namespace spillway
