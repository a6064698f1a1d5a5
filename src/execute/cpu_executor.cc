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

struct CpuExecutor::Chunk {
  int64_t begin = 0;  // tokens [begin, end) of the packed batch
  int64_t end = 0;
  int64_t size() const { return end - begin; }
};

CpuExecutor::CpuExecutor(const Plan& plan, const HostArena& arena, ThreadPool& pool,
                         kernels::Isa isa)
    : plan_(plan), arena_(arena), pool_(pool), isa_(isa) {
  attention_rows_.reserve(static_cast<std::size_t>(plan.batch.rows));
  std::size_t max_tiles = 0;
  for (const PlannedLayer& layer : plan.layers) {
    for (const PlannedTensor& tensor : layer.tensors)
      max_tiles = std::max(max_tiles, tensor.tiles.size());
  }
  pieces_.reserve(3 * max_tiles);
}

void CpuExecutor::Compute(const Cursor& at, const PackedBatch& batch) {
  SPILLWAY_CHECK(batch.batch < plan_.num_batches);
  SPILLWAY_CHECK(static_cast<int64_t>(batch.tokens.size()) <= plan_.batch.prompt_tokens);
  const PlannedLayer& layer = plan_.layers[static_cast<std::size_t>(at.layer)];
  switch (layer.kind) {
    case LayerKind::kEmbedding:
      return ComputeEmbedding(layer, batch);
    case LayerKind::kAttention:
      return ComputeAttention(layer, batch);
    case LayerKind::kMlp:
      return ComputeMlp(layer, batch);
    case LayerKind::kHead:
      return ComputeHead(layer, batch);
  }
}

// A pass is cut into chunks of tokens, so that the workspace is the plan's and not the longest
// prompt's. Chunks go in token order: a chunk's attention reads the K and V that earlier chunks of
// the same row stored.
template <typename F>
void CpuExecutor::ForEachChunk(const PackedBatch& batch, F compute) {
  const auto num_tokens = static_cast<int64_t>(batch.tokens.size());
  for (int64_t begin = 0; begin < num_tokens; begin += plan_.workspace.chunk_tokens) {
    ThrowIfStopRequested();
    compute(Chunk{begin, std::min(num_tokens, begin + plan_.workspace.chunk_tokens)});
  }
}

void CpuExecutor::ComputeEmbedding(const PlannedLayer& layer, const PackedBatch& batch) {
  const ModelShape& shape = plan_.shape;
  const bool project = shape.embed_size != shape.hidden_size;
  ForEachChunk(batch, [&](const Chunk& chunk) {
    const Rows hidden = {Hidden(batch) + chunk.begin * shape.hidden_size, shape.hidden_size};
    const Rows embedded = {arena_.As<float>(plan_.workspace.embedded), shape.embed_size};
    const auto lookup = [&](TensorRole role, std::span<const int32_t> ids, Rows y) {
      const PlannedTensor& table = *Find(layer, role);
      return kernels::EmbeddingArgs{
          arena_.As<std::byte>({table.tiles[0].offset, table.spec.bytes()}),
          table.spec.dtype,
          table.spec.rows,
          table.spec.cols,
          ids,
          y.data,
          y.stride};
    };
    const auto begin = static_cast<std::size_t>(chunk.begin);
    const auto size = static_cast<std::size_t>(chunk.size());
    const std::span<const int32_t> tokens(batch.tokens.data() + begin, size);
    kernels::EmbeddingLookup(
        lookup(TensorRole::kTokenEmbedding, tokens, project ? embedded : hidden));
    if (project) {
      const std::array linears = {Linear{TensorRole::kProjectIn, TensorRole::kProjectIn, hidden}};
      Multiply(layer, embedded, chunk.size(), linears);
    }
    const std::span<const int32_t> positions(batch.positions.data() + begin, size);
    kernels::EmbeddingArgs add = lookup(TensorRole::kPositionEmbedding, positions, hidden);
    add.table = static_cast<const std::byte*>(add.table) +
                shape.position_offset * shape.hidden_size * DTypeBytes(add.dtype);
    add.table_rows -= shape.position_offset;
    kernels::EmbeddingAdd(add);
  });
}

void CpuExecutor::ComputeAttention(const PlannedLayer& layer, const PackedBatch& batch) {
  const ModelShape& shape = plan_.shape;
  const int64_t q = shape.num_heads * shape.head_dim;
  const int64_t kv = shape.num_kv_heads * shape.head_dim;
  float* qkv = arena_.As<float>(plan_.workspace.qkv);
  const int64_t stride = q + 2 * kv;
  ForEachChunk(batch, [&](const Chunk& chunk) {
    const Rows hidden = {Hidden(batch) + chunk.begin * shape.hidden_size, shape.hidden_size};
    const Rows normed = {arena_.As<float>(plan_.workspace.normed), shape.hidden_size};
    if (shape.pre_norm) Norm(layer, hidden, normed, chunk.size());
    const std::array projections = {
        Linear{TensorRole::kQueryWeight, TensorRole::kQueryBias, {qkv, stride}},
        Linear{TensorRole::kKeyWeight, TensorRole::kKeyBias, {qkv + q, stride}},
        Linear{TensorRole::kValueWeight, TensorRole::kValueBias, {qkv + q + kv, stride}}};
    Multiply(layer, shape.pre_norm ? normed : hidden, chunk.size(), projections);
    AttendChunk(batch, layer.block, chunk);
    const std::array out = {Linear{TensorRole::kOutWeight, TensorRole::kOutBias, hidden, hidden}};
    Multiply(layer, {arena_.As<float>(plan_.workspace.attended), q}, chunk.size(), out);
    if (!shape.pre_norm) Norm(layer, hidden, hidden, chunk.size());
  });
}

