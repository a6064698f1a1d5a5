#include "src/verbs/stream.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <optional>
#include <utility>
#include <vector>

#include "spillway/error.h"
#include "src/answers/answer_stream.h"
#include "src/base/clock.h"
#include "src/base/exit_status.h"
#include "src/base/host.h"
#include "src/base/terminal.h"
#include "src/run/supervisor.h"
#include "src/verbs/chain.h"
#include "src/verbs/prediction_for.h"  // OverlapOf
#include "src/verbs/prompt_file.h"     // ReaderOptionsFor
#include "src/verbs/run_output.h"
#include "src/verbs/stream_batch.h"
#include "src/verbs/writer_options.h"

namespace spillway {
namespace {

// Rows that memory is laid out for where the first batch has fewer: a later one may have more.
constexpr int64_t kLeastRequests = 256;

bool IsOutOfMemory(const Error& error) {
  return error.code() == ErrorCode::kGpuMemory || error.code() == ErrorCode::kCpuMemory ||
         error.code() == ErrorCode::kDiskSpace;
}

// The flags with the placement, and where attention is computed, that the weights were loaded with.
Config Pinned(const Config& config, const Policy& policy) {
  Config pinned = config;
  GivenPolicy given = config.policy.value_or(GivenPolicy{});
  given.placement = Placement{policy.weight_frac, policy.kv_frac, policy.activation_frac};
  given.cpu_attention = policy.cpu_attention;
  pinned.policy = given;
  pinned.percent.reset();
  pinned.cpu_attention = policy.cpu_attention;
  return pinned;
}

// The plan that memory is reserved by: all of the caps, where that costs nothing until it is used.
Plan Reserving(Plan plan, const Device& device) {
  const Machine& machine = plan.machine;
  PerTier<int64_t>& arena = plan.arena_bytes;
  if (machine.device == Tier::kGpu) arena[Tier::kGpu] = machine.cap_bytes[Tier::kGpu];
  if (!device.IsHostMemory()) return plan;
  const int64_t free = AvailableMemoryBytes() - arena[Tier::kGpu];
  const int64_t most = std::min(machine.cap_bytes[Tier::kCpu], free) - plan.table_bytes;
  arena[Tier::kCpu] = std::max(arena[Tier::kCpu], most);
  return plan;
}

// The machine with what was reserved of its memory.
Machine WithArenas(Machine machine, const Plan& reserved) {
  for (const Tier tier : {Tier::kGpu, Tier::kCpu})
    machine.cap_bytes[tier] = reserved.arena_bytes[tier];
  return machine;
}

struct StreamTotals {
  int64_t num_batches = 0;
  int64_t num_blocks = 0;
  int64_t num_passes = 0;
  int64_t prompt_tokens = 0;
  int64_t generated_tokens = 0;
  double compute_s = 0.0;  // of all passes

  void Add(const Trace& trace) {
    ++num_batches;
    num_blocks += trace.num_blocks;
    for (const PhaseTotals* phase : {&trace.prefill, &trace.decode}) {
      num_passes += phase->passes;
      prompt_tokens += phase->prompt_tokens;
      generated_tokens += phase->generated_tokens;
      compute_s += phase->seconds;
    }
  }
};

class StreamStages final : public Stages {
 public:
  explicit StreamStages(const Opened& opened)
      : begin_s_(opened.begin_s),
        output_(opened.flags, {}, {}),
        answers_(*opened.model.tokenizer, WriterOptionsOf(opened.flags, opened.model)) {}

  // Reads the first batch, which tells what requests are like here.
  Workload ReadWork(const Setting& setting) override {
    const Config& config = setting.config;
    reader_.emplace(ReaderOptionsFor(config, setting.model), *setting.model.tokenizer, answers_,
                    static_cast<double>(config.pause_ms) / 1e3);
    batch_ = reader_->Next();
    return ReservedWork();
  }

