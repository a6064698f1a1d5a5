#include "spillway/kv_policy.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "spillway/error.h"

namespace spillway {

std::string KvBitsText(KvBits bits) {
  const std::string of_keys = std::to_string(bits.key);
  return bits.key == bits.value ? of_keys : of_keys + "," + std::to_string(bits.value);
}

int64_t TokenAmount::Of(int64_t row_tokens) const {
  if (frac == 0.0) return tokens;
  // 20 % of 5 is 1, whatever 0.2 is in binary.
  return static_cast<int64_t>(std::ceil(frac * static_cast<double>(row_tokens) - 1e-9));
}

KvBudgetFault FaultOf(const KvBudget& budget, const KvPolicy& policy) {
  const bool window = policy.kind == KvPolicyKind::kWindow;
  if (window && budget.heavy) return KvBudgetFault::kHeavyInWindow;
  if ((budget.heavy && budget.recent) || budget.kept.frac != 0.0) return KvBudgetFault::kNone;
  const auto counted = [](const std::optional<TokenAmount>& part) {
    return part && part->frac == 0.0 ? part->tokens : 0;
  };
  const int64_t kept = budget.kept.tokens;
  if (counted(budget.heavy) >= kept) return KvBudgetFault::kHeavyTakesAll;
  if (counted(budget.recent) > kept) return KvBudgetFault::kRecentIsMore;
  if (!budget.recent && policy.num_sinks >= kept) return KvBudgetFault::kSinksTakeAll;
  return KvBudgetFault::kNone;
}

namespace {

const KvBudget& BudgetOf(const KvPolicy& policy, const KvHeadAt& at) {
  const auto layer = static_cast<std::size_t>(at.decoder_layer);
  if (!policy.head_budgets.empty())
    return policy.head_budgets.at(layer).at(static_cast<std::size_t>(at.kv_head));
  return policy.layer_budgets.empty() ? policy.budget : policy.layer_budgets.at(layer);
}

KvKeep BudgetKeep(const KvPolicy& policy, const KvBudget& budget, int64_t row_tokens) {
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

// A budget that holds the window holds the most recent tokens: those that the next token sees.
KvKeep WithinWindow(const KvKeep& keep, int64_t window) {
  const int64_t slots = std::min(keep.slots(), window - 1);
  if (keep.sinks > 0 || slots == window - 1) return {0, 0, slots, window};
  return {0, keep.heavy, keep.recent, window};
}

KvKeep KeepBy(const KvPolicy& policy, const KvBudget& budget, int64_t decoder_layer,
              int64_t row_tokens) {
  if (!policy.evicts()) return {0, 0, row_tokens};
  const KvKeep keep = BudgetKeep(policy, budget, row_tokens);
  if (policy.layer_windows.empty()) return keep;
  const int64_t window = policy.layer_windows[static_cast<std::size_t>(decoder_layer)];
  return window == 0 || row_tokens <= window ? keep : WithinWindow(keep, window);
}

}  // namespace

KvPolicy WithWindows(KvPolicy policy, std::vector<int64_t> layer_windows, int64_t longest_row) {
  const auto is_short = [&](int64_t window) { return window > 0 && window < longest_row; };
  if (std::ranges::none_of(layer_windows, is_short)) return policy;
  policy.layer_windows = std::move(layer_windows);
  if (policy.evicts()) return policy;
  policy.kind = KvPolicyKind::kWindow;
  policy.budget = {{1.0, 0}, {}, {}};
  return policy;
}

KvKeep KeepOf(const KvPolicy& policy, const KvHeadAt& at, int64_t row_tokens) {
  return KeepBy(policy, BudgetOf(policy, at), at.decoder_layer, row_tokens);
}

KvKeep KeepOf(const KvPolicy& policy, const KvHeadAt& at, int64_t row_tokens, const KvLess& less) {
  if (!less.IsAt(at)) return KeepOf(policy, at, row_tokens);
  return KeepBy(policy, {{less.kept_frac, 0}, {}, {}}, at.decoder_layer, row_tokens);
}

int64_t MostKept(const KvPolicy& policy, int64_t row_tokens) {
  if (policy.layer_budgets.empty() && policy.head_budgets.empty())
    return BudgetKeep(policy, policy.budget, row_tokens).slots();
  int64_t most = 0;
  const auto take = [&](const KvBudget& budget) {
    most = std::max(most, BudgetKeep(policy, budget, row_tokens).slots());
  };
  std::ranges::for_each(policy.layer_budgets, take);
  for (const std::vector<KvBudget>& heads : policy.head_budgets) std::ranges::for_each(heads, take);
  return most;
}

namespace {

std::string WhyTooManyKept(const KvPolicy& policy, int64_t max_positions, int64_t row_tokens) {
  const int64_t kept = MostKept(policy, row_tokens);
  if (row_tokens <= max_positions || kept < max_positions) return {};
  return fmt::format(
      "a row of {} tokens keeps {} of them, and a rolling cache must be smaller than "
      "the model's {} positions; let it keep fewer, a number of tokens",
      row_tokens, kept, max_positions);
}

}  // namespace

std::string WhyTooLong(const KvPolicy& policy, int64_t max_positions, const RowLength& row) {
  const auto [prompt_tokens, max_new_tokens] = row;
  if (prompt_tokens > max_positions) {
    return fmt::format("prompt of {} tokens is over the model's {} positions; shorten the prompt",
                       prompt_tokens, max_positions);
  }
  const int64_t most = policy.rolls ? kMostRowTokens : max_positions;
  if (prompt_tokens > most || max_new_tokens > most - prompt_tokens) {
    return fmt::format(
        "prompt of {} tokens + max_tokens {} is over {} {} positions; shorten the "
        "prompt or lower max_tokens",
        prompt_tokens, max_new_tokens, policy.rolls ? "a row's" : "the model's", most);
  }
  if (!policy.rolls) return {};
  return WhyTooManyKept(policy, max_positions, prompt_tokens + max_new_tokens);
}

SlotRange ChangedSlots(KvPolicyKind kind, const KvKeep& keep, const RowProgress& row) {
  const int64_t slots = keep.slots();
  const int64_t held = std::min(row.num_past + row.num_new, slots);
  if (UsesScores(kind) || row.num_past == 0) return {0, held};
  if (row.num_past < slots) return {row.num_past, held};
  SPILLWAY_CHECK(row.num_new == 1);
  const int64_t num_evicted = row.num_past - std::max(row.prompt_tokens, slots);
  const int64_t slot = keep.sinks + num_evicted % keep.recent;
  return {slot, slot + 1};
}

}  // namespace spillway
