// ByteUse: what a plan's bytes are for, tier by tier. Pure functions of values; any thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "spillway/plan.h"

namespace spillway {

// kStaging: places for what lies in another tier, while it is computed. kBounce: rings between disk
// and a device that is not the CPU. kTables: CPU memory outside the arena. kPadding: what alignment
// leaves unused.
enum class ByteUse {
  kWeights,
  kKv,
  kActivations,
  kStaging,
  kWorkspace,
  kBounce,
  kTables,
  kPadding
};

inline constexpr std::array<ByteUse, 8> kAllByteUses = {
    ByteUse::kWeights,   ByteUse::kKv,     ByteUse::kActivations, ByteUse::kStaging,
    ByteUse::kWorkspace, ByteUse::kBounce, ByteUse::kTables,      ByteUse::kPadding};

constexpr std::string_view ByteUseName(ByteUse use) {
  constexpr std::array<std::string_view, 8> kNames = {
      "weights", "kv", "activations", "staging", "workspace", "bounce", "tables", "padding"};
  return kNames[static_cast<std::size_t>(use)];
}

// Bytes of one tier by use.
struct UsedBytes {
  std::array<int64_t, 8> values{};

  constexpr int64_t& operator[](ByteUse use) { return values[static_cast<std::size_t>(use)]; }
  constexpr int64_t operator[](ByteUse use) const { return values[static_cast<std::size_t>(use)]; }
};

// Every planned byte once: a tier's sum is plan.PlannedBytes(tier).
PerTier<UsedBytes> BytesByUse(const Plan& plan);

}  // namespace spillway
