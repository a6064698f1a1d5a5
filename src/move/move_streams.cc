#include "src/move/move_streams.h"

#include <algorithm>

#include "src/move/kv_log_moves.h"
#include "src/plan/place_weights.h"

namespace spillway {
namespace {

// Waits below this only say that there was nothing to wait for.
constexpr double kLeastTracedWaitS = 1e-6;

int MaxWeightMoves(const Plan& plan) {
  std::size_t moves = FirstMoves(plan).size();
  for (std::size_t layer = 0; layer < plan.layers.size(); ++layer) {
    moves = std::max(moves, MovesOf(plan, static_cast<int64_t>(layer)).size());
  }
  return static_cast<int>((plan.weight_lookahead + 1) * static_cast<int64_t>(moves) + 1);
}

TransferStream::Options StreamOptions(const Tiers& tiers, const BounceRing& ring, int max_moves) {
  TransferStream::Options options;
  options.queue = tiers.queue();
  options.store = tiers.store();
  options.repair = tiers.repair();
  options.bounce = tiers.arena(Tier::kCpu).View(ring.region);
  options.num_chunks = ring.num_chunks;
  options.max_moves = max_moves;
  return options;
}

TransferStream::Options Noting(TransferStream::Options options, LinkMeter& meter, TraceLane lane,
                               TraceLog* trace_log) {
  options.meter = &meter;
  options.copy_lane = lane;
  options.trace_log = trace_log;
  return options;
}

}  // namespace

int MaxRowMoves(const Plan& plan) {
  int64_t kv = 0;
  int64_t hidden = 0;
  for (const Tier tier : kAllTiers) {
    kv += plan.kv[tier].rows * plan.KvRuns() + plan.kv[tier].size * plan.slot_bytes / kRunBytes + 1;
    hidden += plan.hidden[tier].size * plan.HiddenRowBytes() / kRunBytes + 2;
  }
  return static_cast<int>(2 * (kv + hidden + KvLogMoves::MaxMoves(plan)));
}

MoveStreams::MoveStreams(const Plan& plan, const Tiers& tiers, TraceLog* trace_log)
    : plan_(plan),
      tiers_(tiers),
      trace_log_(trace_log),
      out_(Noting(StreamOptions(tiers, plan.bounce.rows_out, MaxRowMoves(plan)), to_cpu_,
                  TraceLane::kGpuToCpu, trace_log),
           tiers.MakeCopyQueue()),
      rows_in_(Noting(StreamOptions(tiers, plan.bounce.rows_in, MaxRowMoves(plan)), to_gpu_,
                      TraceLane::kCpuToGpu, trace_log),
               tiers.MakeCopyQueue()),
      weights_in_(Noting(StreamOptions(tiers, plan.bounce.weights_in, MaxWeightMoves(plan)),
                         to_gpu_, TraceLane::kCpuToGpu, trace_log),
                  tiers.MakeCopyQueue()) {}

void MoveStreams::NoteWait(const TraceLabel& label, double begin_s, double end_s) {
  if (trace_log_ == nullptr || end_s - begin_s < kLeastTracedWaitS) return;
  trace_log_->Add(TraceSpan{TraceLane::kWaiting, label, begin_s, end_s, 0});
}

void MoveStreams::Stop() {
  weights_in_.Stop();
  rows_in_.Stop();
  out_.Stop();
}

PerLink<LinkTotals> MoveStreams::links() const {
  PerLink<LinkTotals> links;
  if (const DiskQueue* queue = tiers_.queue()) {
    const DiskTotals read = queue->totals(DiskOp::kRead);
    const DiskTotals written = queue->totals(DiskOp::kWrite);
    links[Link::kDiskRead] = {read.bytes, read.busy_s};
    links[Link::kDiskWrite] = {written.bytes, written.busy_s};
  }
  if (plan_.device() != Tier::kGpu) return links;
  links[Link::kCpuToGpu] = to_gpu_.totals();
  links[Link::kGpuToCpu] = to_cpu_.totals();
  return links;
}

}  // namespace spillway
