#include "src/execute/cpu_executor.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "kernels/embedding.h"
#include "kernels/layer_norm.h"
#include "spillway/error.h"
#include "spillway/kv_block.h"
#include "spillway/round.h"
#include "src/stop_signal.h"

namespace spillway {

struct CpuExecutor::Cell {
  const PlannedLayer& layer;
  const PackedBatch& batch;
  const CellPlaces& places;
};

struct CpuExecutor::Chunk {
  int64_t begin = 0;  // tokens [begin, end) of the packed batch, their states in one tier
  int64_t end = 0;
  Rows hidden = {nullptr, 0};
  int64_t size() const { return end - begin; }
};

struct CpuExecutor::KvOfRow {
  const KvPlace& slots;
  std::byte* kv;  // the first of them
};

struct CpuExecutor::RowInChunk {
  const PackedRow& row;
  KvOfRow place;
  TokenRange tokens;  // of the row, in this chunk; never empty
  int64_t offset;     // of the first of them in the chunk
};

CpuExecutor::CpuExecutor(const Plan& plan, const Arena& device, ThreadPool& pool,
                         kernels::Isa isa)
    : plan_(plan), device_(device), pool_(pool), isa_(isa), prompt_places_(plan.workspace.prompt) {
  const auto max_rows = static_cast<std::size_t>(plan.batch.rows);
  attention_rows_.reserve(max_rows);
  compact_rows_.reserve(max_rows);
  budget_rows_.reserve(max_rows);
  std::size_t max_tiles = 0;
  for (const PlannedLayer& layer : plan.layers) {
    for (const PlannedTensor& tensor : layer.tensors)
      max_tiles = std::max(max_tiles, tensor.tiles.size());
  }
  pieces_.reserve(3 * max_tiles);
  table_pieces_.reserve(max_tiles);
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
      compute(Chunk{begin,
                    std::min(range.end, begin + plan_.workspace.chunk_tokens),
                    {Hidden(cell, begin), plan_.shape.hidden_size}});
    }
  }
}

void CpuExecutor::ComputeEmbedding(const Cell& cell) {
  const ModelShape& shape = plan_.shape;
  const bool project = shape.embed_size != shape.hidden_size;
  const PlannedTensor& tokens = *Find(cell.layer, TensorRole::kTokenEmbedding);
  const PlannedTensor& positions = *Find(cell.layer, TensorRole::kPositionEmbedding);
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
  const TensorSpec& spec = table.spec;
  table_pieces_.clear();
  for (const WeightTile& tile : table.tiles) {
    table_pieces_.push_back(
        {device_.As<std::byte>({tile.place, TileBytes(spec, tile)}), tile.row_begin, tile.row_end});
  }
  return {table_pieces_, spec.dtype, spec.cols, first_row, ids, y.data, y.stride};
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
  prompt_places_.BeginChunk();
  for (std::size_t row = 0; row < cell.batch.rows.size(); ++row) {
    const PackedRow& packed = cell.batch.rows[row];
    const TokenRange tokens = {std::max(chunk.begin, packed.token_offset),
                               std::min(chunk.end, packed.token_offset + packed.num_new)};
    if (tokens.size() <= 0) continue;
    const RowInChunk at = {packed, PlaceOf(cell, row), tokens, tokens.begin - chunk.begin};
    if (!plan_.policy.kv.evicts()) {
      AddRow(at);
    } else if (packed.num_past == 0) {
      AddPrompt(at);
    } else {
      budget_rows_.push_back({at.place.kv, at.place.slots.num_slots,
                              at.place.slots.NumHeld(packed.num_past), packed.num_past,
                              at.place.slots.keep, at.offset});
    }
  }
  Attend();
}

CpuExecutor::KvOfRow CpuExecutor::PlaceOf(const Cell& cell, std::size_t row) const {
  const int64_t kv_class = plan_.kv_class_of[static_cast<std::size_t>(cell.layer.block)];
  const KvPlace& slots = cell.batch.KvPlaceOf(row, kv_class);
  const Tier tier = cell.batch.rows[row].kv_tier;
  return {slots, cell.places.kv[tier] + slots.slot_begin * plan_.slot_bytes};
}

void CpuExecutor::AddRow(const RowInChunk& at) {
  const int64_t num_past = at.row.num_past + (at.tokens.begin - at.row.token_offset);
  attention_rows_.push_back(
      {at.place.kv, at.place.slots.num_slots, num_past, at.tokens.size(), at.offset, nullptr});
}

