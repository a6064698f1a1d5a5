// Engine: the main loop. Walks the schedule block by block, feeds batches to the executor, samples,
// retires rows. The stage between Schedule and Trace. Thread rule: one thread; sampling uses the
// pool.
#pragma once

#include <cstdint>
#include <functional>

#include "kernels/thread_pool.h"
#include "spillway/plan.h"
#include "spillway/schedule.h"
#include "spillway/trace.h"
#include "src/execute/block.h"
#include "src/execute/executor.h"
#include "src/execute/job.h"
#include "src/report/progress.h"  // WorkDone

namespace spillway {

// Called after every cell of the schedule; must be quick.
using ProgressFn = std::function<void(const WorkDone&)>;

class Engine {
 public:
  // Lifetime: plan, executor and pool outlive the engine.
  Engine(const Plan& plan, Executor& executor, ThreadPool& pool);

  // Runs the job to its end.
  // Throws: Error kInterrupted (finished rows have been handed to the job), kNonFinite, and what
  // executor or job throw.
  Trace Run(const Schedule& schedule, BlockBuilder& blocks, Job& job, const ProgressFn& progress);

 private:
  void RunBlock(const Schedule& schedule, std::vector<RowBatch>& batches, Job& job,
                const ProgressFn& progress);
  int64_t Sample(RowBatch& batch, Job& job);  // tokens sampled
  void Retire(RowBatch& batch, Job& job);

  const Plan& plan_;
  Executor& executor_;
  ThreadPool& pool_;
  Trace trace_;
  WorkDone progress_;
  int64_t num_nonfinite_ = 0;
};

// The grid of a plan: its layers, and the batches of one block.
Schedule ZigZag(const Plan& plan);

}  // namespace spillway
