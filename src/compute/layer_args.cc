#include "src/compute/layer_args.h"

#include <algorithm>
#include <cmath>

#include "spillway/error.h"
#include "spillway/kv_block.h"
#include "spillway/round.h"

namespace spillway {

LayerArgs::LayerArgs(const Plan& plan, const Arena& device)
    : plan_(plan), device_(device), prompt_places_(plan.workspace.prompt) {
  std::size_t max_tiles = 0;
  for (const PlannedLayer& layer : plan.layers) {
    for (const PlannedTensor& tensor : layer.tensors)
      max_tiles = std::max(max_tiles, tensor.tiles.size());
  }
  pieces_.reserve(3 * max_tiles);
  table_pieces_.reserve(max_tiles);
}

// One for each run of tiles that lie one behind the other: of disk each tile is read by itself, and
// a tensor's are staged together.
void LayerArgs::AddPieces(const PlannedTensor& tensor, const float* bias, const Linear& linear) {
  int64_t end = -1;  // of the piece before
  for (const WeightTile& tile : tensor.tiles) {
    const int64_t tile_rows = tile.row_end - tile.row_begin;
    const Region weights = {tile.place, TileBytes(tensor.spec, tile)};
    const bool continues = weights.offset == end;
    end = weights.offset + weights.bytes;
    if (continues) {
      pieces_.back().num_out += tile_rows;
      continue;
    }
    const auto from = [&](Rows base) {
      return base.data == nullptr ? nullptr : base.data + tile.row_begin;
    };
    pieces_.push_back({device_.As<std::byte>(weights), tensor.spec.dtype, tile_rows,
                       bias == nullptr ? nullptr : bias + tile.row_begin, from(linear.y),
                       linear.y.stride, from(linear.residual), linear.residual.stride});
  }
}

kernels::MatmulArgs LayerArgs::Matmul(const PlannedLayer& layer, Rows x, int64_t rows,
                                      std::span<const Linear> linears, Activation activation) {
  pieces_.clear();
  int64_t in = 0;
  for (const Linear& linear : linears) {
    const PlannedTensor& tensor = *Find(layer, linear.weight);
    in = tensor.spec.cols;
    AddPieces(tensor, linear.bias == linear.weight ? nullptr : Vector(layer, linear.bias), linear);
  }
  kernels::MatmulArgs args;
  args.x = x.data;
  args.x_stride = x.stride;
  args.rows = rows;
  args.in = in;
  args.activation = activation;
  args.pieces = pieces_;
  return args;
}

kernels::LayerNormArgs LayerArgs::Norm(const PlannedLayer& layer, Rows x, Rows y,
                                       int64_t rows) const {
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
  return args;
}

std::span<const kernels::EmbeddingPiece> LayerArgs::Pieces(const PlannedTensor& table) {
  table_pieces_.clear();
  for (const WeightTile& tile : table.tiles) {
    table_pieces_.push_back({device_.As<std::byte>({tile.place, TileBytes(table.spec, tile)}),
                             tile.row_begin, tile.row_end});
  }
  return table_pieces_;
}

const PlannedTensor* LayerArgs::Find(const PlannedLayer& layer, TensorRole role) {
  const auto found =
      std::ranges::find(layer.tensors, role, [](const PlannedTensor& t) { return t.spec.role; });
  return found == layer.tensors.end() ? nullptr : &*found;
}

const float* LayerArgs::Vector(const PlannedLayer& layer, TensorRole role) const {
  const PlannedTensor* tensor = Find(layer, role);
  if (tensor == nullptr) return nullptr;
  return device_.As<float>({tensor->tiles[0].place, tensor->spec.bytes()});
}

LayerArgs::Chunk LayerArgs::ChunkAt(const Cell& cell, int64_t begin, int64_t end) const {
  return {begin,
          std::min(end, begin + plan_.workspace.chunk_tokens),
          {Hidden(cell, begin), plan_.shape.hidden_size}};
}

float* LayerArgs::Hidden(const Cell& cell, int64_t token) const {
  const auto holds = [&](Tier tier) {
    return token >= cell.batch.hidden[tier].begin && token < cell.batch.hidden[tier].end;
  };
  const Tier tier = *std::ranges::find_if(kAllTiers, holds);
  return cell.places.hidden[tier] +
         (token - cell.batch.hidden[tier].begin) * plan_.shape.hidden_size;
}

kernels::AttentionArgs LayerArgs::Attention(float* qkv, float* out) const {
  const ModelShape& shape = plan_.shape;
  const int64_t q = shape.num_heads * shape.head_dim;
  const int64_t kv = shape.num_kv_heads * shape.head_dim;
  kernels::AttentionArgs args;
  args.q = qkv;
  args.k = qkv + q;
  args.v = args.k + kv;
  args.qkv_stride = q + 2 * kv;
  args.out = out;
  args.out_stride = q;
  args.num_heads = shape.num_heads;
  args.num_kv_heads = shape.num_kv_heads;
  args.head_dim = shape.head_dim;
  args.scale = 1.0F / std::sqrt(static_cast<float>(shape.head_dim));
  args.kv_dtype = plan_.policy.kv_dtype;
  args.token_scores_stride = plan_.workspace.prompt.slots();
  args.kv_bits = plan_.policy.kv_bits;
  return args;
}

kernels::BudgetAttentionArgs LayerArgs::Budget(float* qkv, float* out) const {
  const kernels::AttentionArgs args = Attention(qkv, out);
  return {args.q,
          args.k,
          args.v,
          args.qkv_stride,
          args.out,
          args.out_stride,
          {},
          args.num_heads,
          args.num_kv_heads,
          args.head_dim,
          args.scale,
          args.kv_dtype,
          plan_.policy.kv.kind,
          args.kv_bits};
}

std::optional<LayerArgs::RowInChunk> LayerArgs::RowIn(const Cell& cell, const Chunk& chunk,
                                                      std::size_t row) const {
  const PackedRow& packed = cell.batch.rows[row];
  const TokenRange tokens = {std::max(chunk.begin, packed.token_offset),
                             std::min(chunk.end, packed.token_offset + packed.num_new)};
  if (tokens.size() <= 0) return std::nullopt;
  const int64_t kv_class = plan_.kv_class_of[static_cast<std::size_t>(cell.layer.block)];
  const KvPlace& slots = cell.batch.KvPlaceOf(row, kv_class);
  std::byte* kv = cell.places.kv[packed.kv_tier] + slots.slot_begin * plan_.slot_bytes;
  return RowInChunk{packed, slots, kv, tokens, tokens.begin - chunk.begin};
}

kernels::AttentionRow LayerArgs::CachedRow(const RowInChunk& at) {
  const int64_t num_past = at.row.num_past + (at.tokens.begin - at.row.token_offset);
  SPILLWAY_CHECK(num_past + at.tokens.size() <= at.slots.num_slots);
  return {at.kv, at.slots.num_slots, num_past, at.tokens.size(), at.offset, nullptr};
}

LayerArgs::PromptRow LayerArgs::Prompt(const RowInChunk& at) {
  const PromptKvPlan& prompt = plan_.workspace.prompt;
  const int64_t slot = prompt_places_.Place(at.row, at.tokens);
  const int64_t num_past = at.tokens.begin - at.row.token_offset;
  std::byte* kv = device_.As<std::byte>(prompt.kv) + slot * plan_.PromptSlotBytes();
  float* scores = prompt.scores.bytes == 0 ? nullptr : device_.As<float>(prompt.scores) + slot;
  PromptRow row = {
      {kv, RoundUp(at.row.num_new, prompt.align), num_past, at.tokens.size(), at.offset, scores},
      std::nullopt};
  if (num_past + at.tokens.size() == at.row.num_new) {
    row.compact = {kv, scores, at.row.num_new, at.kv, at.slots.num_slots, at.slots.keep};
  }
  return row;
}

kernels::BudgetAttentionRow LayerArgs::BudgetRow(const RowInChunk& at) {
  return {at.kv,           at.slots.num_slots, at.slots.NumHeld(at.row.num_past),
          at.row.num_past, at.slots.keep,      at.offset};
}

}  // namespace spillway