// A prompt is attended to in the workspace, where all of it lies; what stays of it goes to the
// row's cache after its last chunk.
void CpuExecutor::AddPrompt(const RowInChunk& at) {
  const ModelShape& shape = plan_.shape;
  const PromptKvPlan& prompt = plan_.workspace.prompt;
  const int64_t slot = prompt_places_.Place(at.row, at.tokens);
  const int64_t num_past = at.tokens.begin - at.row.token_offset;
  std::byte* kv =
      device_.As<std::byte>(prompt.kv) + slot * KvSlotBytes(shape.num_kv_heads, shape.head_dim);
  float* scores = prompt.scores.bytes == 0 ? nullptr : device_.As<float>(prompt.scores) + slot;
  if (num_past == 0 && scores != nullptr) {
    for (int64_t head = 0; head < shape.num_heads; ++head) {
      std::fill_n(scores + head * prompt.slots(), at.row.num_new, 0.0F);
    }
  }
  attention_rows_.push_back(
      {kv, RoundUp(at.row.num_new, kKvBlockSlots), num_past, at.tokens.size(), at.offset, scores});
  if (num_past + at.tokens.size() < at.row.num_new) return;
  compact_rows_.push_back(
      {kv, scores, at.row.num_new, at.place.kv, at.place.slots.num_slots, at.place.slots.keep});
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
  kernels::Attention(args, workspace, pool_, isa_);
  if (!compact_rows_.empty()) {
    kernels::KvCompact({compact_rows_, plan_.policy.kv.kind, args.token_scores_stride,
                        shape.num_heads, shape.num_kv_heads, shape.head_dim},
                       workspace, pool_);
  }
  if (budget_rows_.empty()) return;
  kernels::BudgetAttention({args.q, args.k, args.v, args.qkv_stride, args.out, args.out_stride,
                            budget_rows_, shape.num_heads, shape.num_kv_heads, shape.head_dim,
                            args.scale, args.kv_dtype, plan_.policy.kv.kind},
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
                Hidden(cell, cell.batch.Wanted(cell.batch.head.begin + row).token),
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
  pieces_.clear();
  int64_t in = 0;
  for (const Linear& linear : linears) {
    const PlannedTensor& tensor = *Find(layer, linear.weight);
    const float* bias = linear.bias == linear.weight ? nullptr : Vector(layer, linear.bias);
    in = tensor.spec.cols;
    for (const WeightTile& tile : tensor.tiles) {
      const int64_t tile_rows = tile.row_end - tile.row_begin;
      const auto from = [&](Rows base) {
        return base.data == nullptr ? nullptr : base.data + tile.row_begin;
      };
      pieces_.push_back({device_.As<std::byte>({tile.place, TileBytes(tensor.spec, tile)}),
                         tensor.spec.dtype, tile_rows,
                         bias == nullptr ? nullptr : bias + tile.row_begin, from(linear.y),
                         linear.y.stride, from(linear.residual), linear.residual.stride});
    }
  }
  kernels::MatmulArgs args;
  args.x = x.data;
  args.x_stride = x.stride;
  args.rows = rows;
  args.in = in;
  args.activation = activation;
  args.pieces = pieces_;
  kernels::Matmul(args, device_.View(plan_.workspace.matmul), pool_, isa_);
}

void CpuExecutor::Norm(const PlannedLayer& layer, Rows x, Rows y, int64_t rows) {
  kernels::LayerNormArgs args;
  args.x = x.data;
  args.x_stride = x.stride;
  args.y = y.data;
  args.y_stride = y.stride;
  args.rows = rows;
  args.cols = plan_.shape.hidden_size;
  args.weight = Vector(layer, TensorRole::kNormWeight);
  args.bias = Vector(layer, TensorRole::kNormBias);
  args.epsilon = static_cast<float>(plan_.shape.norm_epsilon);
  kernels::LayerNorm(args, pool_, isa_);
}

const PlannedTensor* CpuExecutor::Find(const PlannedLayer& layer, TensorRole role) const {
  const auto found =
      std::ranges::find(layer.tensors, role, [](const PlannedTensor& t) { return t.spec.role; });
  return found == layer.tensors.end() ? nullptr : &*found;
}

const float* CpuExecutor::Vector(const PlannedLayer& layer, TensorRole role) const {
  const PlannedTensor* tensor = Find(layer, role);
  if (tensor == nullptr) return nullptr;
  return device_.As<float>({tensor->tiles[0].place, tensor->spec.bytes()});
}

float* CpuExecutor::Hidden(const Cell& cell, int64_t token) const {
  const auto holds = [&](Tier tier) {
    return token >= cell.batch.hidden[tier].begin && token < cell.batch.hidden[tier].end;
  };
  const Tier tier = *std::ranges::find_if(kAllTiers, holds);
  return cell.places.hidden[tier] +
         (token - cell.batch.hidden[tier].begin) * plan_.shape.hidden_size;
}

}  // namespace spillway