  // Plans for many requests like those of the first batch.
  Plan PlanFor(const Setting& setting, const Workload& work, const Policy& policy) override {
    try {
      return Stages::PlanFor(setting, work, policy);
    } catch (const Error& error) {
      if (!IsOutOfMemory(error)) throw;
      if (!RefuseLongRows(setting, error)) throw;
    }
    const Workload less = ReservedWork();
    return Stages::PlanFor(setting, less, ChoosePolicy(setting, less));
  }

  std::optional<Trace> Run(const Setting& setting, const PlannedRun& planned) override {
    if (batch_.empty()) return std::nullopt;
    const auto& [config, model, machine, device, needs] = setting;
    reserved_ = Reserving(planned.plan, device);
    const Config pinned = Pinned(config, reserved_->policy);
    const Machine arenas = WithArenas(machine, *reserved_);
    const Setting later = {pinned, model, arenas, device, needs};
    Supervisor supervisor({model, *reserved_, device, OffloadFolder(config), config.seed,
                           ExpectedOf(planned.work, std::nullopt), nullptr, BeginningsOf(config)},
                          output_.line());
    while (!batch_.empty()) {
      if (const std::optional<Plan> plan = PlanBatch(later)) RunBatch(later, *plan, supervisor);
      batch_ = reader_->Next();
    }
    return std::nullopt;
  }

  int Report(const Setting& /*setting*/, const PlannedRun& /*planned*/,
             const std::optional<Trace>& /*trace*/) override {
    output_.line().Clear();
    output_.Print(Summary());
    const AnswerCounts& counts = answers_.counts();
    if (counts.num_errors == 0) return 0;
    PrintWarning(fmt::format("{} of {} lines carry errors; each says why in its answer",
                             counts.num_errors, counts.num_lines()));
    return kSomeLinesCarryErrors;
  }

  Error Explain(const Error& error) override {
    const int64_t num_answers = answers_.counts().num_lines();
    if (error.code() != ErrorCode::kInterrupted || num_answers == 0) return error;
    return Error(error.code(), fmt::format("{}; {} answer{} went out, the other lines have none",
                                           error.what(), num_answers, num_answers == 1 ? "" : "s"));
  }

 private:
  Workload ReservedWork() const {
    Workload work = WorkloadOf(batch_);
    if (!batch_.empty()) work.num_requests = std::max(work.num_requests, kLeastRequests);
    return work;
  }

  // nullopt: no row of the batch fits what the weights have left. What its prompts begin with is
  // held once where the memory that was reserved has room for it.
  std::optional<Plan> PlanBatch(const Setting& setting) {
    if (std::optional<Plan> plan = PlanAsReserved(setting, WorkloadOf(batch_, setting)))
      return plan;
    try {
      return PlanOf(setting, WorkloadOf(batch_));
    } catch (const Error& error) {
      if (!IsOutOfMemory(error)) throw;
      if (!RefuseLongRows(setting, error)) {
        RefuseRows(0, error);
        return std::nullopt;
      }
    }
    return PlanOf(setting, WorkloadOf(batch_));
  }

  Plan PlanOf(const Setting& setting, const Workload& work) {
    if (std::optional<Plan> plan = PlanAsReserved(setting, work)) return *std::move(plan);
    return Stages::PlanFor(setting, work, ChoosePolicy(setting, work));
  }

  // The policy that memory was reserved by, which may have been searched for; nullopt where it was
  // chosen for fewer requests, or for shorter ones.
  std::optional<Plan> PlanAsReserved(const Setting& setting, const Workload& work) const {
    if (!reserved_ || work.num_requests > reserved_->num_requests) return std::nullopt;
    Plan plan = LayOut(setting.model, setting.machine, work, reserved_->policy, setting.needs);
    const auto is_within = [&](Tier tier) {
      return plan.arena_bytes[tier] <= reserved_->arena_bytes[tier] &&
             plan.PlannedBytes(tier) <= reserved_->PlannedBytes(tier);
    };
    const bool fits =
        is_within(Tier::kGpu) && is_within(Tier::kCpu) && plan.Excess(Tier::kDisk) == 0;
    return fits ? std::optional(std::move(plan)) : std::nullopt;
  }

