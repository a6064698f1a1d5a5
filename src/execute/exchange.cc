#include "src/execute/exchange.h"

#include <algorithm>

#include "kernels/embedding.h"
#include "src/execute/table_writer.h"

namespace spillway {
namespace {

int64_t EmbeddingTableBytes(const Plan& plan) {
  int64_t bytes = 2 * TableBytes(plan.batch.prompt_tokens * int64_t{sizeof(int32_t)});
  for (const PlannedTensor& tensor : plan.layers.front().tensors) {
    bytes +=
        TableBytes(static_cast<int64_t>(tensor.tiles.size() * sizeof(kernels::EmbeddingPiece)));
  }
  return bytes;
}

}  // namespace

AttentionLimits ChunkLimits(const Plan& plan) {
  return {plan.batch.rows, plan.workspace.chunk_tokens, plan.batch.slots};
}

ExchangeLayout LayOutExchange(const Plan& plan) {
  // Each tier's share of the tokens is cut on its own.
  const int64_t num_chunks = plan.batch.prompt_tokens / plan.workspace.chunk_tokens + 3;
  const AttentionLimits pass = {plan.batch.rows, plan.batch.prompt_tokens, plan.batch.slots};
  ExchangeLayout layout;
  layout.table_bytes =
      std::max({EmbeddingTableBytes(plan), AttentionLists::MaxBytes(pass, num_chunks),
                TableBytes(plan.batch.rows * int64_t{sizeof(float*)})});
  layout.table_bytes = TableBytes(layout.table_bytes);
  layout.partials_bytes = TableBytes(
      kernels::MaxDecodeItems(plan.batch.rows, plan.batch.slots) *
      kernels::PartialFloats(plan.shape.num_heads, plan.shape.head_dim) * int64_t{sizeof(float)});
  layout.logits_bytes =
      TableBytes(plan.batch.rows * plan.shape.vocab_size * int64_t{sizeof(float)});
  return layout;
}

ExchangeBytes ExchangeBytesOf(const Plan& plan) {
  const ExchangeLayout layout = LayOutExchange(plan);
  return {layout.table_bytes + layout.partials_bytes,
          kHostTables * layout.table_bytes + layout.logits_bytes};
}

}  // namespace spillway
