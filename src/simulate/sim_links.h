// SimLinks: the three transfer streams of a run on a virtual clock. A stream carries out its
// transfers one after the other; a link that two streams use at once gives each half. Within a
// transfer the links it crosses work at the same time, as chunks pass from one to the next.
// Computes and links slow each other down where both live on the processor's time.
// Thread rule: one thread.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <functional>

#include "spillway/machine.h"  // SharedPace
#include "spillway/trace.h"
#include "src/report/trace_event.h"
#include "src/walk/cell_order.h"  // StreamKind

namespace spillway {

using EventSink = std::function<void(const TraceEvent&)>;  // empty: nothing is traced

struct SimTransfer {
  PerLink<int64_t> bytes;
  PerLink<double> seconds;  // that each link alone would take
  TraceLabel label;
  uint64_t after = 0;  // number of the transfer out that must be done before this one begins
};

class SimLinks {
 public:
  // Takes what links and computes leave each other, and disk_both_frac as MachineRates has it.
  SimLinks(EventSink sink, const PerLink<SharedPace>& beside_compute, double disk_both_frac)
      : sink_(std::move(sink)), beside_compute_(beside_compute), disk_both_frac_(disk_both_frac) {}

  // Begins it as soon as its turn comes. Returns its number in the stream; that of the one before
  // when it moves nothing.
  uint64_t Add(StreamKind stream, SimTransfer transfer);

  // Lets the time pass that a compute takes which alone would take `seconds`.
  void Compute(double seconds);

  // Lets the time pass until transfer `number` is done.
  void WaitFor(StreamKind stream, uint64_t number);
  void WaitForAll();

  double now_s() const { return now_s_; }
  const PerLink<LinkTotals>& totals() const { return totals_; }  // of what is done

 private:
  struct Lane {
    std::deque<SimTransfer> queue;
    PerLink<double> left_s;  // of the first one
    double begin_s = 0.0;
    bool active = false;
    uint64_t added = 0;
    uint64_t done = 0;
  };

  Lane& LaneOf(StreamKind stream) { return lanes_[static_cast<std::size_t>(stream)]; }
  void BeginHeads();
  PerLink<int> Users() const;  // lanes that a link works for
  double ComputePace(const PerLink<int>& users) const;
  // Seconds that a lane takes for one of a link's own.
  PerLink<double> Stretch(const PerLink<int>& users, bool computing) const;
  // Lets time pass until a link is done with a transfer, at most `limit_s`. Returns how much, which
  // on a late clock may be too little for now_s_ to change; infinity: nothing moves, none has
  // passed.
  double Step(double limit_s, bool computing);
  void FinishLink(Lane& lane, Link link);

  EventSink sink_;
  PerLink<SharedPace> beside_compute_;
  double disk_both_frac_;
  std::array<Lane, 3> lanes_;
  double now_s_ = 0.0;
  PerLink<LinkTotals> totals_;
};

}  // namespace spillway
