#include "src/execute/cpu_executor.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "kernels/embedding.h"
#include "kernels/layer_norm.h"
#include "spillway/error.h"
#include "src/stop_signal.h"

namespace spillway {

CpuExecutor::CpuExecutor(const Plan& plan, const Arena& device, ThreadPool& pool, kernels::Isa isa)
    : plan_(plan), device_(device), pool_(pool), isa_(isa), layer_(plan, device) {
  const auto max_rows = static_cast<std::size_t>(plan.batch.rows);
  attention_rows_.reserve(max_rows);
  compact_rows_.reserve(max_rows);
  budget_rows_.reserve(max_rows);
}

void CpuExecutor::Compute(const Cursor& at, const PackedBatch& batch, const CellPlaces& places) {
  SPILLWAY_CHECK(batch.batch < plan_.num_batches);
  SPILLWAY_CHECK(static_cast<int64_t>(batch.tokens.size()) <= plan_.batch.prompt_tokens);
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
  const ModelShape& shape = plan_.shape;
  const bool project = shape.embed_size != shape.hidden_size;
  const PlannedTensor& tokens = *LayerArgs::Find(cell.layer, TensorRole::kTokenEmbedding);
  const PlannedTensor& positions = *LayerArgs::Find(cell.layer, TensorRole::kPositionEmbedding);
  ForEachChunk(cell, [&](const Chunk& chunk) {
    const Rows embedded = {device_.As<float>(plan_.workspace.embedded), shape.embed_size};
    const auto begin = static_cast<std::size_t>(chunk.begin);
    const auto size = static_cast<std::size_t>(chunk.size());
    kernels::EmbeddingLookup(Lookup(tokens, std::span(cell.batch.tokens).subspan(begin, size), 0,
                                    project ? embedded : chunk.hidden));
    if (project) {
      const std::array linears = {
          Linear{TensorRole::kProjectIn, TensorRole::kProjectIn, chunk.hidden}};
      Multiply(cell.layer, embedded, chunk.size(), linears);
    }
    kernels::EmbeddingAdd(Lookup(positions, std::span(cell.batch.positions).subspan(begin, size),
                                 shape.position_offset, chunk.hidden));
  });
}

kernels::EmbeddingArgs CpuExecutor::Lookup(const PlannedTensor& table, std::span<const int32_t> ids,
                                           int64_t first_row, Rows y) {
  return {
      layer_.Pieces(table), table.spec.dtype, table.spec.cols, first_row, ids, y.data, y.stride};
}

void CpuExecutor::ComputeAttention(const Cell& cell) {
  const ModelShape& shape = plan_.shape;
  const int64_t q = shape.num_heads * shape.head_dim;
  const int64_t kv = shape.num_kv_heads * shape.head_dim;
  float* qkv = device_.As<float>(plan_.workspace.qkv);
  const int64_t stride = q + 2 * kv;
  ForEachChunk(cell, [&](const Chunk& chunk) {
    const Rows& hidden = chunk.hidden;
    const Rows normed = {device_.As<float>(plan_.workspace.normed), shape.hidden_size};
    if (shape.pre_norm) Norm(cell.layer, hidden, normed, chunk.size());
    const std::array projections = {
        Linear{TensorRole::kQueryWeight, TensorRole::kQueryBias, {qkv, stride}},
        Linear{TensorRole::kKeyWeight, TensorRole::kKeyBias, {qkv + q, stride}},
        Linear{TensorRole::kValueWeight, TensorRole::kValueBias, {qkv + q + kv, stride}}};
    Multiply(cell.layer, shape.pre_norm ? normed : hidden, chunk.size(), projections);
    AttendChunk(cell, chunk);
    const std::array out = {Linear{TensorRole::kOutWeight, TensorRole::kOutBias, hidden, hidden}};
    Multiply(cell.layer, {device_.As<float>(plan_.workspace.attended), q}, chunk.size(), out);
    if (!shape.pre_norm) Norm(cell.layer, hidden, hidden, chunk.size());
  });
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
  const int64_t q = shape.num_heads * shape.head_dim;
  const int64_t kv_width = shape.num_kv_heads * shape.head_dim;
  const std::span<std::byte> workspace = device_.View(plan_.workspace.attention);
  kernels::AttentionArgs args;
  args.q = device_.As<float>(plan_.workspace.qkv);
  args.k = args.q + q;
  args.v = args.k + kv_width;
  args.qkv_stride = q + 2 * kv_width;
  args.out = device_.As<float>(plan_.workspace.attended);
  args.out_stride = q;
  args.rows = attention_rows_;
  args.num_heads = shape.num_heads;
  args.num_kv_heads = shape.num_kv_heads;
  args.head_dim = shape.head_dim;
  args.scale = 1.0F / std::sqrt(static_cast<float>(shape.head_dim));
  args.kv_dtype = plan_.policy.kv_dtype;
  args.token_scores_stride = plan_.workspace.prompt.slots();
  args.kv_bits = plan_.policy.kv_bits;
  kernels::Attention(args, workspace, pool_, isa_);
  if (!compact_rows_.empty()) {
    kernels::KvCompact({compact_rows_, plan_.policy.kv.kind, args.token_scores_stride,
                        shape.num_heads, shape.num_kv_heads, shape.head_dim, args.kv_bits},
                       workspace, pool_);
  }
  if (budget_rows_.empty()) return;
  kernels::BudgetAttention({args.q, args.k, args.v, args.qkv_stride, args.out, args.out_stride,
                            budget_rows_, shape.num_heads, shape.num_kv_heads, shape.head_dim,
                            args.scale, args.kv_dtype, plan_.policy.kv.kind, args.kv_bits},
                           workspace, pool_, isa_);
}

void CpuExecutor::ComputeMlp(const Cell& cell) {
  const ModelShape& shape = plan_.shape;
  const Rows inner = {device_.As<float>(plan_.workspace.ffn), shape.ffn_size};
  ForEachChunk(cell, [&](const Chunk& chunk) {
    const Rows& hidden = chunk.hidden;
    const Rows normed = {device_.As<float>(plan_.workspace.normed), shape.hidden_size};
    if (shape.pre_norm) Norm(cell.layer, hidden, normed, chunk.size());
    const std::array up = {Linear{TensorRole::kUpWeight, TensorRole::kUpBias, inner}};
    Multiply(cell.layer, shape.pre_norm ? normed : hidden, chunk.size(), up, shape.activation);
    const std::array down = {
        Linear{TensorRole::kDownWeight, TensorRole::kDownBias, hidden, hidden}};
    Multiply(cell.layer, inner, chunk.size(), down);
    if (!shape.pre_norm) Norm(cell.layer, hidden, hidden, chunk.size());
  });
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

void CpuExecutor::Multiply(const PlannedLayer& layer, Rows x, int64_t rows,
                           std::span<const Linear> linears, Activation activation) {
  kernels::Matmul(layer_.Matmul(layer, x, rows, linears, activation),
                  device_.View(plan_.workspace.matmul), pool_, isa_);
}

void CpuExecutor::Norm(const PlannedLayer& layer, Rows x, Rows y, int64_t rows) {
  kernels::LayerNorm(layer_.Norm(layer, x, y, rows), pool_, isa_);
}

}  // namespace spillway
