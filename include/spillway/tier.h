// The three places where bytes can live, the links between them, and arrays indexed by both.
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

enum class Link { kDiskRead, kDiskWrite, kCpuToGpu, kGpuToCpu };

inline constexpr std::array<Link, 4> kAllLinks = {Link::kDiskRead, Link::kDiskWrite,
                                                  Link::kCpuToGpu, Link::kGpuToCpu};

constexpr std::string_view LinkName(Link link) {
  constexpr std::array<std::string_view, 4> kNames = {"disk_read", "disk_write", "cpu_to_gpu",
                                                      "gpu_to_cpu"};
  return kNames[static_cast<std::size_t>(link)];
}

// One T for each link.
template <typename T>
struct PerLink {
  std::array<T, 4> values{};

  constexpr T& operator[](Link link) { return values[static_cast<std::size_t>(link)]; }
  constexpr const T& operator[](Link link) const { return values[static_cast<std::size_t>(link)]; }
};

}  // namespace spillway
