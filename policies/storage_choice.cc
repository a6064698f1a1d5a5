#include "policies/storage_choice.h"

namespace spillway {
namespace {

std::vector<int> Allowed(std::span<const int> stored, bool fewer_bits) {
  return fewer_bits ? std::vector<int>(stored.begin(), stored.end()) : std::vector<int>{16};
}

}  // namespace

std::vector<StorageChoice> StorageChoices(bool fewer_bits,
                                          std::span<const TokenAmount> kv_budgets) {
  std::vector<std::optional<TokenAmount>> budgets(kv_budgets.begin(), kv_budgets.end());
  if (budgets.empty()) budgets.emplace_back();
  std::vector<StorageChoice> choices;
  for (const int weight_bits : Allowed(kWeightBits, fewer_bits)) {
    for (const int kv_bits : Allowed(kKvBits, fewer_bits)) {
      for (const auto& budget : budgets) choices.push_back({weight_bits, kv_bits, budget});
    }
  }
  return choices;
}

}  // namespace spillway
