#include "src/run/engine.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "spillway/byte_use.h"
#include "spillway/error.h"
#include "src/base/clock.h"
#include "src/base/stop_signal.h"
#include "src/move/transfer_stream.h"
#include "src/walk/walk_blocks.h"

namespace spillway {
namespace {

// Rows of NaN after which model or machine are taken to be broken (docs/reliability.md, "The run").
constexpr int64_t kMaxNonFiniteRows = 100;

// Advice where logits are not finite. fp16 ends at 65504; what a bf16 model keeps may pass that.
std::string_view NonFiniteRemedy(const Plan& plan) {
  const bool narrows = plan.shape.dtype == DType::kBF16 && !plan.policy.kv_bits.coded() &&
                       plan.policy.kv_dtype == DType::kF16;
  return narrows ? "give --kv-dtype bf16, as its keys or values may pass fp16's range"
                 : "check the model's weights";
}

int64_t NumRunning(const std::vector<RowBatch>& batches) {
  return std::accumulate(batches.begin(), batches.end(), int64_t{0},
                         [](int64_t sum, const RowBatch& batch) {
                           return sum + static_cast<int64_t>(batch.rows().size());
                         });
}

}  // namespace

Engine::Engine(const Plan& plan, Mover& mover, Executor& executor, ThreadPool& pool,
               EngineTotals& totals, TraceLog* trace_log)
    : plan_(plan),
      mover_(mover),
      executor_(executor),
      pool_(pool),
      choice_scratch_(static_cast<std::size_t>(pool.num_threads())),
      trace_log_(trace_log),
      trace_(totals.trace),
      progress_(totals.done),
      links_before_(mover.links()) {
  const PerTier<UsedBytes> used = BytesByUse(plan);
  for (const Tier tier : kAllTiers) {
    trace_.peak_bytes[tier] = plan.PlannedBytes(tier);
    staging_bytes_[tier] = used[tier][ByteUse::kStaging] + used[tier][ByteUse::kBounce];
  }
}

// One call of Run. Each step is what WalkBlocks says of it.
class Engine::Walker {
 public:
  Walker(Engine& engine, BlockBuilder& blocks, Job& job, const ProgressFn& progress)
      : engine_(engine), blocks_(blocks), job_(job), progress_(progress) {}

  int64_t NextBlock() {
    batches_ = blocks_.Next(job_);
    return std::ssize(batches_);
  }
  void BeginBlock(const Schedule& grid) {
    ++engine_.trace_.num_blocks;
    engine_.mover_.BeginBlock(grid, engine_.NumPasses());
  }
  void Refill(int64_t batch) { blocks_.Refill(Batch(batch), job_); }
  void BeginPass() { engine_.NoteRows(batches_); }
  void BeginBatch(int64_t batch) { Batch(batch).Pack(); }
  TaskList TasksAt(const Schedule& grid, const Cursor& at) const { return grid.At(at); }
  bool HasRows(int64_t batch) { return !Batch(batch).rows().empty(); }
  bool HasRows() const { return NumRunning(batches_) > 0; }
  void Begin(const Task& task) {
    engine_.mover_.Begin(task, batches_.empty() ? no_batch_ : Batch(task.cell.batch).packed());
  }
  void WaitForStores() { engine_.mover_.WaitForStores(); }
  void Compute(const Cursor& at) {
    const auto first_after = batches_.begin() + at.batch + 1;
    const bool more_comes = std::any_of(
        first_after, batches_.end(), [](const RowBatch& batch) { return !batch.rows().empty(); });
    engine_.Compute(at, Batch(at.batch).packed(),
                    more_comes ? InLayer::kMoreComes : InLayer::kLast);
  }
  void EndBatch(const Cursor& at) {
    engine_.Head(at, Batch(at.batch));
    engine_.EndRows(Batch(at.batch), job_);
  }
  void EndCell() {
    engine_.progress_.rows_running = NumRunning(batches_);
    ++engine_.progress_.pass.cells;
    progress_(engine_.progress_);
  }
  void EndPass() { engine_.EndPass(); }

  const std::vector<RowBatch>& batches() const { return batches_; }

 private:
  RowBatch& Batch(int64_t batch) { return batches_[static_cast<std::size_t>(batch)]; }

