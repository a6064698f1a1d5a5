// The cost model: how many bytes each task of the schedule moves over each link, and how long each
// takes on a machine of known rates. The equations of FlexGen (section 4.3) with what they lack:
// memory bandwidth, embedding and head, logits, launch cost, KV of bounded size, CPU attention
// bound by memory. Bytes are those that the Plan placed, so that neither search nor prediction can
// disagree with what runs. Pure functions of values; any thread.
#pragma once

#include <cstdint>
#include <vector>

#include "policies/cost/batch_load.h"
#include "policies/cost/cost_rates.h"
#include "policies/cost/move_bytes.h"
#include "spillway/plan.h"
#include "spillway/schedule.h"  // Task
#include "spillway/tier.h"

namespace spillway {

// Memory of K and V that a run's first block is the first to write.
double FirstTouchSeconds(const Plan& plan, const CostRates& rates, const PerTier<KvLoad>& kv);

// Bytes and seconds that the equations give for each task of one plan.
class CostModel {
 public:
  // Lifetime: the plan outlives the model.
  CostModel(const Plan& plan, CostRates rates);

  PerLink<int64_t> Bytes(const Task& task, const BatchLoad& load) const;
  double Seconds(Link link, TaskKind kind, int64_t bytes) const;
  // Requires: load.rows > 0.
  UnitSeconds Compute(int64_t layer, const BatchLoad& load) const;

  // Bytes of weights that pass through CPU memory while all batches go through a block, from its
  // first layer on.
  int64_t TrafficBytes(int64_t layer) const;

  const Plan& plan() const { return plan_; }
  const CostRates& rates() const { return rates_; }

 private:
  // Matrices of one type.
  struct ProductsSize {
    DType weights = DType::kF16;
    int64_t elements = 0;
    double edges = 0.0;
    int64_t num_products = 0;
    int64_t bytes = 0;
  };
  struct LayerSize {
    std::vector<ProductsSize> products;    // of matrices that all tokens are multiplied with
    std::vector<ProductsSize> of_experts;  // of all experts
    const Experts* experts = nullptr;      // in the plan; null: the layer has none
    int64_t gathered_bytes = 0;            // of tables, for each token
    int num_norms = 0;
    // Elements of a token that are rotated, normed head by head or capped: as of a norm.
    int64_t turned = 0;
    int num_sums = 0;  // passes over the states that add to them, or gather them
    PerLink<int64_t> loads;
    // True where the load begins when all rows have chosen their experts, and brings these alone.
    bool loads_chosen = false;
  };

  LayerSize SizeOf(const PlannedLayer& layer) const;
  UnitSeconds Attention(int64_t layer, const BatchLoad& load) const;
  void AddProduct(const Linear& linear, std::vector<ProductsSize>& sizes) const;
  void AddExperts(const Experts& experts, LayerSize& size) const;
  // `times` so many rows are multiplied with all of these matrices.
  UnitSeconds Products(const std::vector<ProductsSize>& sizes, int64_t rows, double times) const;
  int64_t ChosenBytes(const LayerSize& size, int64_t bytes, const BatchLoad& load) const;
  UnitSeconds ExpertSeconds(const LayerSize& size, int64_t tokens) const;

  const Plan& plan_;
  CostRates rates_;
  bool enqueues_ = false;  // a GPU, which computes while the host launches what comes next
  std::vector<LayerSize> layers_;
};

}  // namespace spillway
