#include "policies/cost/cost_rates.h"

#include <fmt/format.h>

#include <numeric>
#include <string_view>

#include "spillway/error.h"

namespace spillway {

std::string CostUnitName(CostUnit unit, Tier device) {
  constexpr std::array<std::string_view, kAllCostUnits.size()> kNames = {
      "matmul", "memory", "attention", "attention", "states", "logits", "sampling", "launch"};
  const bool on_cpu = unit == CostUnit::kCpuAttention || unit == CostUnit::kSampling;
  return fmt::format("{} {}", TierName(on_cpu ? Tier::kCpu : device),
                     kNames[static_cast<std::size_t>(unit)]);
}

UnitSeconds& UnitSeconds::operator+=(const UnitSeconds& other) {
  for (std::size_t unit = 0; unit < values.size(); ++unit) values[unit] += other.values[unit];
  return *this;
}

double UnitSeconds::total_s() const { return std::accumulate(values.begin(), values.end(), 0.0); }

bool KnowsRates(const Machine& machine) { return !machine.rates.cpu.matmul.empty(); }

CostRates RatesOf(const Machine& machine) {
  SPILLWAY_CHECK(KnowsRates(machine));
  CostRates rates;
  rates.cpu = machine.rates.cpu;
  const bool has_gpu = machine.device == Tier::kGpu && !machine.rates.gpu.matmul.empty();
  rates.device = has_gpu ? machine.rates.gpu : machine.rates.cpu;
  // A GPU's own engines copy beside its computes.
  if (!has_gpu || machine.rates.gpu == machine.rates.cpu)
    rates.beside_compute = machine.rates.beside_compute;
  rates.link_bytes_per_s = machine.rates.link_bytes_per_s;
  rates.disk_both_frac = machine.rates.disk_both_frac;
  for (const Link link : {Link::kCpuToGpu, Link::kGpuToCpu}) {
    // A copy reads and writes memory.
    double& rate = rates.link_bytes_per_s[link];
    if (machine.device == Tier::kGpu && rate == 0.0) rate = rates.cpu.memory_bytes_per_s / 2.0;
  }
  rates.kv_bytes_per_s = rates.link_bytes_per_s;
  rates.store_bytes_per_s = machine.rates.store_bytes_per_s;
  return rates;
}

}  // namespace spillway
