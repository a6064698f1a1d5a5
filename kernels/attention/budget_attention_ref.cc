#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/attention/budget_attention.h"
#include "kernels/attention/query_ref.h"
#include "kernels/kv/kv_element_ref.h"
#include "kernels/kv/kv_eviction.h"

namespace spillway::kernels {
namespace {

// One KV head of one row.
struct StepRef {
  const BudgetAttentionArgs& args;
  const BudgetAttentionRow& row;
  KvHead<std::byte> head;
  QueriesRef queries;

  int64_t kv_head() const { return row.kv_head + head.kv_head; }  // of all of the model's
  KvTokenRef Key(int64_t slot) const { return KvTokenRef::Key(head, slot, args.kv_dtype); }
  KvTokenRef Value(int64_t slot) const { return KvTokenRef::Value(head, slot, args.kv_dtype); }
  const float* New(const float* from) const {
    return from + row.token_offset * args.qkv_stride + kv_head() * args.head_dim;
  }
  int64_t TurnRow(int64_t slot) const;
  std::vector<double> Attend(int64_t query_head) const;
  void AddScores() const;
  void Evict() const;
};

int64_t StepRef::TurnRow(int64_t slot) const {
  int64_t later = 0;
  for (int64_t other = 0; other <= row.num_held; ++other)
    later += *head.Position(other) > *head.Position(slot);
  return row.newest_place - later;
}

// Writes the head's output; returns the weights.
std::vector<double> StepRef::Attend(int64_t query_head) const {
  const std::vector<double> q = QueryRef(
      args, args.q + row.token_offset * args.qkv_stride + query_head * args.head_dim, queries);
  float* out = args.out + row.token_offset * args.out_stride + query_head * args.head_dim;
  std::vector<double> weights(static_cast<size_t>(row.num_held + 1));
  for (size_t slot = 0; slot < weights.size(); ++slot) {
    const auto at = static_cast<int64_t>(slot);
    std::vector<double> key = TurnedKeyRef(Key(at), args.turns, TurnRow(at));
    AddMeanRef(args.means, kv_head(), *head.Position(at), key);
    for (size_t d = 0; d < key.size(); ++d) weights[slot] += q[d] * key[d];
    weights[slot] = SoftCapRef(weights[slot], args.soft_cap);
  }
  const double sink = SinkRef(args.sinks, query_head);
  const double maximum = std::max(sink, *std::max_element(weights.begin(), weights.end()));
  double total = std::exp(sink - maximum);
  for (double& weight : weights) total += weight = std::exp(weight - maximum);
  for (double& weight : weights) weight /= total;
  for (int64_t d = 0; d < args.head_dim; ++d) {
    double sum = 0;
    for (size_t slot = 0; slot < weights.size(); ++slot)
      sum += weights[slot] * Value(static_cast<int64_t>(slot)).At(d);
    out[d] = static_cast<float>(sum);
  }
  return weights;
}

void StepRef::AddScores() const {
  const int64_t group = args.num_heads / args.num_kv_heads;
  std::vector<double> sums(static_cast<size_t>(row.num_held + 1));
  for (int64_t query_head = kv_head() * group; query_head < (kv_head() + 1) * group; ++query_head) {
    const std::vector<double> weights = Attend(query_head);
    for (size_t slot = 0; slot < sums.size(); ++slot) sums[slot] += weights[slot];
  }
  if (!UsesScores(args.kind)) return;
  for (size_t slot = 0; slot < sums.size(); ++slot) {
    float* score = head.Score(static_cast<int64_t>(slot));
    *score = static_cast<float>(static_cast<double>(*score) + sums[slot]);
  }
}

void StepRef::Evict() const {
  const PositionRange candidates = Candidates(args.kind, row.keep, row.position);
  int64_t victim = -1;
  const auto standing_of = [&](int64_t slot) {
    if (!UsesScores(args.kind)) return 0.0F;
    return Standing(*head.Score(slot), *head.Position(slot), FirstSeen(row.keep, row.position + 1));
  };
  for (int64_t slot = 0; slot < row.num_held; ++slot) {
    const int32_t position = *head.Position(slot);
    if (position < candidates.first || position > candidates.last) continue;
    const float score = standing_of(slot);
    const float lowest = victim < 0 ? 0.0F : standing_of(victim);
    const bool higher = victim < 0 || position > *head.Position(victim);
    if (victim < 0 || score < lowest || (score == lowest && higher)) victim = slot;
  }
  CopyToken(head, row.num_held, head, victim);
  *head.Score(victim) = *head.Score(row.num_held);
  *head.Position(victim) = *head.Position(row.num_held);
}

void StepAllRef(const BudgetAttentionArgs& args, QueriesRef queries) {
  const int64_t heads = args.RunHeads();
  const int64_t block_bytes =
      KvBlockBytesWithState(heads, args.head_dim, args.kv_bits) + args.kv_block_fill;
  for (const BudgetAttentionRow& row : args.rows) {
    for (int64_t kv_head = 0; kv_head < heads; ++kv_head) {
      const KvHead<std::byte> head{row.kv,  heads,       args.head_dim,
                                   kv_head, block_bytes, args.kv_bits};
      const StepRef step{args, row, head, queries};
      step.Key(row.num_held).Store(step.New(args.k));
      step.Value(row.num_held).Store(step.New(args.v));
      *head.Score(row.num_held) = 0.0F;
      *head.Position(row.num_held) = static_cast<int32_t>(row.position);
      step.AddScores();
      if (row.num_held + 1 > row.keep.slots()) step.Evict();
    }
  }
}

}  // namespace

void BudgetAttentionRef(const BudgetAttentionArgs& args) { StepAllRef(args, QueriesRef::kRounded); }

void BudgetAttentionRefUnrounded(const BudgetAttentionArgs& args) {
  StepAllRef(args, QueriesRef::kAsTheyAre);
}

}  // namespace spillway::kernels