  bool Fits(const Setting& setting, int64_t row_tokens) {
    StreamBatch some;
    std::ranges::copy_if(batch_, std::back_inserter(some), [&](const StreamedRequest& streamed) {
      return ShapeOf(streamed.request).slots() <= row_tokens;
    });
    try {
      PlanOf(setting, WorkloadOf(some));
      return true;
    } catch (const Error& error) {
      if (!IsOutOfMemory(error)) throw;
      return false;
    }
  }

  // Answers the rows that are too long for memory with the error; the others are the batch from
  // then on. False: not even the shortest fits, and nothing is answered.
  bool RefuseLongRows(const Setting& setting, const Error& error) {
    std::vector<int64_t> lengths;
    for (const StreamedRequest& streamed : batch_)
      lengths.push_back(ShapeOf(streamed.request).slots());
    std::ranges::sort(lengths);
    lengths.erase(std::unique(lengths.begin(), lengths.end()), lengths.end());
    const auto first_too_long = std::ranges::partition_point(
        lengths, [&](int64_t row_tokens) { return Fits(setting, row_tokens); });
    if (first_too_long == lengths.begin()) return false;
    RefuseRows(*std::prev(first_too_long), error);
    return true;
  }

  // Rows of more tokens than that.
  void RefuseRows(int64_t row_tokens, const Error& error) {
    StreamBatch kept;
    for (StreamedRequest& streamed : batch_) {
      const Request& request = streamed.request;
      if (ShapeOf(request).slots() <= row_tokens) {
        kept.push_back(std::move(streamed));
        continue;
      }
      answers_.Put(LineError{request.line, request.custom_id, std::string(ErrorName(error.code())),
                             fmt::format("line {}: a row of {} tokens {}", request.line,
                                         ShapeOf(request).slots(), error.what())},
                   streamed.text_hash);
    }
    batch_ = std::move(kept);
  }

  void RunBatch(const Setting& setting, const Plan& plan, Supervisor& supervisor) {
    if (setting.config.verbosity == Verbosity::kVerbose) {
      output_.Print(
          fmt::format("stream: batch {}: {} requests; batches of {} rows, {} in a block; a prefix "
                      "of {} tokens\n",
                      totals_.num_batches + 1, batch_.size(), plan.batch.rows, plan.num_batches,
                      plan.prefix.num_tokens()));
    }
    StreamJob job(batch_, answers_);
    ProgressLine& line = output_.line();
    line.Begin(ExpectedOf(WorkloadOf(batch_), std::nullopt));
    supervisor.Fit(plan);
    totals_.Add(supervisor.Run(plan, MakeSchedule(plan, OverlapOf(setting.config)), job,
                               [&](const WorkDone& done) { line.Update(done); }));
    line.Clear();
  }

  std::string Summary() const {
    const AnswerCounts& counts = answers_.counts();
    return fmt::format(
        "stream: {} lines, {} answers, {} errors; {} batches, {} blocks, {} passes; {} prompt and "
        "{} new tokens in {:.2f} of {:.2f} s\n",
        reader_->num_lines(), counts.num_completions, counts.num_errors, totals_.num_batches,
        totals_.num_blocks, totals_.num_passes, totals_.prompt_tokens, totals_.generated_tokens,
        totals_.compute_s, NowSeconds() - begin_s_);
  }

  double begin_s_;
  RunOutput output_;
  AnswerStream answers_;
  std::optional<BatchReader> reader_;
  StreamBatch batch_;
  std::optional<Plan> reserved_;  // that the model was loaded by
  StreamTotals totals_;
};

}  // namespace

int AnswerStreamed(const Config& config) { return RunChain(config, MakeStages<StreamStages>); }

}  // namespace spillway
