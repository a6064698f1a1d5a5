#include "src/compute/layer_args.h"

#include <algorithm>

#include "spillway/error.h"
#include "spillway/kv_block.h"
#include "spillway/round.h"
#include "src/compute/prefix_prompt.h"

namespace spillway {

LayerArgs::LayerArgs(const Plan& plan, const Arena& device)
    : plan_(plan),
      device_(device),
      prompt_places_(plan.workspace.prompt),
      ropes_(RopesOf(plan.layers)) {
  std::size_t max_tiles = 0;
  for (const PlannedLayer& layer : plan.layers) {
    for (const PlannedTensor& tensor : layer.tensors)
      max_tiles = std::max(max_tiles, tensor.tiles.size());
  }
  table_pieces_.reserve(max_tiles);
}

std::span<const kernels::EmbeddingPiece> LayerArgs::Pieces(const PlannedTensor& table) {
  table_pieces_.clear();
  for (const WeightTile& tile : table.tiles) {
    table_pieces_.push_back({device_.As<std::byte>({tile.place, TileBytes(table.spec, tile)}),
                             tile.row_begin, tile.row_end});
  }
  return table_pieces_;
}

LayerArgs::Chunk LayerArgs::ChunkAt(const Cell& cell, int64_t begin, int64_t end) const {
  return {begin,
          std::min(end, begin + plan_.workspace.chunk_tokens),
          {Hidden(cell, begin), StateWidth(plan_.shape)}};
}

float* LayerArgs::Hidden(const Cell& cell, int64_t token) const {
  const Tier tier = cell.batch.HiddenTierOf(token);
  return cell.places.hidden[tier] +
         (token - cell.batch.hidden[tier].begin) * StateWidth(plan_.shape);
}

kernels::KeyTurns LayerArgs::Turns() const {
  if (!plan_.kept.rolls) return {};
  const Rope& rope = plan_.shape.rope;
  return {device_.As<const float>(plan_.workspace.key_turns), plan_.workspace.turn_rows, rope.dims,
          rope.pairs};
}

kernels::KeyMeans LayerArgs::Means() const {
  if (!plan_.centres_keys) return {};
  return {device_.As<const float>(plan_.workspace.key_means), plan_.workspace.mean_spans};
}

kernels::AttentionTensors LayerArgs::Tensors(const Attend& op, float* qkv, float* out) const {
  const ModelShape& shape = plan_.shape;
  kernels::AttentionTensors tensors;
  tensors.q = qkv;
  tensors.k = qkv + WidthOf(shape, Buf::kAttended);
  tensors.v = tensors.k + shape.num_kv_heads * shape.head_dim;
  tensors.qkv_stride = WidthOf(shape, op.qkv);
  tensors.out = out;
  tensors.out_stride = WidthOf(shape, op.y);
  tensors.num_heads = shape.num_heads;
  tensors.num_kv_heads = shape.num_kv_heads;
  tensors.head_dim = shape.head_dim;
  tensors.scale = op.scale;
  tensors.soft_cap = op.soft_cap;
  tensors.sinks = Sinks(op);
  tensors.kv_dtype = plan_.policy.kv_dtype;
  tensors.kv_bits = plan_.policy.kv_bits;
  tensors.kv_block_fill = plan_.PromptBlockFill();
  tensors.turns = Turns();
  tensors.means = Means();
  return tensors;
}

// Heads of queries, keys and values lie side by side.
kernels::HeadTurnArgs LayerArgs::TurnedInputs(float* qkv, int64_t rows) const {
  const ModelShape& shape = plan_.shape;
  const int64_t values = shape.num_heads + shape.num_kv_heads;  // heads before them
  const int64_t begin = plan_.TurnsKeys() ? 0 : values;
  const int64_t end = plan_.TurnsValues() ? values + shape.num_kv_heads : values;
  return {qkv + begin * shape.head_dim, WidthOf(shape, Buf::kQkv), begin < end ? rows : 0,
          end - begin, shape.head_dim};
}

kernels::HeadTurnArgs LayerArgs::TurnedOutputs(float* attended, int64_t rows) const {
  const ModelShape& shape = plan_.shape;
  return {attended, WidthOf(shape, Buf::kAttended), plan_.TurnsValues() ? rows : 0, shape.num_heads,
          shape.head_dim};
}

kernels::CentreKeysArgs LayerArgs::CentredKeys(float* qkv, int64_t rows,
                                               const int32_t* positions) const {
  const ModelShape& shape = plan_.shape;
  return {qkv + WidthOf(shape, Buf::kAttended),
          WidthOf(shape, Buf::kQkv),
          rows,
          positions,
          shape.num_kv_heads,
          shape.head_dim,
          Means()};
}

LayerArgs::MeansMemory LayerArgs::WorkspaceMeans(const float* means) const {
  const WorkspacePlan& work = plan_.workspace;
  return {means, device_.As<const float>(work.span_turns), device_.As<float>(work.key_means)};
}

kernels::SpanMeanArgs LayerArgs::SpanMeans(const PlannedLayer& layer, const MeansMemory& memory,
                                           const SpanRange& spans) const {
  const int64_t num_spans = plan_.workspace.mean_spans;
  const Rope& rope = *RopeOf(layer.ops);
  const int64_t width = plan_.shape.head_dim;
  const auto index = std::ranges::find(ropes_, rope) - ropes_.begin();
  return {memory.means,
          memory.span_turns + index * num_spans * width,
          width,
          {rope.dims, rope.pairs},
          plan_.shape.num_kv_heads,
          num_spans,
          width,
          memory.table,
          spans.first,
          spans.end};
}

kernels::AttentionArgs LayerArgs::Attention(const Attend& op, float* qkv, float* out,
                                            std::span<const kernels::AttentionRow> rows) const {
  return {Tensors(op, qkv, out), rows, plan_.workspace.prompt.columns(), op.window};
}

kernels::BudgetAttentionArgs LayerArgs::Budget(
    const Attend& op, float* qkv, float* out,
    std::span<const kernels::BudgetAttentionRow> rows) const {
  kernels::AttentionTensors tensors = Tensors(op, qkv, out);
  tensors.kv_block_fill = plan_.kv_block_fill;
  return {tensors, rows, plan_.kept.kind, plan_.RunHeads()};
}

std::optional<LayerArgs::RowInChunk> LayerArgs::RowIn(const Cell& cell, const Chunk& chunk,
                                                      std::size_t row) const {
  const PackedRow& packed = cell.batch.rows[row];
  const TokenRange tokens = {std::max(chunk.begin, packed.token_offset),
                             std::min(chunk.end, packed.token_offset + packed.num_new)};
  if (tokens.size() <= 0) return std::nullopt;
  return RowInChunk{
      packed, cell.layer.decoder_layer,  KvClassOf(cell), PlaceOf(cell, row), CacheOf(cell, row),
      tokens, tokens.begin - chunk.begin};
}

const KvPlace& LayerArgs::PlaceOf(const Cell& cell, std::size_t row) const {
  return cell.batch.KvPlaceOf(row, KvClassOf(cell));
}

std::byte* LayerArgs::CacheOf(const Cell& cell, std::size_t row) const {
  return cell.places.kv[cell.batch.rows[row].kv_tier] +
         PlaceOf(cell, row).slot_begin * plan_.slot_bytes;
}

std::optional<kernels::KvRun> LayerArgs::SharedRun(const Cell& cell, const RowInChunk& at) const {
  if (at.row.shared_row < 0 || at.tokens.begin > at.row.token_offset) return std::nullopt;
  return kernels::KvRun{CacheOf(cell, static_cast<std::size_t>(at.row.shared_row)), at.kv,
                        at.row.num_shared * plan_.slot_bytes};
}

kernels::AttentionRow LayerArgs::CachedRow(const RowInChunk& at) const {
  const int64_t num_past =
      at.row.num_past + at.row.num_shared + (at.tokens.begin - at.row.token_offset);
  SPILLWAY_CHECK(num_past + at.tokens.size() <= at.slots.num_slots);
  const int64_t prefix = plan_.prefix.num_tokens();
  kernels::AttentionRow row = {
      at.kv, prefix + at.slots.num_slots, prefix + num_past, at.tokens.size(), at.offset, nullptr};
  if (prefix == 0) return row;
  row.prefix = PrefixKv(plan_, device_, at.decoder_layer);
  row.prefix_slots = prefix;
  return row;
}

LayerArgs::PromptRow LayerArgs::Prompt(const RowInChunk& at) {
  const PromptKvPlan& prompt = plan_.workspace.prompt;
  const auto [slot, column] = prompt_places_.PlaceOf(at.row, at.tokens);
  const int64_t prefix = at.row.num_shared;
  const int64_t num_past = prefix + at.tokens.begin - at.row.token_offset;
  PromptRow row;
  row.attention.kv = device_.As<std::byte>(prompt.kv) + slot * plan_.PromptSlotBytes();
  row.attention.num_slots = prefix + RoundUp(at.row.num_new, prompt.align);
  row.attention.num_past = num_past;
  row.attention.num_new = at.tokens.size();
  row.attention.token_offset = at.offset;
  if (prompt.scores.bytes > 0)
    row.attention.token_scores = device_.As<float>(prompt.scores) + column;
  row.column = column;
  row.begins = num_past == prefix;
  row.ends = num_past + at.tokens.size() == prefix + at.row.num_new;
  if (prefix == 0) return row;
  row.attention.prefix = PrefixKv(plan_, device_, at.decoder_layer);
  row.attention.prefix_slots = prefix;
  row.prefix_scores = PrefixScores(plan_, device_, at.decoder_layer);
  return row;
}

}  // namespace spillway
