// Members of JSON objects that have one for each tier, or each link. Pure functions; any thread.
#pragma once

#include <array>
#include <cstddef>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "spillway/tier.h"

namespace spillway {

// Keys of such an object: NamesOf(kAllTiers, TierName).
template <typename T, std::size_t count>
std::vector<std::string_view> NamesOf(const std::array<T, count>& all, std::string_view name(T)) {
  std::vector<std::string_view> names;
  for (const T value : all) names.push_back(name(value));
  return names;
}

template <typename T>
nlohmann::ordered_json PerTierJson(const PerTier<T>& values) {
  auto json = nlohmann::ordered_json::object();
  for (const Tier tier : kAllTiers) json[std::string(TierName(tier))] = values[tier];
  return json;
}

}  // namespace spillway
