// StorageChoice: what the search may choose of how much a weight, or a row's KV, takes. It trades
// accuracy for room, so nothing of it is tried unless the user allows it.
// Plain values; any thread.
#pragma once

#include <array>
#include <optional>
#include <span>
#include <vector>

#include "spillway/kv_policy.h"

namespace spillway {

// Bits that a number may be stored in, of those that this version stores.
inline constexpr std::array kWeightBits = {16};
inline constexpr std::array kKvBits = {16};

struct StorageChoice {
  int weight_bits = 16;
  int kv_bits = 16;
  std::optional<TokenAmount> kv_budget;  // nullopt: the budget that is given

  bool operator==(const StorageChoice&) const = default;
};

// Every combination of the bits (16 alone, or all that are stored) and the budgets (the given one
// where there are none). Never empty; the given one in 16 bits comes first where it is among them.
std::vector<StorageChoice> StorageChoices(bool fewer_bits, std::span<const TokenAmount> kv_budgets);

}  // namespace spillway
