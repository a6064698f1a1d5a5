// SimMover: the mover on a virtual clock: the same CellOrder as Mover's, with the cost model's
// seconds instead of bytes that move. Thread rule: one thread.
#pragma once

#include <cstdint>

#include "policies/cost/cost_model.h"
#include "spillway/schedule.h"
#include "src/simulate/sim_links.h"
#include "src/walk/cell_order.h"

namespace spillway {

class SimMover {
 public:
  // Lifetime: the plan outlives the mover.
  SimMover(const Plan& plan, const CostRates& rates, const EventSink& sink)
      : plan_(plan),
        streams_{SimLinks(sink, rates.beside_compute, rates.disk_both_frac), sink},
        order_(plan, streams_) {}

  // A block follows; its first pass is number `first_pass` of the run. Lifetime: the grid is there
  // as long as the block runs.
  void BeginBlock(const Schedule& grid, int64_t first_pass) {
    order_.BeginBlock(grid, first_pass);
    skipped_passes_ = 0;
  }

  // A pass that is walked stands for more of the block's: so many of them are past.
  void Skip(int64_t passes) { skipped_passes_ += passes; }

  // Begins a load or store of what `load` says. Requires: not kCompute.
  void Begin(const Task& task, const CostModel& model, const BatchLoad& load);

  void WaitForLoads(const Cursor& at) { order_.WaitForLoads(at); }
  void WaitForStores() { order_.WaitForStores(); }
  void WaitForAll() { streams_.links.WaitForAll(); }

  // Lets the time pass of a compute that alone takes so long. Returns how long it took.
  double Compute(const Cursor& at, double seconds);

  double now_s() const { return streams_.now_s(); }
  const WaitTotals& waits() const { return order_.waits(); }
  const PerLink<LinkTotals>& links() const { return streams_.links.totals(); }

 private:
  struct Streams {
    uint64_t Add(StreamKind kind, SimTransfer transfer, const TraceLabel& label, uint64_t after);
    void WaitFor(StreamKind kind, uint64_t number) { links.WaitFor(kind, number); }
    double now_s() const { return links.now_s(); }
    void NoteWait(const TraceLabel& label, double begin_s, double end_s) const;

    SimLinks links;
    EventSink sink;
  };

  const Plan& plan_;
  int64_t skipped_passes_ = 0;
  Streams streams_;
  CellOrder<Streams> order_;
};

}  // namespace spillway
