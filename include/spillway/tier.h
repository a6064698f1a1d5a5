// The three places where bytes can live, and an array indexed by them.
// Plain values; any thread.
#pragma once

#include <array>
#include <cstddef>
#include <string_view>

namespace spillway {

enum class Tier { kGpu, kCpu, kDisk };

inline constexpr std::array<Tier, 3> kAllTiers = {Tier::kGpu, Tier::kCpu, Tier::kDisk};

constexpr std::string_view TierName(Tier tier) {
  constexpr std::array<std::string_view, 3> kNames = {"gpu", "cpu", "disk"};
  return kNames[static_cast<std::size_t>(tier)];
}

// One T for each tier: `PerTier<double> weight_frac; weight_frac[Tier::kGpu]`.
template <typename T>
struct PerTier {
  std::array<T, 3> values{};

  constexpr T& operator[](Tier tier) { return values[static_cast<std::size_t>(tier)]; }
  constexpr const T& operator[](Tier tier) const { return values[static_cast<std::size_t>(tier)]; }
  bool operator==(const PerTier&) const = default;
};

// Shares of what lies on one tier as a whole.
constexpr PerTier<double> AllOn(Tier tier) {
  PerTier<double> frac;
  frac[tier] = 1.0;
  return frac;
}

}  // namespace spillway
