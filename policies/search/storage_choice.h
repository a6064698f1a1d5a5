// StorageChoice: what the search may choose of how much a weight, or a row's KV, takes. It trades
// accuracy for room, so nothing of it is tried unless the user allows it.
// Plain values; any thread.
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "policies/search/calibrated_kv.h"
#include "spillway/kv_policy.h"

namespace spillway {

// Bits that a weight, or an element of K or V, can be stored in.
inline constexpr std::array kStoredBits = {16, 8, 4};

// Bits of K and V that are tried. Keys need more of them than values.
inline constexpr std::array kStoredKvBits = {KvBits(16), KvBits(8), KvBits(8, 4), KvBits(4)};

struct StorageChoice {
  int weight_bits = 16;
  KvBits kv_bits = {};
  std::optional<TokenAmount> kv_budget;  // nullopt: the budget that is given
  // In place of the KV policy and the bits that are given; null: none.
  std::shared_ptr<const CalibratedKv> calibrated = nullptr;

  // In nats a token, as far as it was measured.
  double loss() const { return calibrated == nullptr ? 0.0 : calibrated->loss; }
  bool operator==(const StorageChoice&) const = default;
};

// Every combination of the bits and the budgets (the given one where there are none), in the order
// of the lists. Requires: a number of bits for each.
std::vector<StorageChoice> StorageChoices(std::span<const int> weight_bits,
                                          std::span<const KvBits> kv_bits,
                                          std::span<const TokenAmount> kv_budgets);

// Each number of bits with a full cache of 16 bits and with each of the settings.
std::vector<StorageChoice> CalibratedChoices(std::span<const int> weight_bits,
                                             std::span<const CalibratedKv> settings);

}  // namespace spillway
