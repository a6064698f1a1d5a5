// Engine: what the main loop (WalkBlocks) does at each step of a run: has the mover bring in and
// take away, feeds batches to the executor, has rows sample or score, retires them. The stage
// between Schedule and Trace. Thread rule: one thread; rows see their logits on the pool.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "spillway/plan.h"
#include "spillway/schedule.h"
#include "spillway/trace.h"
#include "src/base/thread_pool.h"
#include "src/device/executor.h"
#include "src/move/mover.h"
#include "src/report/progress.h"  // WorkDone
#include "src/report/trace_log.h"
#include "src/run/block.h"
#include "src/run/job.h"

namespace spillway {

// Totals of a run so far. A run that failed can go on from them: the trace counts what was computed
// in vain, and nothing of rows that had not ended is settled.
struct EngineTotals {
  Trace trace;
  WorkDone done;
};

// Called after every cell of the schedule; must be quick.
using ProgressFn = std::function<void(const WorkDone&)>;

class Engine {
 public:
  // `totals`: the run is added to it, also where it fails. `trace_log` null: nothing is traced.
  // Lifetime: all of these outlive the engine.
  Engine(const Plan& plan, Mover& mover, Executor& executor, ThreadPool& pool, EngineTotals& totals,
         TraceLog* trace_log = nullptr);

  // Runs the job to its end, and stops the mover then.
  // Throws: Error kInterrupted (finished rows have been handed to the job), kNonFinite, and what
  // executor or job throw.
  void Run(const Schedule& schedule, BlockBuilder& blocks, Job& job, const ProgressFn& progress);

 private:
  class Walker;  // what WalkBlocks calls

  void DropRows(const std::vector<RowBatch>& batches);
  // Whether more batches come in a layer.
  enum class InLayer { kMoreComes, kLast };
  void Compute(const Cursor& at, const PackedBatch& batch, InLayer order);
  void NoteRows(const std::vector<RowBatch>& batches);
  void BeginPassWork(const std::vector<RowBatch>& batches);
  void CountWork();
  void TraceTiers(const PerTier<int64_t>& kv_bytes, int64_t rows_running);
  void EndPass();
  void AddPass(PhaseTotals& phase);
  void AddLinks(PhaseTotals& phase);
  int64_t NumPasses() const { return trace_.prefill.passes + trace_.decode.passes; }
  void Head(const Cursor& at, RowBatch& batch);
  void SeeLogits(const RowBatch& batch);
  void EndRows(RowBatch& batch, Job& job);
  void Retire(RowBatch& batch, Job& job);

  const Plan& plan_;
  Mover& mover_;
  Executor& executor_;
  ThreadPool& pool_;
  std::vector<ChoiceScratch> choice_scratch_;  // one a worker of the pool
  TraceLog* trace_log_;
  PerTier<int64_t> staging_bytes_;  // places for what is computed or on its way
  Trace& trace_;                    // of the totals
  WorkDone& progress_;              // of the totals
  PhaseTotals pass_;                // the one that runs
  int64_t settled_in_pass_ = 0;     // tokens of decode that its batches have done or need no more
  bool prefix_is_counted_ = false;  // among prompts that were computed
  double pass_begin_s_ = 0.0;
  WaitTotals waits_before_;           // at its begin
  PerLink<LinkTotals> links_before_;  // when they were last added to a phase
  int64_t num_nonfinite_ = 0;
};

}  // namespace spillway
