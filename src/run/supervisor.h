// Supervisor: a loaded model run after run: begins again what a lost disk block took, warns of what
// a disk did, and ends a process in which nothing moves any more. Thread rule: the main thread.
#pragma once

#include <cstdint>
#include <functional>
#include <utility>

#include "spillway/error.h"
#include "spillway/plan.h"
#include "spillway/schedule.h"
#include "spillway/trace.h"
#include "src/report/progress.h"
#include "src/run/engine.h"  // ProgressFn
#include "src/run/job.h"
#include "src/run/loaded_model.h"
#include "src/run/stall_watch.h"

namespace spillway {

// The error of a run that a signal stopped, with what it had done; rows that had not ended count as
// lost.
class StoppedRun final : public Error {
 public:
  StoppedRun(const Error& error, Trace trace)
      : Error(error.code(), error.what()), trace_(std::move(trace)) {}

  const Trace& trace() const { return trace_; }

 private:
  Trace trace_;
};

class Supervisor {
 public:
  // Loads the model. Lifetime: the line outlives the supervisor. Throws: as LoadedModel.
  Supervisor(const RunInputs& inputs, ProgressLine& line);

  // See LoadedModel::Fit.
  void Fit(const Plan& plan) { model_.Fit(plan); }

  // Runs a job to its end; which plans: see LoadedModel::Run.
  // Rows whose spilled KV or states cannot be read back begin again from their requests, up to
  // twice before a row ends. Throws: StoppedRun (kInterrupted); Error kNonFinite, kIo, kCorrupt.
  Trace Run(const Plan& plan, const Schedule& schedule, Job& job, const ProgressFn& progress);

 private:
  // Work to run, for the functions that try it.
  struct Work {
    const Plan& plan;
    const Schedule& schedule;
    const ProgressFn& progress;
  };

  Trace TraceOf(EngineTotals totals) const;
  void RunUntilWhole(const Work& work, Job& job, EngineTotals& totals);
  void RunOnce(const Work& work, Job& job, EngineTotals& totals);
  StallWatch WatchStalls(std::function<uint64_t()> pulse) const;
  void ReportStall(StallWatch::Stall stall, const StallLimits& limits) const;
  void WarnOfDisk(const DiskMending& mending);

  const RunInputs inputs_;
  ProgressLine& line_;
  double begin_s_;  // of the load
  LoadedModel model_;
  double load_s_ = 0.0;
  double store_bytes_per_s_ = 0.0;
};

// Loads the weights into their tiers and runs a job to its end.
// Throws: StoppedRun (kInterrupted); Error kNonFinite, kIo, kCorrupt, kDiskSpace, and what loading
// throws.
Trace RunJob(const RunInputs& inputs, const Schedule& schedule, Job& job, ProgressLine& line);

}  // namespace spillway