void CpuExecutor::AttendChunk(const PackedBatch& batch, int64_t block, const Chunk& chunk) {
  const ModelShape& shape = plan_.shape;
  const int64_t layer_bytes = plan_.batch.slots * plan_.slot_bytes;
  std::byte* kv =
      arena_.View(plan_.kv).data() + batch.batch * plan_.KvBatchBytes() + block * layer_bytes;
  attention_rows_.clear();
  for (const PackedRow& row : batch.rows) {
    const int64_t begin = std::max(chunk.begin, row.token_offset);
    const int64_t end = std::min(chunk.end, row.token_offset + row.num_new);
    if (begin >= end) continue;
    attention_rows_.push_back({kv + row.slot_begin * plan_.slot_bytes, row.num_slots,
                               row.num_past + (begin - row.token_offset), end - begin,
                               begin - chunk.begin});
  }
  const int64_t q = shape.num_heads * shape.head_dim;
  const int64_t kv_width = shape.num_kv_heads * shape.head_dim;
  kernels::AttentionArgs args;
  args.q = arena_.As<float>(plan_.workspace.qkv);
  args.k = args.q + q;
  args.v = args.k + kv_width;
  args.qkv_stride = q + 2 * kv_width;
  args.out = arena_.As<float>(plan_.workspace.attended);
  args.out_stride = q;
  args.rows = attention_rows_;
  args.num_heads = shape.num_heads;
  args.num_kv_heads = shape.num_kv_heads;
  args.head_dim = shape.head_dim;
  args.scale = 1.0F / std::sqrt(static_cast<float>(shape.head_dim));
  args.kv_dtype = plan_.policy.kv_dtype;
  kernels::Attention(args, arena_.View(plan_.workspace.attention), pool_, isa_);
}

void CpuExecutor::ComputeMlp(const PlannedLayer& layer, const PackedBatch& batch) {
  const ModelShape& shape = plan_.shape;
  const Rows inner = {arena_.As<float>(plan_.workspace.ffn), shape.ffn_size};
  ForEachChunk(batch, [&](const Chunk& chunk) {
    const Rows hidden = {Hidden(batch) + chunk.begin * shape.hidden_size, shape.hidden_size};
    const Rows normed = {arena_.As<float>(plan_.workspace.normed), shape.hidden_size};
    if (shape.pre_norm) Norm(layer, hidden, normed, chunk.size());
    const std::array up = {Linear{TensorRole::kUpWeight, TensorRole::kUpBias, inner}};
    Multiply(layer, shape.pre_norm ? normed : hidden, chunk.size(), up, shape.activation);
    const std::array down = {
        Linear{TensorRole::kDownWeight, TensorRole::kDownBias, hidden, hidden}};
    Multiply(layer, inner, chunk.size(), down);
    if (!shape.pre_norm) Norm(layer, hidden, hidden, chunk.size());
  });
}

// Logits of each row's last token only: at 512 prompt tokens that is 1/512 of the head's work.
void CpuExecutor::ComputeHead(const PlannedLayer& layer, const PackedBatch& batch) {
  const ModelShape& shape = plan_.shape;
  const auto num_rows = static_cast<int64_t>(batch.rows.size());
  const Rows last = {arena_.As<float>(plan_.workspace.normed), shape.hidden_size};
  for (int64_t row = 0; row < num_rows; ++row) {
    const PackedRow& packed = batch.rows[static_cast<std::size_t>(row)];
    std::memcpy(last.data + row * shape.hidden_size,
                Hidden(batch) + (packed.token_offset + packed.num_new - 1) * shape.hidden_size,
                static_cast<std::size_t>(shape.hidden_size) * sizeof(float));
  }
  if (shape.final_norm) Norm(layer, last, last, num_rows);
  Rows features = last;
  if (shape.embed_size != shape.hidden_size) {
    features = {arena_.As<float>(plan_.workspace.embedded), shape.embed_size};
    const std::array project = {Linear{TensorRole::kProjectOut, TensorRole::kProjectOut, features}};
    Multiply(layer, last, num_rows, project);
  }
  const Rows logits = {arena_.As<float>(plan_.workspace.logits), shape.vocab_size};
  const TensorRole weight = shape.tied_head ? TensorRole::kTokenEmbedding : TensorRole::kHeadWeight;
  const std::array head = {Linear{weight, weight, logits}};
  Multiply(shape.tied_head ? plan_.layers.front() : layer, features, num_rows, head);
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
      pieces_.push_back(
          {arena_.As<std::byte>({tile.offset, tile_rows * in * DTypeBytes(tensor.spec.dtype)}),
           tensor.spec.dtype, tile_rows, bias == nullptr ? nullptr : bias + tile.row_begin,
           from(linear.y), linear.y.stride, from(linear.residual), linear.residual.stride});
    }
  }
  kernels::MatmulArgs args;
  args.x = x.data;
  args.x_stride = x.stride;
  args.rows = rows;
  args.in = in;
  args.activation = activation;
  args.pieces = pieces_;
  kernels::Matmul(args, arena_.View(plan_.workspace.matmul), pool_, isa_);
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
  return arena_.As<float>({tensor->tiles[0].offset, tensor->spec.bytes()});
}

float* CpuExecutor::Hidden(const PackedBatch& batch) const {
  return arena_.As<float>(plan_.hidden) +
         batch.batch * plan_.batch.prompt_tokens * plan_.shape.hidden_size;
}

}  // namespace spillway
