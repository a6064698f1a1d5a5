// TraceEvent: one thing that happened in a run, small enough to be copied into a ring. Times are
// those of NowSeconds. Plain values; any thread.
#pragma once

#include <cstdint>
#include <variant>

#include "spillway/grid.h"  // Cursor
#include "spillway/tier.h"

namespace spillway {

// A line of the timeline: the compute unit, what it waits for, and the links, in kAllLinks' order.
enum class TraceLane { kCompute, kWaiting, kDiskRead, kDiskWrite, kCpuToGpu, kGpuToCpu };

inline constexpr int kNumTraceLanes = 6;

constexpr TraceLane LaneOf(Link link) {
  return static_cast<TraceLane>(static_cast<int>(TraceLane::kDiskRead) + static_cast<int>(link));
}

enum class TraceSubject { kCompute, kWeights, kKv, kHidden, kStores };

// Subject on which time was spent. Passes are counted over the whole run; -1: not of one pass,
// layer, batch.
struct TraceLabel {
  TraceSubject subject = TraceSubject::kCompute;
  Cursor cell = {-1, -1, -1};
};

struct TraceSpan {
  TraceLane lane = TraceLane::kCompute;
  TraceLabel label;
  double begin_s = 0.0;
  double end_s = 0.0;
  int64_t bytes = 0;  // that were moved
};

// Bytes that a tier holds at one time.
struct TierSample {
  double at_s = 0.0;
  Tier tier = Tier::kCpu;
  int64_t weight_bytes = 0;
  int64_t kv_bytes = 0;  // of running rows
  int64_t staging_bytes = 0;
};

struct RowSample {
  double at_s = 0.0;
  int64_t rows_running = 0;
};

using TraceEvent = std::variant<TraceSpan, TierSample, RowSample>;

}  // namespace spillway
