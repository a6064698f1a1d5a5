#include "src/gpu/exchange.h"

#include <algorithm>

#include "kernels/matmul/matmul_workspace.h"
#include "kernels/rows/embedding.h"
#include "spillway/expert_gather.h"
#include "spillway/reference_prompt.h"
#include "spillway/round.h"
#include "src/compute/reference_keys.h"
#include "src/compute/rope_tables.h"
#include "src/gpu/host_attention.h"
#include "src/gpu/table_writer.h"
#include "src/memory/arena_layout.h"

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

// Bytes of what an attention layer that rotates reads: positions, frequencies, each token's table.
int64_t RotationTableBytes(const Plan& plan, int64_t tokens) {
  int64_t most = 0;
  for (const PlannedLayer& layer : plan.layers) {
    const Rope* rope = RopeOf(layer.ops);
    if (rope == nullptr) continue;
    const int64_t frequencies = RopeTables::MaxTables(plan, *rope) * rope->dims / 2;
    const int64_t bytes =
        TableBytes(frequencies * int64_t{sizeof(float)}) +
        TableBytes(RopeTables::MaxTokens(plan, *rope) * int64_t{sizeof(int32_t)}) +
        TableBytes(tokens * int64_t{sizeof(int32_t)});
    most = std::max(most, bytes);
  }
  return most;
}

// Bytes of the tables of the reference prompt, which goes through a layer ahead of its first
// compute. A chunk may be one token.
int64_t ReferenceTableBytes(const Plan& plan) {
  if (!plan.HasReference()) return 0;
  const int64_t tokens = ReferenceTokens(plan.shape);
  const AttentionLimits prompt = {1, tokens, ReferenceSlots(plan.shape), 0};
  return std::max(EmbeddingTableBytes(plan, tokens),
                  RotationTableBytes(plan, tokens) + AttentionLists::MaxBytes(prompt, tokens));
}

// Tokens of the longest prompt whose token scores are wanted.
int64_t LongestScored(const Plan& plan) {
  return plan.workspace.prompt.scores.bytes > 0 ? plan.longest.prompt_tokens : 0;
}

// Bytes of the tables of the prefix, likewise.
int64_t PrefixTableBytes(const Plan& plan) {
  const int64_t tokens = plan.prefix.num_tokens();
  if (tokens == 0) return 0;
  const int64_t num_chunks = DivideUp(tokens, plan.workspace.chunk_tokens);
  return std::max(
      EmbeddingTableBytes(plan, tokens),
      RotationTableBytes(plan, tokens) +
          AttentionLists::MaxBytes({1, tokens, tokens, LongestScored(plan)}, num_chunks));
}

// Slots that a batch's rows attend to.
int64_t AttendedSlots(const Plan& plan) {
  return plan.batch.slots + plan.batch.rows * plan.CachePrefix();
}

AttentionLimits LimitsOf(const Plan& plan, int64_t tokens) {
  const bool copies_scores = plan.prefix.scores.bytes > 0;
  return {plan.batch.rows,
          tokens,
          AttendedSlots(plan),
          LongestScored(plan),
          plan.KvRuns(),
          copies_scores ? plan.shape.num_heads : 1,
          copies_scores ? plan.prefix.num_tokens() : 0};
}

AttentionScratch LayOutScratch(const Plan& plan, ArenaLayout& device) {
  AttentionScratch scratch;
  const ModelShape& shape = plan.shape;
  scratch.reference = device.Take(ReferenceKeys::Bytes(plan));
  if (!plan.kept.evicts()) {
    scratch.partials =
        device.TakeFloats(kernels::MaxDecodeItems(plan.batch.rows, AttendedSlots(plan)),
                          kernels::PartialFloats(shape.num_heads, shape.head_dim));
    return scratch;
  }
  const int64_t columns = plan.workspace.prompt.columns();
  if (LongestScored(plan) > 0) {
    scratch.log_sums = device.TakeFloats(plan.workspace.chunk_tokens, shape.num_heads);
  }
  scratch.compact_scores = device.TakeFloats(shape.num_kv_heads, columns);
  scratch.compact_kept = device.TakeFloats(shape.num_kv_heads, columns);
  scratch.weights_stride = plan.MostRunSlots(plan.longest.slots());
  scratch.weights = device.TakeFloats(plan.batch.rows * shape.num_heads, scratch.weights_stride);
  if (plan.kept.rolls) {
    scratch.turn_rows =
        device.TakeFloats(plan.batch.rows * shape.num_kv_heads, scratch.weights_stride);
  }
  return scratch;
}

