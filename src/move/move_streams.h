// MoveStreams: the three transfer streams of a run, on threads of their own, and the meters of the
// links between the device and the CPU. Thread rule: the engine's thread.
#pragma once

#include <cstdint>
#include <span>

#include "spillway/plan.h"
#include "spillway/trace.h"
#include "src/base/clock.h"
#include "src/move/link_meter.h"
#include "src/move/tiers.h"
#include "src/move/transfer_stream.h"
#include "src/walk/cell_order.h"  // StreamKind

namespace spillway {

// The most moves that one task of rows asks for: a run for each row and chunk.
int MaxRowMoves(const Plan& plan);

class MoveStreams {
 public:
  // `trace_log` null: nothing is traced. Lifetime: tiers and log outlive the streams.
  MoveStreams(const Plan& plan, const Tiers& tiers, TraceLog* trace_log);

  // Begins moves after number `after` of kOut is done. Returns their last one's number, or that of
  // the one before where there are none. Throws: what an earlier move threw.
  // Lifetime: the memory of both ends, until the wait or the streams' end.
  uint64_t Add(StreamKind kind, std::span<const Move> moves, const TraceLabel& label,
               uint64_t after) {
    return StreamOf(kind).Add(moves, label,
                              after == 0 ? NumberedMove{} : NumberedMove{&out_, after});
  }

  // Throws: what the first failing move threw; Error kInterrupted.
  void WaitFor(StreamKind kind, uint64_t number) { StreamOf(kind).WaitOrStop(number); }

  double now_s() const { return NowSeconds(); }
  void NoteWait(const TraceLabel& label, double begin_s, double end_s);

  // Drops what was not begun. Nothing may be added or waited for afterwards.
  void Stop();

  PerLink<LinkTotals> links() const;
  DiskMending mending() const { return rows_in_.mending() + weights_in_.mending(); }

 private:
  TransferStream& StreamOf(StreamKind kind) {
    return kind == StreamKind::kWeightsIn ? weights_in_
           : kind == StreamKind::kRowsIn  ? rows_in_
                                          : out_;
  }

  const Plan& plan_;
  const Tiers& tiers_;
  TraceLog* trace_log_;
  LinkMeter to_gpu_;  // of both streams that come in
  LinkMeter to_cpu_;
  TransferStream out_;
  TransferStream rows_in_;
  TransferStream weights_in_;
};

}  // namespace spillway
