// SimBatch: a batch's rows without their tokens, where the Composer put them. Rows that are alike
// are counted together. Thread rule: one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "policies/cost/batch_load.h"
#include "spillway/plan.h"
#include "spillway/workload.h"
#include "src/walk/batch_places.h"
#include "src/walk/composer.h"

namespace spillway {

class SimBatch {
 public:
  // Lifetime: the plan outlives the batch.
  SimBatch(const Plan& plan, ComposedBatch batch);

  // Requires: the row's places are of this batch's.
  void Add(ComposedRow row);

  // Load of the next pass.
  BatchLoad Load() const { return LoadOf(*plan_, groups_); }
  // Takes the rows `passes` further; the ones that end leave. Requires: passes <= PassesToEnd().
  void Advance(int64_t passes);

  bool empty() const { return groups_.empty(); }
  // Passes until the first row ends; the largest number when there are no rows.
  int64_t PassesToEnd() const;
  std::span<const RowGroup> groups() const { return groups_; }
  std::span<const ComposedRow> RowsOf(std::size_t group) const { return rows_[group]; }
  BatchPlaces& places() { return places_; }

 private:
  const Plan* plan_;
  BatchPlaces places_;
  std::vector<RowGroup> groups_;
  std::vector<std::vector<ComposedRow>> rows_;    // [group]
  std::vector<std::unique_ptr<KvRowRuns>> runs_;  // [group]
};

// The first `count` requests of a workload; where its sample is shorter it is repeated.
class SampledRequests final : public RequestSource {
 public:
  // Lifetime: the workload outlives this.
  SampledRequests(const Workload& work, int64_t count) : work_(work), count_(count) {}

  std::optional<WaitingRequest> Next() override;
  void Refuse(const WaitingRequest& request) override;

 private:
  const Workload& work_;
  int64_t count_;
  int64_t num_read_ = 0;
};

}  // namespace spillway
