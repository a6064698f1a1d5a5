// The cost model: how many bytes each task of the schedule moves over each link, and how long each
// takes on a machine of known rates. The equations of FlexGen (section 4.3) with what they lack:
// memory bandwidth, embedding and head, logits, launch cost, KV of bounded size, CPU attention
// bound by memory. Bytes are those that the Plan placed, so that neither search nor prediction can
// disagree with what runs. Pure functions of values; any thread.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "policies/cost/batch_load.h"
#include "spillway/plan.h"
#include "spillway/schedule.h"  // Task
#include "spillway/tier.h"

namespace spillway {

// What a compute of one layer for one batch spends its time on, one after the other.
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

// Whether enough is known of the machine to predict anything.
bool KnowsRates(const Machine& machine);

// The machine's plain rates. A GPU that is emulated computes at the CPU's rates, and its links copy
// within CPU memory. Requires: KnowsRates.
CostRates RatesOf(const Machine& machine);

// Bytes that a batch's rows, or one layer's weights, move over each link.
PerLink<int64_t> WeightBytes(const Plan& plan, int64_t layer);  // to the device, for one pass
PerLink<int64_t> FirstWeightBytes(const Plan& plan);  // the embedding's, when no head was before it
PerLink<int64_t> KvInBytes(const Plan& plan, const PerTier<KvLoad>& kv);
// With what a pass reads of the rows' log (KvLogPlan).
PerLink<int64_t> KvInBytes(const Plan& plan, const Cursor& cell, const PerTier<KvLoad>& kv);
PerLink<int64_t> KvOutBytes(const Plan& plan, const Cursor& cell, const PerTier<KvLoad>& kv);
PerLink<int64_t> HiddenInBytes(const Plan& plan, const BatchLoad& load);
PerLink<int64_t> HiddenOutBytes(const Plan& plan, const BatchLoad& load);

// A product of `rows` rows with matrices of `elements` numbers: arithmetic at the rate measured for
// so many rows, or reading the weights, whichever is longer.
struct ProductSize {
  int64_t rows = 0;
  int64_t elements = 0;
  int64_t bytes = 0;
  double edges = 0.0;  // (inputs + outputs) / 2 of each matrix: what a row is read and written of
  DType weights = DType::kF16;
};
UnitSeconds ProductSeconds(const DeviceRates& rates, const ProductSize& size);

// Scores, softmax and the sum of values. The softmax takes as long for heads of any width; the rest
// grows with the width.
double PrefillAttentionSeconds(const Plan& plan, const DeviceRates& rates, int64_t pairs);
// The prompt's K and V go to the cache, token by token.
double KvAppendSeconds(const Plan& plan, const DeviceRates& rates, int64_t tokens);
// What a prompt costs beyond its attention where tokens are evicted: scores of all, and the choice.
double PrefillEvictionSeconds(const Plan& plan, const DeviceRates& rates, int64_t pairs);
// Memory of K and V that a run's first block is the first to write.
double FirstTouchSeconds(const Plan& plan, const CostRates& rates, const PerTier<KvLoad>& kv);
double DecodeAttentionSeconds(const Plan& plan, const DeviceRates& rates, int64_t tokens);

// What CPU attention reads of a batch's KV in one block.
int64_t CpuAttentionBytes(const Plan& plan, const PerTier<KvLoad>& kv);
// CPU attention to a batch's KV in one block reads it at its own rate on a cache of the plan's
// bits, or at what the links leave of the memory's, which is all once their `traffic_bytes` have
// passed.
double CpuAttentionSeconds(const Plan& plan, const CostRates& rates, const PerTier<KvLoad>& kv,
                           int64_t traffic_bytes);
// Beside a GPU its rows' q, k and v cross to the CPU in fp32 (KvOutBytes has k and v as the cache
// has), and what was attended goes back.
double HostRowsSeconds(const Plan& plan, const CostRates& rates, const PerTier<KvLoad>& kv);
// A pass over the states of all tokens that norms them, and one that adds to them.
double NormSeconds(const Plan& plan, const DeviceRates& rates, int64_t tokens);
double ResidualSeconds(const Plan& plan, const DeviceRates& rates, int64_t tokens);
// From the head to the CPU, which chooses the tokens.
double LogitsSeconds(const Plan& plan, const CostRates& rates, int64_t rows);
// Greedy: each row's logits are looked through by one of the CPU's threads.
double SamplingSeconds(const Plan& plan, const DeviceRates& cpu, int64_t rows);

// What the equations give for each task of one plan.
class CostModel {
 public:
  // Lifetime: the plan outlives the model.
  CostModel(const Plan& plan, CostRates rates);

  PerLink<int64_t> Bytes(const Task& task, const BatchLoad& load) const;
  double Seconds(Link link, TaskKind kind, int64_t bytes) const;
  // Requires: load.rows > 0.
  UnitSeconds Compute(int64_t layer, const BatchLoad& load) const;

  // Of weights that pass through CPU memory while all batches go through a block, from its first
  // layer on.
  int64_t TrafficBytes(int64_t layer) const;

  const Plan& plan() const { return plan_; }
  const CostRates& rates() const { return rates_; }

 private:
  struct LayerSize {
    int64_t elements = 0;  // of matrices that all tokens are multiplied with
    double edges = 0.0;
    int64_t bytes = 0;
    int64_t gathered_bytes = 0;  // of tables, for each token
    int num_norms = 0;
    int num_sums = 0;  // passes over the states that add to them, or gather them
    PerLink<int64_t> loads;
  };

  LayerSize SizeOf(const PlannedLayer& layer) const;
  UnitSeconds Attention(int64_t layer, const BatchLoad& load) const;

  const Plan& plan_;
  CostRates rates_;
  std::vector<LayerSize> layers_;
};

}  // namespace spillway
