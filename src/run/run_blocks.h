// RunBlocks: loads the weights into their tiers and runs a job to its end.
// Thread rule: the main thread.
#pragma once

#include <optional>

#include "spillway/plan.h"
#include "spillway/prediction.h"
#include "spillway/trace.h"
#include "spillway/workload.h"
#include "src/config/config.h"
#include "src/device/device.h"
#include "src/report/progress.h"
#include "src/report/trace_log.h"
#include "src/run/job.h"
#include "src/store/open_model.h"

namespace spillway {

// The exit status of a run that finished, some requests of which carry errors.
inline constexpr int kSomeLinesCarryErrors = 21;

// What one run is made of, once it is decided.
struct Run {
  const Config& config;
  const OpenedModel& model;
  const Plan& plan;
  Device& device;
  ExpectedWork expected;
  TraceLog* trace_log = nullptr;  // null: nothing is traced
};

// What the progress line is told of a run: its sample's tokens, scaled to all requests.
ExpectedWork ExpectedOf(const Workload& work, const Plan& plan,
                        const std::optional<Prediction>& predicted);

// Makes the store first where the plan has weights on disk and no store has them yet.
// Throws: Error kInterrupted, kNonFinite, kIo, kCorrupt, kDiskSpace, and what loading throws.
Trace RunBlocks(const Run& run, Job& job, ProgressLine& line);

// Where people read; standard output is taken when the answers go there.
std::FILE* TerminalOf(const Config& config);

}  // namespace spillway
