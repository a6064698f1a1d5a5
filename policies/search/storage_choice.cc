#include "policies/search/storage_choice.h"

namespace spillway {

std::vector<StorageChoice> StorageChoices(std::span<const int> weight_bits,
                                          std::span<const KvBits> kv_bits,
                                          std::span<const TokenAmount> kv_budgets) {
  std::vector<std::optional<TokenAmount>> budgets(kv_budgets.begin(), kv_budgets.end());
  if (budgets.empty()) budgets.emplace_back();
  std::vector<StorageChoice> choices;
  for (const int of_weights : weight_bits) {
    for (const KvBits of_kv : kv_bits) {
      for (const auto& budget : budgets) choices.push_back({of_weights, of_kv, budget});
    }
  }
  return choices;
}

}  // namespace spillway
