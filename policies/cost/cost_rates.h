// Rates of computes and links on a machine, and the units that seconds of a compute are filed
// under. Plain values; any thread.
#pragma once

#include <array>
#include <cstddef>
#include <string>

#include "spillway/machine.h"

namespace spillway {

// Parts of the time of a compute of one layer for one batch, one after the other.
enum class CostUnit {
  kMatmul,
  kMemory,
  kAttention,
  kCpuAttention,
  kStates,  // norms and residual sums
  kLogits,
  kSampling,
  kLaunch
};

inline constexpr std::array<CostUnit, 8> kAllCostUnits = {
    CostUnit::kMatmul, CostUnit::kMemory, CostUnit::kAttention, CostUnit::kCpuAttention,
    CostUnit::kStates, CostUnit::kLogits, CostUnit::kSampling,  CostUnit::kLaunch};

// "gpu matmul", "cpu memory"; attention by the CPU and sampling are the CPU's on any device.
std::string CostUnitName(CostUnit unit, Tier device);

struct UnitSeconds {
  std::array<double, kAllCostUnits.size()> values{};

  double& operator[](CostUnit unit) { return values[static_cast<std::size_t>(unit)]; }
  double operator[](CostUnit unit) const { return values[static_cast<std::size_t>(unit)]; }
  UnitSeconds& operator+=(const UnitSeconds& other);
  double total_s() const;
};

// The rates of a run. KV may cross the links at a pace of its own (FlexGen's unpinned KV), and the
// disk may give the weights' file another rate than others.
struct CostRates {
  PerLink<double> link_bytes_per_s;
  PerLink<double> kv_bytes_per_s;
  double store_bytes_per_s = 0.0;      // weights from disk; 0: as the link
  PerLink<SharedPace> beside_compute;  // of links and the device
  double disk_both_frac = 1.0;         // of reads and writes
  DeviceRates device;
  DeviceRates cpu;
};

// Tells whether enough is known of the machine to predict anything.
bool KnowsRates(const Machine& machine);

// The machine's plain rates. A GPU that is emulated computes at the CPU's rates, and its links copy
// within CPU memory. Requires: KnowsRates.
CostRates RatesOf(const Machine& machine);

// Seconds; 0 where the rate is not known.
inline double Over(double amount, double rate) { return rate > 0.0 ? amount / rate : 0.0; }

}  // namespace spillway
