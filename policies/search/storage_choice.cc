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
      for (const auto& budget : budgets) choices.push_back({of_weights, of_kv, budget, nullptr});
    }
  }
  return choices;
}

std::vector<StorageChoice> CalibratedChoices(std::span<const int> weight_bits,
                                             std::span<const CalibratedKv> settings) {
  std::vector<StorageChoice> choices;
  for (const int of_weights : weight_bits) {
    choices.push_back({of_weights, 16, std::nullopt, nullptr});
    for (const CalibratedKv& setting : settings) {
      choices.push_back(
          {of_weights, setting.bits, std::nullopt, std::make_shared<const CalibratedKv>(setting)});
    }
  }
  return choices;
}

}  // namespace spillway
