// LoadedModel: the weights of a run in their tiers, and the threads, memory and files that jobs
// need beside them. The owner of all of it. Thread rule: the main thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>

#include "spillway/trace.h"
#include "src/base/thread_pool.h"
#include "src/device/device.h"
#include "src/move/tiers.h"
#include "src/report/progress.h"
#include "src/run/engine.h"  // ProgressFn
#include "src/run/job.h"
#include "src/run/run_blocks.h"  // Run
#include "src/run/stall_watch.h"

namespace spillway {

class LoadedModel {
 public:
  // Makes the store first where the plan has weights on disk and no store has them yet.
  // Lifetime: what the run names outlives the model. Throws: what loading throws.
  LoadedModel(const Run& run, ProgressLine& line);
  LoadedModel(const LoadedModel&) = delete;
  LoadedModel& operator=(const LoadedModel&) = delete;

  // Runs a job to its end. `plan` is the run's, or one that differs from it in the KV policy alone
  // and takes no more memory: weights lie in the same places then.
  // Rows whose spilled KV or states cannot be read back begin again from their requests, up to
  // twice before a row ends. Throws: Error kInterrupted, kNonFinite, kIo, kCorrupt.
  Trace Run(const Plan& plan, Job& job, const ProgressFn& progress);

 private:
  void RunOnce(const Plan& plan, Job& job, const ProgressFn& progress, EngineTotals& totals);
  uint64_t DiskPulse() const;
  double StoreBytesPerS(const spillway::Run& run) const;
  StallWatch WatchStalls(std::function<uint64_t()> pulse) const;
  void TellOfStall(StallWatch::Stall stall, const StallLimits& limits) const;
  void RunUntilWhole(const Plan& plan, Job& job, const ProgressFn& progress, EngineTotals& totals);
  void WarnOfDisk(const DiskMending& mending);
  void Warn(const std::string& text);

  const Config& config_;
  const OpenedModel& model_;
  const Plan& plan_;
  Device& device_;
  TraceLog* trace_log_;
  ProgressLine& line_;
  ThreadPool pool_;
  const StoreOrigin origin_;
  std::optional<Tiers> tiers_;
  double load_s_ = 0.0;
  double store_bytes_per_s_ = 0.0;
};

}  // namespace spillway
