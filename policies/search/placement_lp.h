// PlacementLp: for a block of a given shape, the shares of weights, KV and activations in the tiers
// that make it fastest, as a linear program (FlexGen, section 4.3). A pass takes as long as its
// busiest link or the computes; memory and time grow linearly with the shares. Every coefficient is
// read off the plan's own layout and the cost model, at the corners where a class lies in one tier.
// Where the CPU attends beside a GPU, KV has no share on it. Thread rule: values; Solve is pure.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "policies/cost/cost_model.h"
#include "policies/search/linear_program.h"
#include "policies/search/placement.h"
#include "spillway/plan.h"

namespace spillway {

struct PlacementAnswer {
  Placement placement;
  double block_s = 0.0;  // prefill and all decode passes
  std::string bound_by;  // the limits that cost most time: "decode disk_read, cpu memory"
};

// What tiers lack, when no placement fits: at least so many bytes, all of them together.
struct Shortage {
  PerTier<int64_t> bytes;

  Tier most() const {
    return *std::ranges::max_element(kAllTiers, {}, [this](Tier tier) { return bytes[tier]; });
  }
};

// A block's bytes and seconds as functions of its placement.
class PlacementLp {
 public:
  // Takes batches of policy.gpu_batch_size rows; the policy's shares and number of batches do not
  // count. Requires: KnowsRates(machine).
  PlacementLp(const Model& model, const Machine& machine, const Workload& work,
              const Policy& policy, const KernelNeeds& needs);

  struct Limits {
    int64_t num_batches = 1;
    PerTier<int64_t> cap_bytes;
    std::optional<PerTier<double>> weights;  // fixed shares
    std::optional<PerTier<double>> kv;
    std::optional<PerTier<double>> activations;
  };
  // nullopt: nothing fits.
  std::optional<PlacementAnswer> Solve(const Limits& limits) const;
  // Requires: Solve gives nullopt. What is lacking where that is least in all.
  Shortage ShortageOf(const Limits& limits) const;

 private:
  // Everything that is linear in the shares. Of a pass of each kind (prefill, decode): seconds of
  // each link for the weights, and for the KV and the states of one batch; of its computes.
  struct PassCost {
    PerLink<double> weights_s;
    PerLink<double> kv_s;
    PerLink<double> hidden_s;
    double compute_s = 0.0;
    // CPU attention beside a GPU: seconds for a batch, and those that the CPU's memory needs for it
    // and for what the links bring: weights, and KV of a batch.
    double cpu_attention_s = 0.0;
    double weights_memory_s = 0.0;
    double kv_memory_s = 0.0;
  };
  struct Sample {
    PerTier<double> fixed_bytes;
    PerTier<double> batch_bytes;
    std::array<PassCost, 2> passes;
  };

  RequestShape MeanRow() const;
  Sample SampleAt(const Placement& placement) const;
  void AddBytes(const Plan& plan, const Placement& placement, Sample& sample) const;
  PassCost CostOfPass(const CostModel& model, const BatchLoad& load, std::size_t pass) const;
  // Returns the layer of the first block that attends.
  int64_t AddLayers(const CostModel& model, const BatchLoad& load, PassCost& cost) const;
  void AddCpuAttention(const CostModel& model, const BatchLoad& load, PassCost& cost) const;
  enum class Store { kByShare, kWhole, kNone };
  LinearProgram Program(const Limits& limits, Store store) const;
  template <typename F>
  LpRow RowOf(F value_of) const;
  void AddShareRows(const Limits& limits, LinearProgram& program) const;
  void AddMemoryRows(const Limits& limits, LinearProgram& program) const;
  void AddLinkRows(const Limits& limits, std::size_t pass, LinearProgram& program) const;
  void AddTimeRows(const Limits& limits, LinearProgram& program) const;
  PlacementAnswer AnswerOf(const LpSolution& solution) const;

  int64_t num_blocks_;
  int64_t prompt_pairs_ = 0;  // mean of the layers, of a row's prompt
  Model skeleton_;            // the model with few blocks, which are all alike
  Machine machine_;
  Workload work_;
  int64_t prefix_tokens_ = 0;  // of work_, that plans hold once
  bool evicts_ = false;        // whether the policy does, or windows of layers do
  Policy policy_;
  KernelNeeds needs_;
  double decode_passes_ = 0.0;
  Sample base_;                               // all on the device
  std::array<PerTier<Sample>, 3> at_corner_;  // one class in one tier, the others on the device
};

}  // namespace spillway
