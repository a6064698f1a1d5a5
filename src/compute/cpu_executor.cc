#include "src/compute/cpu_executor.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "kernels/attention/head_reflection.h"
#include "kernels/rows/embedding.h"
#include "kernels/rows/layer_norm.h"
#include "spillway/error.h"
#include "src/base/stop_signal.h"

namespace spillway {

CpuExecutor::CpuExecutor(const Plan& plan, const Arena& device, ThreadPool& pool, kernels::Isa isa)
    : plan_(plan),
      device_(device),
      pool_(pool),
      isa_(isa),
      layer_(plan, device),
      reference_memory_(ReferenceKeys::Bytes(plan)),
      reference_(plan, reference_memory_.As<std::byte>({0, reference_memory_.bytes()})) {
  const auto max_rows = static_cast<std::size_t>(plan.batch.rows);
  attention_rows_.reserve(max_rows);
  compact_rows_.reserve(max_rows);
  budget_rows_.reserve(max_rows);
}

void CpuExecutor::Compute(const Cursor& at, const PackedBatch& batch, const CellPlaces& places) {
  SPILLWAY_CHECK(batch.batch < plan_.num_batches);
  SPILLWAY_CHECK(static_cast<int64_t>(batch.tokens.size()) <= plan_.batch.prompt_tokens);
  AdvanceReference(at);
  const PlannedLayer& layer = plan_.layers[static_cast<std::size_t>(at.layer)];
  const Cell cell = {layer, batch, places};
  switch (layer.kind) {
    case LayerKind::kEmbedding:
      return ComputeEmbedding(cell);
    case LayerKind::kAttention:
      return ComputeAttention(cell);
    case LayerKind::kMlp:
      return ComputeMlp(cell);
    case LayerKind::kHead:
      return ComputeHead(cell);
  }
}

// A pass is cut into chunks of tokens, so that the workspace is the plan's and not the longest
// prompt's. Chunks go in token order: a chunk's attention reads the K and V that earlier chunks of
// the same row stored.
template <typename F>
void CpuExecutor::ForEachChunk(const Cell& cell, F compute) {
  for (const Tier tier : kAllTiers) {
    const TokenRange& range = cell.batch.hidden[tier];
    for (int64_t begin = range.begin; begin < range.end; begin += plan_.workspace.chunk_tokens) {
      ThrowIfStopRequested();
      compute(layer_.ChunkAt(cell, begin, range.end));
    }
  }
}

void CpuExecutor::ComputeEmbedding(const Cell& cell) {
  ForEachChunk(cell, [&](const Chunk& chunk) {
    const auto begin = static_cast<std::size_t>(chunk.begin);
    const auto size = static_cast<std::size_t>(chunk.size());
    Embed(cell.layer,
          {std::span(cell.batch.tokens).subspan(begin, size),
           std::span(cell.batch.positions).subspan(begin, size)},
          chunk.hidden);
  });
}

void CpuExecutor::Embed(const PlannedLayer& layer, const TokenInput& input, Rows hidden) {
  const ModelShape& shape = plan_.shape;
  const bool project = shape.embed_size != shape.hidden_size;
  const PlannedTensor& tokens = *LayerArgs::Find(layer, TensorRole::kTokenEmbedding);
  const PlannedTensor& positions = *LayerArgs::Find(layer, TensorRole::kPositionEmbedding);
  const Rows embedded = {device_.As<float>(plan_.workspace.embedded), shape.embed_size};
  kernels::EmbeddingLookup(Lookup(tokens, input.tokens, 0, project ? embedded : hidden));
  if (project) {
    const std::array linears = {Linear{TensorRole::kProjectIn, TensorRole::kProjectIn, hidden}};
    Multiply(layer, embedded, std::ssize(input.tokens), linears);
  }
  kernels::EmbeddingAdd(Lookup(positions, input.positions, shape.position_offset, hidden));
}

kernels::EmbeddingArgs CpuExecutor::Lookup(const PlannedTensor& table, std::span<const int32_t> ids,
                                           int64_t first_row, Rows y) {
  return {
      layer_.Pieces(table), table.spec.dtype, table.spec.cols, first_row, ids, y.data, y.stride};
}

void CpuExecutor::ComputeAttention(const Cell& cell) {
  ForEachChunk(cell, [&](const Chunk& chunk) {
    Project(cell.layer, chunk.hidden, chunk.size());
    if (plan_.policy.kv_bits < 16) Reflect(cell.layer, chunk.size());
    AttendChunk(cell, chunk);
    FinishAttention(cell.layer, chunk.hidden, chunk.size());
  });
}

void CpuExecutor::Project(const PlannedLayer& layer, Rows hidden, int64_t rows) {
  const ModelShape& shape = plan_.shape;
  const int64_t q = shape.num_heads * shape.head_dim;
  const int64_t kv = shape.num_kv_heads * shape.head_dim;
  float* qkv = device_.As<float>(plan_.workspace.qkv);
  const int64_t stride = q + 2 * kv;
  const Rows normed = {device_.As<float>(plan_.workspace.normed), shape.hidden_size};
  if (shape.pre_norm) Norm(layer, hidden, normed, rows);
  const std::array projections = {
      Linear{TensorRole::kQueryWeight, TensorRole::kQueryBias, {qkv, stride}},
      Linear{TensorRole::kKeyWeight, TensorRole::kKeyBias, {qkv + q, stride}},
      Linear{TensorRole::kValueWeight, TensorRole::kValueBias, {qkv + q + kv, stride}}};
  Multiply(layer, shape.pre_norm ? normed : hidden, rows, projections);
}

void CpuExecutor::FinishAttention(const PlannedLayer& layer, Rows hidden, int64_t rows) {
  const ModelShape& shape = plan_.shape;
  const Rows attended = {device_.As<float>(plan_.workspace.attended),
                         shape.num_heads * shape.head_dim};
  const std::array out = {Linear{TensorRole::kOutWeight, TensorRole::kOutBias, hidden, hidden}};
  Multiply(layer, attended, rows, out);
  if (!shape.pre_norm) Norm(layer, hidden, hidden, rows);
}

void CpuExecutor::AttendChunk(const Cell& cell, const Chunk& chunk) {
  attention_rows_.clear();
  compact_rows_.clear();
  budget_rows_.clear();
  layer_.BeginChunk();
  for (std::size_t row = 0; row < cell.batch.rows.size(); ++row) {
    const auto at = layer_.RowIn(cell, chunk, row);
    if (!at) continue;
    if (!plan_.policy.kv.evicts()) {
      attention_rows_.push_back(LayerArgs::CachedRow(*at));
    } else if (at->row.num_past == 0) {
      AddPrompt(*at);
    } else {
      budget_rows_.push_back(LayerArgs::BudgetRow(*at));
    }
  }
  Attend();
}

// The kernel adds to a prompt's scores from chunk to chunk.
void CpuExecutor::AddPrompt(const LayerArgs::RowInChunk& at) {
  const LayerArgs::PromptRow prompt = layer_.Prompt(at);
  float* scores = prompt.attention.token_scores;
  if (prompt.attention.num_past == 0 && scores != nullptr) {
    for (int64_t head = 0; head < plan_.shape.num_heads; ++head) {
      std::fill_n(scores + head * plan_.workspace.prompt.slots(), at.row.num_new, 0.0F);
    }
  }
  attention_rows_.push_back(prompt.attention);
  if (prompt.compact) compact_rows_.push_back(*prompt.compact);
}

// Prompts, what stays of those that end here, then single tokens.
void CpuExecutor::Attend() {
  const ModelShape& shape = plan_.shape;
  const std::span<std::byte> workspace = device_.View(plan_.workspace.attention);
  float* qkv = device_.As<float>(plan_.workspace.qkv);
  float* attended = device_.As<float>(plan_.workspace.attended);
  kernels::AttentionArgs args = layer_.Attention(qkv, attended);
  args.rows = attention_rows_;
  kernels::Attention(args, workspace, pool_, isa_);
  if (!compact_rows_.empty()) {
    kernels::KvCompact({compact_rows_, plan_.policy.kv.kind, args.token_scores_stride,
                        shape.num_heads, shape.num_kv_heads, shape.head_dim, args.kv_bits},
                       workspace, pool_);
  }
  if (budget_rows_.empty()) return;
  kernels::BudgetAttentionArgs step = layer_.Budget(qkv, attended);
  step.rows = budget_rows_;
  kernels::BudgetAttention(step, workspace, pool_, isa_);
}

void CpuExecutor::ComputeMlp(const Cell& cell) {
  ForEachChunk(cell, [&](const Chunk& chunk) { Mlp(cell.layer, chunk.hidden, chunk.size()); });
}

void CpuExecutor::Mlp(const PlannedLayer& layer, Rows hidden, int64_t rows) {
  const ModelShape& shape = plan_.shape;
  const Rows inner = {device_.As<float>(plan_.workspace.ffn), shape.ffn_size};
  const Rows normed = {device_.As<float>(plan_.workspace.normed), shape.hidden_size};
  if (shape.pre_norm) Norm(layer, hidden, normed, rows);
  const std::array up = {Linear{TensorRole::kUpWeight, TensorRole::kUpBias, inner}};
  Multiply(layer, shape.pre_norm ? normed : hidden, rows, up, shape.activation);
  const std::array down = {Linear{TensorRole::kDownWeight, TensorRole::kDownBias, hidden, hidden}};
  Multiply(layer, inner, rows, down);
  if (!shape.pre_norm) Norm(layer, hidden, hidden, rows);
}

// Logits of the wanted tokens only: of generated rows the last one, at 512 prompt tokens 1/512 of
// the head's work.
void CpuExecutor::ComputeHead(const Cell& cell) {
  const ModelShape& shape = plan_.shape;
  const int64_t num_rows = cell.batch.head.size();
  SPILLWAY_CHECK(num_rows <= plan_.batch.logits);
  const Rows last = {device_.As<float>(plan_.workspace.normed), shape.hidden_size};
  for (int64_t row = 0; row < num_rows; ++row) {
    std::memcpy(last.data + row * shape.hidden_size,
                layer_.Hidden(cell, cell.batch.Wanted(cell.batch.head.begin + row).token),
                static_cast<std::size_t>(shape.hidden_size) * sizeof(float));
  }
  if (shape.final_norm) Norm(cell.layer, last, last, num_rows);
  Rows features = last;
  if (shape.embed_size != shape.hidden_size) {
    features = {device_.As<float>(plan_.workspace.embedded), shape.embed_size};
    const std::array project = {Linear{TensorRole::kProjectOut, TensorRole::kProjectOut, features}};
    Multiply(cell.layer, last, num_rows, project);
  }
  const Rows logits = {device_.As<float>(plan_.workspace.logits), shape.vocab_size};
  const TensorRole weight = shape.tied_head ? TensorRole::kTokenEmbedding : TensorRole::kHeadWeight;
  const std::array head = {Linear{weight, weight, logits}};
  Multiply(shape.tied_head ? plan_.layers.front() : cell.layer, features, num_rows, head);
  logits_ = {logits.data, static_cast<std::size_t>(num_rows * shape.vocab_size)};
}

// The first pass comes to every layer in order, with its weights in place. In chunks as any prompt.
void CpuExecutor::AdvanceReference(const Cursor& at) {
  if (!reference_.Awaits(at.layer)) return;
  const PlannedLayer& layer = plan_.layers[static_cast<std::size_t>(at.layer)];
  const int64_t num_tokens = reference_.num_tokens();
  const int64_t chunk = plan_.workspace.chunk_tokens;
  for (int64_t begin = 0; begin < num_tokens; begin += chunk) {
    const int64_t rows = std::min(chunk, num_tokens - begin);
    const Rows hidden = {reference_.Hidden(begin), plan_.shape.hidden_size};
    if (layer.kind == LayerKind::kEmbedding)
      Embed(layer, {reference_.Tokens(begin, rows), reference_.Positions(begin, rows)}, hidden);
    if (layer.kind == LayerKind::kAttention) AttendReference(layer, begin, rows);
    if (layer.kind == LayerKind::kMlp) Mlp(layer, hidden, rows);
  }
  if (layer.kind == LayerKind::kAttention) {
    const ModelShape& shape = plan_.shape;
    kernels::MakeReflectors({reference_.Common(), shape.num_kv_heads, shape.head_dim,
                             reference_.Reflectors(layer.block)});
  }
  reference_.Advance();
}

void CpuExecutor::AttendReference(const PlannedLayer& layer, int64_t begin, int64_t rows) {
  const Rows hidden = {reference_.Hidden(begin), plan_.shape.hidden_size};
  Project(layer, hidden, rows);
  // In 16 bits, whatever the cache of rows has.
  kernels::AttentionArgs args = layer_.Attention(device_.As<float>(plan_.workspace.qkv),
                                                 device_.As<float>(plan_.workspace.attended));
  args.kv_dtype = DType::kF16;
  args.kv_bits = 16;
  kernels::AddKeyDirections(
      {args.k, args.qkv_stride, rows, args.num_kv_heads, args.head_dim, reference_.Common()});
  const kernels::AttentionRow row = reference_.Row(begin, rows);
  args.rows = {&row, 1};
  kernels::Attention(args, device_.View(plan_.workspace.attention), pool_, isa_);
  FinishAttention(layer, hidden, rows);
}

void CpuExecutor::Reflect(const PlannedLayer& layer, int64_t rows) {
  const ModelShape& shape = plan_.shape;
  kernels::HeadReflectionArgs args;
  args.x = device_.As<float>(plan_.workspace.qkv);
  args.stride = (shape.num_heads + 2 * shape.num_kv_heads) * shape.head_dim;
  args.rows = rows;
  args.num_heads = shape.num_heads;
  args.num_kv_heads = shape.num_kv_heads;
  args.head_dim = shape.head_dim;
  args.reflectors = reference_.Reflectors(layer.block);
  kernels::ReflectHeads(args, pool_);
  args.x += shape.num_heads * shape.head_dim;
  args.num_heads = shape.num_kv_heads;
  kernels::ReflectHeads(args, pool_);
}

void CpuExecutor::Multiply(const PlannedLayer& layer, Rows x, int64_t rows,
                           std::span<const Linear> linears, Activation activation) {
  kernels::Matmul(layer_.Matmul(layer, x, rows, linears, activation),
                  device_.View(plan_.workspace.matmul), pool_, isa_);
}

void CpuExecutor::Norm(const PlannedLayer& layer, Rows x, Rows y, int64_t rows) {
  kernels::LayerNorm(layer_.Norm(layer, x, y, rows), pool_, isa_);
}

}  // namespace spillway