BesideLayout LayOutBeside(const Plan& plan, int64_t table_bytes, ArenaLayout& device,
                          ArenaLayout& host) {
  const ModelShape& shape = plan.shape;
  const int64_t q = WidthOf(shape, Buf::kAttended);
  const int64_t qkv = WidthOf(shape, Buf::kQkv);
  const int64_t chunk = plan.workspace.chunk_tokens;
  const int64_t rows = std::min(chunk, plan.batch.rows);  // with one token each
  BesideLayout beside;
  for (Region& table : beside.tables) table = device.Take(table_bytes);
  beside.normed = device.TakeFloats(chunk, shape.hidden_size);
  beside.qkv = device.TakeFloats(chunk, qkv);
  beside.matmul = device.Take(kernels::GpuMatmulWorkspaceBytes(chunk, shape.hidden_size));
  for (BesideLayout::Turn& turn : beside.turns) {
    turn.attended = device.TakeFloats(chunk, q);
    turn.host_qkv = host.TakeFloats(rows, qkv);
    turn.host_attended = host.TakeFloats(rows, q);
    if (shape.score_sinks) turn.host_sinks = host.TakeFloats(1, shape.num_heads);
  }
  beside.host_workspace = host.Take(HostAttention::WorkspaceBytes(plan));
  if (plan.centres_keys) {
    beside.host_means.of_layers =
        host.TakeFloats(shape.num_layers * shape.num_kv_heads, shape.head_dim);
    beside.host_means.span_turns = host.Take(plan.workspace.span_turns.bytes);
    beside.host_means.table = host.Take(plan.workspace.key_means.bytes);
  }
  return beside;
}

ExpertExchange LayOutExperts(const Plan& plan, ArenaLayout& device, ArenaLayout& host) {
  const int64_t tokens = MostGathered(plan);
  const int64_t choices = tokens * plan.shape.experts.slots();
  // The lists of all choices need as much as the addresses of all tokens, or more.
  const int64_t list_bytes =
      TableBytes(choices * int64_t{sizeof(float*)}) + TableBytes(choices * int64_t{sizeof(float)});
  ExpertExchange experts;
  experts.lists = device.Take(list_bytes);
  for (Region& lists : experts.host_lists) lists = host.Take(list_bytes);
  experts.host_choices = host.TakeFloats(tokens, WidthOf(plan.shape, Buf::kChoice));
  return experts;
}

}  // namespace

int64_t MaxChunks(const Plan& plan) {
  return plan.batch.prompt_tokens / plan.workspace.chunk_tokens + 3;
}

AttentionLimits ChunkLimits(const Plan& plan) {
  return LimitsOf(plan, plan.workspace.chunk_tokens);
}

ExchangeLayout LayOutExchange(const Plan& plan) {
  const AttentionLimits pass = LimitsOf(plan, plan.batch.prompt_tokens);
  ExchangeLayout layout;
  layout.table_bytes = std::max({EmbeddingTableBytes(plan, plan.batch.prompt_tokens),
                                 AttentionLists::MaxBytes(pass, MaxChunks(plan)) +
                                     RotationTableBytes(plan, plan.batch.prompt_tokens),
                                 TableBytes(plan.batch.logits * int64_t{sizeof(float*)})});
  layout.table_bytes =
      TableBytes(layout.table_bytes + ReferenceTableBytes(plan) + PrefixTableBytes(plan));
  ArenaLayout device(kTableAlignBytes);
  device.Take(layout.table_bytes);
  layout.scratch = LayOutScratch(plan, device);
  layout.logits_bytes =
      TableBytes(plan.batch.logits * plan.shape.vocab_size * int64_t{sizeof(float)});
  ArenaLayout host(kTableAlignBytes);
  host.Take(kHostTables * layout.table_bytes + layout.logits_bytes);
  if (plan.AttendsBeside()) {
    layout.beside = LayOutBeside(plan, layout.table_bytes, device, host);
  }
  if (plan.shape.experts.num > 0) layout.experts = LayOutExperts(plan, device, host);
  layout.bytes = {device.end(), host.end()};
  return layout;
}

ExchangeBytes ExchangeBytesOf(const Plan& plan) { return LayOutExchange(plan).bytes; }

}  // namespace spillway