  Engine& engine_;
  BlockBuilder& blocks_;
  Job& job_;
  const ProgressFn& progress_;
  std::vector<RowBatch> batches_;  // of the block that runs
  const PackedBatch no_batch_;     // of the weights that come before the first block
};

void Engine::Run(const Schedule& schedule, BlockBuilder& blocks, Job& job,
                 const ProgressFn& progress) {
  Walker walker(*this, blocks, job, progress);
  pass_begin_s_ = NowSeconds();
  const DiskMending mended = trace_.mending;
  try {
    WalkBlocks(schedule, walker);
  } catch (const SpillLost&) {
    trace_.mending = mended + mover_.mending();
    DropRows(walker.batches());
    throw;
  } catch (const Error& error) {
    trace_.mending = mended + mover_.mending();
    // Other errors may come from within a batch, which is in no state to be looked at then.
    if (error.code() == ErrorCode::kInterrupted) DropRows(walker.batches());
    throw;
  } catch (...) {
    trace_.mending = mended + mover_.mending();
    throw;
  }
  mover_.Stop();
  AddLinks(trace_.decode.passes > 0 ? trace_.decode : trace_.prefill);
  trace_.mending = mended + mover_.mending();
}

// Accounts for a pass that broke off in its middle: its time is spent, and the tokens of rows that
// had not ended are in no answer.
void Engine::DropRows(const std::vector<RowBatch>& batches) {
  bool in_prefill = pass_.prompt_tokens > 0;
  CountWork();
  for (const RowBatch& batch : batches) {
    for (const std::unique_ptr<Row>& row : batch.rows()) {
      in_prefill |= row->num_past == 0;
      trace_.lost_tokens += row->num_logits;
      if (row->num_past == 0) continue;
      trace_.lost_prompt_tokens += std::ssize(row->request.prompt);
      trace_.lost_decode_tokens += row->NumDecoded();
      trace_.shared_prompt_tokens -= row->num_shared;
      progress_.prompt_tokens -= std::ssize(row->request.prompt);
      progress_.decode_tokens -= row->NumDecoded();
    }
  }
  AddPass(in_prefill ? trace_.prefill : trace_.decode);
  --trace_.num_blocks;
  progress_.rows_running = 0;
}

void Engine::Compute(const Cursor& at, const PackedBatch& batch, InLayer order) {
  const CellPlaces places = mover_.WaitForLoads(at, batch);
  const double begin_s = NowSeconds();
  int64_t& layer = progress_.pass.layer;
  layer = std::max(layer, plan_.DecoderLayerOf(at));
  executor_.Compute(at, batch, places);
  if (order == InLayer::kLast) executor_.EndLayer();
  mover_.NoteExperts(at, executor_.ChosenExperts());
  const double end_s = NowSeconds();
  pass_.compute_s += end_s - begin_s;
  pass_.parts[plan_.layers[static_cast<std::size_t>(at.layer)].part] += end_s - begin_s;
  if (trace_log_ == nullptr) return;
  const TraceLabel label = {TraceSubject::kCompute, {NumPasses(), at.layer, at.batch}};
  trace_log_->Add(TraceSpan{TraceLane::kCompute, label, begin_s, end_s, 0});
}

void Engine::NoteRows(const std::vector<RowBatch>& batches) {
  PerTier<int64_t> kv_bytes;
  int64_t longest = 0;
  BeginPassWork(batches);
  for (const RowBatch& batch : batches) {
    for (const auto& row : batch.rows()) {
      int64_t largest = 0;
      int64_t all = 0;
      for (const int64_t kv_class : plan_.kv_class_of) {
        const KvPlace& place = row->places.kv[static_cast<std::size_t>(kv_class)];
        largest = std::max(largest, place.num_slots);
        all += place.num_slots;
        longest = std::max(longest, place.row_tokens);
      }
      kv_bytes[row->places.kv_tier] += all * plan_.slot_bytes;
      trace_.slots_per_row = std::max(trace_.slots_per_row, plan_.HeadSlots(largest, all));
    }
  }
  int64_t total = plan_.prefix.kv.bytes;
  for (const Tier tier : kAllTiers) total += kv_bytes[tier];
  trace_.kv_bytes = std::max(trace_.kv_bytes, total);
  if (const KvKeep keep = plan_.MostRunKeep(longest); keep.slots() > trace_.largest_keep.slots())
    trace_.largest_keep = keep;
  if (trace_log_ != nullptr) TraceTiers(kv_bytes, NumRunning(batches));
}

void Engine::BeginPassWork(const std::vector<RowBatch>& batches) {
  PassDone& pass = progress_.pass;
  pass = {};
  pass.num_layers = plan_.shape.num_layers;
  pass.num_cells = std::ssize(plan_.layers) * std::ssize(batches);
  for (const RowBatch& batch : batches) {
    for (const auto& row : batch.rows()) {
      row->num_past == 0 ? pass.prompt_tokens += std::ssize(row->request.prompt)
                         : ++pass.decode_tokens;
      const int64_t to_end = row->PassesToEnd();
      if (pass.to_row_end == 0 || to_end < pass.to_row_end) pass.to_row_end = to_end;
    }
  }
}

// Turns what batches have ended of the pass into work that is done.
void Engine::CountWork() {
  progress_.prompt_tokens += pass_.prompt_tokens;
  progress_.decode_tokens += std::exchange(settled_in_pass_, 0);
  progress_.pass = {};
}

void Engine::TraceTiers(const PerTier<int64_t>& kv_bytes, int64_t rows_running) {
  const double now_s = NowSeconds();
  trace_log_->Add(RowSample{now_s, rows_running});
  for (const Tier tier : kAllTiers) {
    if (plan_.PlannedBytes(tier) == 0) continue;
    trace_log_->Add(
        TierSample{now_s, tier, plan_.weight_bytes[tier], kv_bytes[tier], staging_bytes_[tier]});
  }
}

void Engine::EndPass() {
  PhaseTotals& phase = pass_.prompt_tokens > 0 ? trace_.prefill : trace_.decode;
  ++phase.passes;
  CountWork();
  AddPass(phase);
}

// Counts what a pass moved ahead for the next as its own.
void Engine::AddPass(PhaseTotals& phase) {
  const double now_s = NowSeconds();
  const WaitTotals& waits = mover_.waits();
  phase.seconds += now_s - pass_begin_s_;
  phase.compute_s += pass_.compute_s;
  for (const ComputePart part : kAllComputeParts) phase.parts[part] += pass_.parts[part];
  phase.waits += waits - waits_before_;
  phase.prompt_tokens += pass_.prompt_tokens;
  phase.generated_tokens += pass_.generated_tokens;
  AddLinks(phase);
  pass_begin_s_ = now_s;
  waits_before_ = waits;
  pass_ = {};
}

// Adds what was moved since the last call.
void Engine::AddLinks(PhaseTotals& phase) {
  const PerLink<LinkTotals> links = mover_.links();
  for (const Link link : kAllLinks) phase.links[link] += links[link] - links_before_[link];
  links_before_ = links;
}

// The cell of the head has computed as many logits as there is room for: mostly all. A text that is
// scored may want more than that.
void Engine::Head(const Cursor& at, RowBatch& batch) {
  SeeLogits(batch);
  while (batch.NextLogits()) {
    ThrowIfStopRequested();
    Compute(at, batch.packed(), InLayer::kLast);
    SeeLogits(batch);
  }
}

void Engine::SeeLogits(const RowBatch& batch) {
  const double begin_s = NowSeconds();
  const std::span<float> logits = executor_.Logits();
  const double computed_s = NowSeconds();
  pass_.compute_s += computed_s - begin_s;  // what is left of it where computes are enqueued
  pass_.parts[ComputePart::kHead] += computed_s - begin_s;
  const auto vocab = static_cast<std::size_t>(plan_.shape.vocab_size);
  const PackedBatch& packed = batch.packed();
  auto see = [&](int64_t index, int worker) {
    const PackedBatch::WantedToken wanted = packed.Wanted(packed.head.begin + index);
    const int64_t position = packed.positions[static_cast<std::size_t>(wanted.token)];
    batch.rows()[wanted.row]->next->See(
        position, logits.subspan(static_cast<std::size_t>(index) * vocab, vocab),
        choice_scratch_[static_cast<std::size_t>(worker)]);
  };
  pool_.Run(packed.head.size(), see);
  pass_.parts[ComputePart::kSampling] += NowSeconds() - computed_s;
}

void Engine::EndRows(RowBatch& batch, Job& job) {
  const double begin_s = NowSeconds();
  int64_t num_seen = 0;
  for (std::size_t at = 0; at < batch.rows().size(); ++at) {
    const std::unique_ptr<Row>& row = batch.rows()[at];
    if (row->num_past == 0) {
      pass_.prompt_tokens += std::ssize(row->request.prompt);
      row->num_shared = row->num_apart + batch.packed().rows[at].num_shared;
      // The first one stands for the prefix as it was computed.
      if (!std::exchange(prefix_is_counted_, true)) row->num_shared -= plan_.prefix.num_tokens();
      trace_.shared_prompt_tokens += row->num_shared;
    } else {
      ++settled_in_pass_;
    }
    if (row->next->EndPass() == RowStatus::kNonFinite) continue;
    row->num_logits += row->NumNewLogits();
    num_seen += row->NumNewLogits();
  }
  pass_.generated_tokens += num_seen;
  progress_.generated_tokens += num_seen;
  batch.Advance();
  Retire(batch, job);
  pass_.parts[ComputePart::kSampling] += NowSeconds() - begin_s;
}

// Rows that ended leave the batch at once: the next pass neither packs nor computes them.
void Engine::Retire(RowBatch& batch, Job& job) {
  batch.Remove([&](Row& row) {
    switch (row.next->status()) {
      case RowStatus::kRunning:
        return false;
      case RowStatus::kStopped:
      case RowStatus::kLength:
        job.Finish(row.request, row.next->Take());
        break;
      case RowStatus::kNonFinite:
        job.Fail(
            row.request, "E-NONFINITE",
            fmt::format("line {}: the model gave logits that are not finite after {} tokens; {}",
                        row.request.line, row.NumDecoded(), NonFiniteRemedy(plan_)));
        if (++num_nonfinite_ > kMaxNonFiniteRows) {
          throw Error(ErrorCode::kNonFinite,
                      fmt::format("over {} lines got logits that are not finite; {}",
                                  kMaxNonFiniteRows, NonFiniteRemedy(plan_)));
        }
        break;
    }
    ++progress_.rows;
    settled_in_pass_ += row.PassesToEnd();
    return true;
  });
}

}  // namespace spillway
