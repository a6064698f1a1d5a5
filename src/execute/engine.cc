#include "src/execute/engine.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "spillway/error.h"
#include "src/clock.h"
#include "src/stop_signal.h"

namespace spillway {
namespace {

// A model or a machine that gives this many rows of NaN will not get better (reliability.md N3).
constexpr int64_t kMaxNonFiniteRows = 100;

int64_t NumRunning(const std::vector<RowBatch>& batches) {
  return std::accumulate(batches.begin(), batches.end(), int64_t{0},
                         [](int64_t sum, const RowBatch& batch) {
                           return sum + static_cast<int64_t>(batch.rows().size());
                         });
}

}  // namespace

Engine::Engine(const Plan& plan, Executor& executor, ThreadPool& pool)
    : plan_(plan), executor_(executor), pool_(pool) {
  trace_.peak_bytes = plan.arena_bytes;
}

Trace Engine::Run(const Schedule& schedule, BlockBuilder& blocks, Job& job,
                  const ProgressFn& progress) {
  for (std::vector<RowBatch> batches = blocks.Next(job); !batches.empty();
       batches = blocks.Next(job)) {
    int64_t slots = 0;
    for (const RowBatch& batch : batches) {
      for (const auto& row : batch.rows()) {
        slots += row->num_slots;
        trace_.slots_per_row = std::max(trace_.slots_per_row, row->num_slots);
      }
    }
    trace_.kv_bytes = std::max(trace_.kv_bytes, slots * plan_.slot_bytes * plan_.shape.num_layers);
    trace_.num_rows += NumRunning(batches);
    ++trace_.num_blocks;
    RunBlock(schedule, batches, job, progress);
  }
  return trace_;
}

void Engine::RunBlock(const Schedule& schedule, std::vector<RowBatch>& batches, Job& job,
                      const ProgressFn& progress) {
  const Schedule grid = {schedule.num_layers, static_cast<int64_t>(batches.size())};
  double pass_begin_s = NowSeconds();
  PhaseTotals pass;
  for (Cursor at; true; at = grid.Next(at)) {
    RowBatch& batch = batches[static_cast<std::size_t>(at.batch)];
    ThrowIfStopRequested();
    if (at.layer == 0) batch.Pack();
    if (!batch.rows().empty()) {
      executor_.Compute(at, batch.packed());
      if (grid.EndsBatch(at)) {
        if (at.pass == 0) pass.prompt_tokens += static_cast<int64_t>(batch.packed().tokens.size());
        pass.generated_tokens += Sample(batch, job);
      }
    }
    progress_.rows_running = NumRunning(batches);
    progress(progress_);
    if (!grid.EndsPass(at)) continue;
    PhaseTotals& phase = at.pass == 0 ? trace_.prefill : trace_.decode;
    const double now_s = NowSeconds();
    phase.seconds += now_s - pass_begin_s;
    phase.passes += 1;
    phase.prompt_tokens += pass.prompt_tokens;
    phase.generated_tokens += pass.generated_tokens;
    pass_begin_s = now_s;
    pass = {};
    if (progress_.rows_running == 0) return;
  }
}

int64_t Engine::Sample(RowBatch& batch, Job& job) {
  const std::span<float> logits = executor_.Logits();
  const auto vocab = static_cast<std::size_t>(plan_.shape.vocab_size);
  auto step = [&](int64_t row, int) {
    const auto index = static_cast<std::size_t>(row);
    batch.rows()[index]->sampler.Step(logits.subspan(index * vocab, vocab));
  };
  pool_.Run(static_cast<int64_t>(batch.rows().size()), step);
  const int64_t num_sampled =
      std::ranges::count_if(batch.rows(), [](const std::unique_ptr<Row>& row) {
        return row->sampler.status() != RowStatus::kNonFinite;
      });
  progress_.generated_tokens += num_sampled;
  progress_.settled_tokens += num_sampled;
  batch.Advance();
  Retire(batch, job);
  return num_sampled;
}

// Rows that ended leave the batch at once: the next pass neither packs nor computes them.
void Engine::Retire(RowBatch& batch, Job& job) {
  std::erase_if(batch.rows(), [&](const std::unique_ptr<Row>& row) {
    const auto num_tokens = static_cast<int64_t>(row->sampler.tokens().size());
    switch (row->sampler.status()) {
      case RowStatus::kRunning:
        return false;
      case RowStatus::kStopped:
      case RowStatus::kLength:
        job.Finish(row->request, row->sampler.Take());
        break;
      case RowStatus::kNonFinite:
        job.Fail(row->request, "E-NONFINITE",
                 fmt::format("line {}: the model gave logits that are not finite after {} tokens",
                             row->request.line, row->sampler.tokens().size()));
        if (++num_nonfinite_ > kMaxNonFiniteRows) {
          throw Error(
              ErrorCode::kNonFinite,
              fmt::format("over {} lines got logits that are not finite; check the model's weights",
                          kMaxNonFiniteRows));
        }
        break;
    }
    ++progress_.rows;
    progress_.settled_tokens += row->request.sampling.max_tokens - num_tokens;
    return true;
  });
}

Schedule ZigZag(const Plan& plan) {
  return {static_cast<int64_t>(plan.layers.size()), plan.num_batches};
}

}  // namespace spillway
