#include "src/compute/rope_tables.h"

#include <algorithm>
#include <utility>

#include "kernels/attention/key_centre.h"
#include "kernels/kv/key_turns.h"
#include "spillway/error.h"

namespace spillway {

void FillKeyTurns(const Plan& plan, int64_t first_row, std::span<std::byte> rows,
                  ThreadPool& pool) {
  const Rope& rope = plan.shape.rope;
  const std::vector<float> frequencies = InverseFrequencies(rope);
  kernels::FillKeyTurns({frequencies,
                         static_cast<float>(rope.scaling.attention_factor),
                         first_row,
                         {reinterpret_cast<float*>(rows.data()), rows.size() / sizeof(float)}},
                        pool);
}

void FillSpanTurns(const Rope& rope, const SpanRange& spans, int64_t stride, float* turns,
                   ThreadPool& pool) {
  const std::vector<float> frequencies = InverseFrequencies(rope);
  kernels::FillSpanTurns({frequencies, spans.first, spans.end - spans.first, stride, turns}, pool);
}

void FillSpanTurns(const Plan& plan, float* turns, ThreadPool& pool) {
  const int64_t num_spans = plan.workspace.mean_spans;
  for (const Rope& rope : RopesOf(plan.layers)) {
    FillSpanTurns(rope, {0, num_spans}, plan.shape.head_dim, turns, pool);
    turns += num_spans * plan.shape.head_dim;
  }
}

int64_t RopeTables::MaxTables(const Plan& plan, const Rope& rope) {
  if (!rope.scaling.depends_on_length()) return 1;
  return rope.scaling.kind == RopeScalingKind::kLong ? 2 : plan.batch.rows;
}

int64_t RopeTables::MaxTokens(const Plan& plan, const Rope& rope) {
  if (!rope.scaling.depends_on_length()) return 0;
  return std::max(plan.batch.prompt_tokens, plan.batch.rows);
}

RopeTables::RopeTables(const Plan& plan) : plan_(plan) {
  for (const PlannedLayer& layer : plan.layers) {
    for (const Op& op : layer.ops) {
      const auto* rotate = std::get_if<Rotate>(&op);
      SPILLWAY_CHECK(rotate == nullptr || rotate->rope == *RopeOf(layer.ops));
    }
  }
  int64_t most_tokens = 0;
  for (const Rope& rope : RopesOf(plan.layers)) {
    AddTable(rope);
    most_tokens = std::max(most_tokens, MaxTokens(plan, rope));
  }
  token_tables_.reserve(static_cast<std::size_t>(most_tokens));
}

void RopeTables::AddTable(const Rope& rope) {
  Table table = {rope, InverseFrequencies(rope), {}};
  if (rope.scaling.kind == RopeScalingKind::kLong) {
    const int64_t longer = rope.scaling.original_positions + 1;
    const std::vector<float> of_longer = InverseFrequencies(rope, longer);
    table.frequencies.insert(table.frequencies.end(), of_longer.begin(), of_longer.end());
  } else if (rope.scaling.kind == RopeScalingKind::kDynamic) {
    table.lengths.assign(static_cast<std::size_t>(plan_.num_batches * plan_.batch.rows), -1);
    table.frequencies.resize(table.lengths.size() * static_cast<std::size_t>(rope.dims / 2));
  }
  tables_.push_back(std::move(table));
}

Turns RopeTables::For(const PlannedLayer& layer, const PackedBatch& batch) {
  const Rope* rope = RopeOf(layer.ops);
  if (rope == nullptr) return {};
  Table& table = *std::ranges::find(tables_, *rope, &Table::rope);
  if (!rope->scaling.depends_on_length()) return {table.frequencies, {}};
  token_tables_.clear();
  const bool own = rope->scaling.kind == RopeScalingKind::kDynamic;
  for (std::size_t row = 0; row < batch.rows.size(); ++row) {
    const bool is_long = batch.rows[row].most_tokens > rope->scaling.original_positions;
    token_tables_.insert(token_tables_.end(), static_cast<std::size_t>(batch.rows[row].num_new),
                         own ? static_cast<int32_t>(row) : int32_t{is_long});
  }
  return {own ? OwnFrequencies(table, batch) : table.frequencies, token_tables_};
}

// Frequencies of a batch's rows, made anew where another row has come to the place.
std::span<const float> RopeTables::OwnFrequencies(Table& table, const PackedBatch& batch) {
  const auto pairs = static_cast<std::size_t>(table.rope.dims / 2);
  const auto first = static_cast<std::size_t>(batch.batch * plan_.batch.rows);
  const auto lengths = std::span(table.lengths).subspan(first, batch.rows.size());
  const auto all = std::span(table.frequencies).subspan(first * pairs, lengths.size() * pairs);
  for (std::size_t row = 0; row < lengths.size(); ++row) {
    const int64_t length = batch.rows[row].most_tokens;
    if (length == lengths[row]) continue;
    lengths[row] = length;
    FillInverseFrequencies(table.rope, length, all.subspan(row * pairs, pairs));
  }
  return all;
}

}  // namespace spillway
