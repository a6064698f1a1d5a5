// LoadedModel: the weights of a run in their tiers, and the threads, memory and files that jobs
// need beside them. The owner of all of it. Thread rule: the main thread.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

#include "spillway/plan.h"
#include "spillway/schedule.h"
#include "src/base/thread_pool.h"
#include "src/device/device.h"
#include "src/move/tiers.h"
#include "src/report/progress.h"
#include "src/report/trace_log.h"
#include "src/run/engine.h"
#include "src/run/job.h"
#include "src/store/open_model.h"

namespace spillway {

// Parts of a run, once it is decided. Lifetime: the caller's; outlives the run.
struct RunInputs {
  const OpenedModel& model;
  const Plan& plan;
  Device& device;
  std::filesystem::path offload_folder;  // of the disk tier, and of a store that has to be made
  uint64_t seed = 0;                     // rows without one of their own draw from (seed, line)
  ExpectedWork expected;
  TraceLog* trace_log = nullptr;  // null: nothing is traced
  // Of prompts, where the plan allows it.
  Beginnings beginnings = Beginnings::kApart;
};

class LoadedModel {
 public:
  // Makes the store first where the plan has weights on disk and no store has them yet.
  // Lifetime: the line outlives the model. Throws: what loading throws.
  LoadedModel(const RunInputs& inputs, ProgressLine& line);
  LoadedModel(const LoadedModel&) = delete;
  LoadedModel& operator=(const LoadedModel&) = delete;

  // Runs a job to its end, or to a failure. `plan` is that of the inputs, or one that differs from
  // it in the KV policy alone and takes no more memory: weights lie in the same places then.
  // Or it is the one that Fit was last called with.
  // `totals`: of what was run of the job so far, then of this as well, also after a failure.
  // Throws: SpillLost: the rows that ran are lost; and what Engine::Run throws.
  void Run(const Plan& plan, const Schedule& schedule, Job& job, const ProgressFn& progress,
           EngineTotals& totals);

  // Makes the files of another plan in place of the inputs', whose weights lie in the same places
  // and whose memory holds it. Throws: Error kDiskSpace, kPath, kSystemLimit.
  void Fit(const Plan& plan);

  // Bytes per second of reads of the weights on disk. Requires: some are there.
  double MeasureStore() const;

  // A number that changes while anything is computed, read or written. Any thread.
  uint64_t Pulse() const;

  Tiers& tiers() { return *tiers_; }
  const Tiers& tiers() const { return *tiers_; }

 private:
  const RunInputs inputs_;
  ThreadPool pool_;
  PerTier<int64_t> arena_bytes_;  // that there are, on disk of files
  const StoreOrigin origin_;
  DiskOptions disk_;
  std::optional<Tiers> tiers_;
};

}  // namespace spillway
