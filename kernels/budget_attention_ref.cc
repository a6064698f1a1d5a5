#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/budget_attention.h"
#include "kernels/convert.h"
#include "kernels/kv_eviction.h"
#include "kernels/kv_head.h"

namespace spillway::kernels {
namespace {

// One KV head of one row.
struct StepRef {
  const BudgetAttentionArgs& args;
  const BudgetAttentionRow& row;
  KvHead<std::byte> head;

  double Element(const std::byte* token, int64_t d) const {
    const uint16_t bits = reinterpret_cast<const uint16_t*>(token)[d];
    return args.kv_dtype == DType::kF16 ? HalfToFloat(bits) : BFloat16ToFloat(bits);
  }
  void Store(const float* from, std::byte* to) const {
    const auto narrow = args.kv_dtype == DType::kF16 ? FloatToHalf : FloatToBFloat16;
    from += row.token_offset * args.qkv_stride + head.kv_head * args.head_dim;
    for (int64_t d = 0; d < args.head_dim; ++d)
      reinterpret_cast<uint16_t*>(to)[d] = narrow(from[d]);
  }
  std::vector<double> Attend(int64_t query_head) const;
  void AddScores() const;
  void Evict() const;
};

// Writes the head's output; returns the weights.
std::vector<double> StepRef::Attend(int64_t query_head) const {
  const float* q = args.q + row.token_offset * args.qkv_stride + query_head * args.head_dim;
  float* out = args.out + row.token_offset * args.out_stride + query_head * args.head_dim;
  std::vector<double> weights(static_cast<size_t>(row.num_held + 1));
  for (size_t slot = 0; slot < weights.size(); ++slot) {
    const std::byte* key = head.Key(static_cast<int64_t>(slot));
    for (int64_t d = 0; d < args.head_dim; ++d)
      weights[slot] += static_cast<double>(q[d] * args.scale) * Element(key, d);
  }
  const double maximum = *std::max_element(weights.begin(), weights.end());
  double total = 0;
  for (double& weight : weights) total += weight = std::exp(weight - maximum);
  for (double& weight : weights) weight /= total;
  for (int64_t d = 0; d < args.head_dim; ++d) {
    double sum = 0;
    for (size_t slot = 0; slot < weights.size(); ++slot)
      sum += weights[slot] * Element(head.Value(static_cast<int64_t>(slot)), d);
    out[d] = static_cast<float>(sum);
  }
  return weights;
}

void StepRef::AddScores() const {
  const int64_t group = args.num_heads / args.num_kv_heads;
  std::vector<double> sums(static_cast<size_t>(row.num_held + 1));
  for (int64_t query_head = head.kv_head * group; query_head < (head.kv_head + 1) * group;
       ++query_head) {
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
  for (int64_t slot = 0; slot < row.num_held; ++slot) {
    const int32_t position = *head.Position(slot);
    if (position < candidates.first || position > candidates.last) continue;
    const float score = UsesScores(args.kind) ? OrderedScore(*head.Score(slot)) : 0.0F;
    const float lowest =
        victim < 0 || !UsesScores(args.kind) ? 0.0F : OrderedScore(*head.Score(victim));
    const bool higher = victim < 0 || position > *head.Position(victim);
    if (victim < 0 || score < lowest || (score == lowest && higher)) victim = slot;
  }
  std::copy_n(head.Key(row.num_held), head.TokenBytes(), head.Key(victim));
  std::copy_n(head.Value(row.num_held), head.TokenBytes(), head.Value(victim));
  *head.Score(victim) = *head.Score(row.num_held);
  *head.Position(victim) = *head.Position(row.num_held);
}

}  // namespace

void BudgetAttentionRef(const BudgetAttentionArgs& args) {
  const int64_t block_bytes = KvBlockBytesWithState(args.num_kv_heads, args.head_dim);
  for (const BudgetAttentionRow& row : args.rows) {
    for (int64_t kv_head = 0; kv_head < args.num_kv_heads; ++kv_head) {
      const KvHead<std::byte> head{row.kv, args.num_kv_heads, args.head_dim, kv_head, block_bytes};
      const StepRef step{args, row, head};
      step.Store(args.k, head.Key(row.num_held));
      step.Store(args.v, head.Value(row.num_held));
      *head.Score(row.num_held) = 0.0F;
      *head.Position(row.num_held) = static_cast<int32_t>(row.position);
      step.AddScores();
      if (row.num_held + 1 > row.keep.slots()) step.Evict();
    }
  }
}

}  // namespace spillway::kernels
