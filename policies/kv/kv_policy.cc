#include "spillway/kv_policy.h"

#include <algorithm>
#include <cmath>

#include "spillway/error.h"

namespace spillway {

int64_t TokenAmount::Of(int64_t row_tokens) const {
  if (frac == 0.0) return tokens;
  // 20 % of 5 is 1, whatever 0.2 is in binary.
  return static_cast<int64_t>(std::ceil(frac * static_cast<double>(row_tokens) - 1e-9));
}

KvKeep KeepOf(const KvPolicy& policy, int64_t decoder_layer, int64_t row_tokens) {
  if (!policy.evicts()) return {0, 0, row_tokens};
  SPILLWAY_CHECK(policy.layer_budgets.empty() || decoder_layer < std::ssize(policy.layer_budgets));
  const KvBudget& budget = policy.layer_budgets.empty()
                               ? policy.budget
                               : policy.layer_budgets[static_cast<std::size_t>(decoder_layer)];
  const int64_t kept = budget.kept.Of(row_tokens);
  const bool window = policy.kind == KvPolicyKind::kWindow;
  KvKeep keep;
  keep.sinks = window ? policy.num_sinks : 0;
  keep.heavy = window          ? 0
               : budget.heavy  ? budget.heavy->Of(row_tokens)
               : budget.recent ? kept - budget.recent->Of(row_tokens)
                               : kept / 2;
  keep.heavy = std::max<int64_t>(0, keep.heavy);
  keep.recent = budget.recent ? budget.recent->Of(row_tokens) : kept - keep.heavy - keep.sinks;
  keep.recent = std::max<int64_t>(1, keep.recent);
  // No more than the row has: first what is oldest.
  keep.sinks = std::min(keep.sinks, row_tokens - 1);
  keep.heavy = std::min(keep.heavy, row_tokens - 1 - keep.sinks);
  keep.recent = std::min(keep.recent, row_tokens - keep.sinks - keep.heavy);
  return keep;
}

}  // namespace spillway
