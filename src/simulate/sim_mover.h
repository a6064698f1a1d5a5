// SimMover: the mover on a virtual clock. The same places of staging and the same waits as Mover,
// with the cost model's seconds instead of bytes that move. Thread rule: one thread.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "policies/cost/cost_model.h"
#include "spillway/schedule.h"
#include "src/simulate/sim_links.h"

namespace spillway {

class SimMover {
 public:
  // Lifetime: the plan outlives the mover.
  SimMover(const Plan& plan, const CostRates& rates, const EventSink& sink);

  // A block follows; its first pass is number `first_pass` of the run. Lifetime: the grid is there
  // as long as the block runs.
  void BeginBlock(const Schedule& grid, int64_t first_pass);

  // A pass that is walked stands for more of the block's: so many of them are past.
  void Skip(int64_t passes) { skipped_passes_ += passes; }

  // Begins a load or store of what `load` says. Requires: not kCompute.
  void Begin(const Task& task, const CostModel& model, const BatchLoad& load);

  void WaitForLoads(const Cursor& at);
  void WaitForStores();
  void WaitForAll() { links_.WaitForAll(); }

  // Lets the time pass of a compute that alone takes so long. Returns how long it took.
  double Compute(const Cursor& at, double seconds);

  double now_s() const { return links_.now_s(); }
  const WaitTotals& waits() const { return waits_; }
  const PerLink<LinkTotals>& links() const { return links_.totals(); }

 private:
  // Numbers of transfers, for each of three places in turn.
  struct Staging {
    std::array<uint64_t, kStagingSlots> stored{};
    std::array<uint64_t, kStagingSlots> loaded{};
  };

  template <typename F>
  void Timed(double& waited_s, TraceSubject subject, const Cursor& cell, F wait);
  TraceLabel LabelOf(TraceSubject subject, const Cursor& cell) const;
  uint64_t& KvStored(const Cursor& cell);

  const Plan& plan_;
  EventSink sink_;
  SimLinks links_;
  const Schedule* grid_ = nullptr;  // of the block that runs
  int64_t first_pass_ = 0;
  int64_t skipped_passes_ = 0;
  std::vector<uint64_t> weights_loaded_;  // [layer]
  bool first_loaded_ = false;
  Staging kv_;
  Staging hidden_;
  std::vector<uint64_t> kv_stored_;      // [batch][block]
  std::vector<uint64_t> hidden_stored_;  // [batch]
  WaitTotals waits_;
};

}  // namespace spillway
