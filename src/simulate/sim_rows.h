// SimRows: which rows run in which batch and pass, as lengths alone: the composition that
// BlockBuilder and RowBatch give, without the tokens. Thread rule: one thread.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "policies/cost/batch_load.h"
#include "spillway/plan.h"
#include "spillway/workload.h"

namespace spillway {

// The running rows of one batch; rows that are alike are counted together.
class SimBatch {
 public:
  // Lifetime: the plan outlives the batch.
  explicit SimBatch(const Plan& plan) : plan_(&plan) {}

  bool Admits(const RequestShape& row) const;
  void Add(const RequestShape& row);  // Requires: Admits
  // What the next pass feeds.
  BatchLoad Load() const { return LoadOf(*plan_, groups_); }
  // Takes the rows `passes` further; the ones that end leave. Requires: passes <= PassesToEnd().
  void Advance(int64_t passes);

  bool empty() const { return groups_.empty(); }
  bool IsFull() const { return NumRows() == plan_->batch.rows; }
  int64_t NumRows() const;
  // Until the first row ends; the passes of the longest workload when there are no rows.
  int64_t PassesToEnd() const;
  std::span<const RowGroup> groups() const { return groups_; }

 private:
  const Tier* KvTier(const RequestShape& row) const;  // null: no room
  const Tier* HiddenTier(const RequestShape& row) const;

  const Plan* plan_;
  std::vector<RowGroup> groups_;
};

// The requests of a workload that wait for a place, in BlockBuilder's order.
class SimRequests {
 public:
  // The first `count` requests; where the sample is shorter it is repeated.
  // Lifetime: plan and workload outlive this.
  SimRequests(const Plan& plan, const Workload& work, int64_t count)
      : plan_(plan), work_(work), left_(count) {}

  std::vector<SimBatch> NextBlock();
  void Refill(SimBatch& batch);

 private:
  void FillWindow();

  const Plan& plan_;
  const Workload& work_;
  int64_t left_;
  int64_t taken_ = 0;
  std::vector<RequestShape> window_;  // sorted, the next one last
};

}  // namespace spillway
