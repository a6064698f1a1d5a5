#include "src/verbs/answer_lines.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <iterator>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "spillway/error.h"
#include "spillway/report.h"
#include "src/answers/writer.h"
#include "src/base/clock.h"
#include "src/base/date_text.h"
#include "src/base/exit_status.h"
#include "src/base/terminal.h"
#include "src/report/progress.h"
#include "src/report/quality_text.h"
#include "src/requests/input_file.h"
#include "src/run/supervisor.h"
#include "src/unicode/utf8.h"
#include "src/verbs/advice.h"
#include "src/verbs/chain.h"
#include "src/verbs/early_end.h"
#include "src/verbs/file_job.h"
#include "src/verbs/host_profile.h"
#include "src/verbs/input_text.h"
#include "src/verbs/policy_for.h"
#include "src/verbs/prediction_for.h"
#include "src/verbs/prompt_file.h"
#include "src/verbs/run_identity.h"
#include "src/verbs/run_output.h"
#include "src/verbs/shadow_rows.h"
#include "src/verbs/writer_options.h"

namespace spillway {
namespace {

// Success, for an empty input has an empty output; but mostly it is a mistake of whoever made it.
void WarnOfNothingRead(const Config& config) {
  PrintWarning(fmt::format(
      "{}: no {} were read, for the input has no lines; one JSON object a line is expected",
      config.input == "-" ? "standard input" : Printable(config.input.string(), 160),
      config.verb == Verb::kScore ? "texts" : "prompts"));
}

// Tells of many empty completions, which are mostly somebody's mistake.
void WarnOfEmpty(const AnswerCounts& written) {
  if (10 * written.num_empty <= written.num_completions) return;
  PrintWarning(fmt::format(
      "{} of {} completions are empty: the model ended at once; look at the prompts, the "
      "tokenizer, --stop and the chat template",
      written.num_empty, written.num_completions));
}

void WarnOfQuality(const QualityReceipt& receipt, const Policy& policy) {
  const std::string warning = QualityWarning(receipt, policy.kv, policy.kv_bits);
  if (!warning.empty()) PrintWarning(warning);
}

// The work that an interrupted run has left; a sample of some rows still stands for the others.
Workload Rest(Workload work, int64_t num_completions) {
  const int64_t done = std::min(num_completions, work.num_requests);
  if (std::ssize(work.sample) == work.num_requests)
    work.sample.erase(work.sample.begin(), work.sample.begin() + done);
  work.num_requests -= done;
  return work;
}

// --verbose: what was read and what is planned, before the run.
void Describe(const Config& config, const OpenedModel& model, const InputScan& scan,
              const Plan& plan) {
  if (config.verbosity != Verbosity::kVerbose) return;
  std::string text = fmt::format("model: {} ({}), tokenizer: {}\n", model.shape.name,
                                 model.checkpoint->format(), model.tokenizer->kind());
  if (!model.weights.surplus.empty()) {
    text += fmt::format("model: {} tensors are not used, the first is {}\n",
                        model.weights.surplus.size(), Printable(model.weights.surplus.front()));
  }
  text += fmt::format("input: {} lines, {} blank, longest prompt at most {} tokens\n",
                      scan.num_lines, scan.num_blank_lines, scan.max_prompt_tokens);
  text += fmt::format("plan: batches of {} rows and {} KV slots, {} in a block, {} bytes in all\n",
                      plan.batch.rows, plan.batch.slots, plan.num_batches,
                      plan.arena_bytes[Tier::kCpu]);
  PrintTo(TerminalOf(config), text);
}

ExistingOutput ExistingOf(const Config& config) {
  if (config.overwrite) return ExistingOutput::kReplace;
  if (!config.resume) return ExistingOutput::kGoOn;
  return *config.resume ? ExistingOutput::kResume : ExistingOutput::kRefuse;
}

WriterOptions FileOptionsOf(const Config& config, const OpenedModel& model) {
  WriterOptions options = WriterOptionsOf(config, model);
  options.existing = ExistingOf(config);
  options.command = ReplaceInvalidUtf8(config.command);  // it goes into JSON
  return options;
}

// Keeps an interrupted run's choice of where attention is computed, where the flags leave it open.
void KeepCpuAttention(const CompletionWriter& writer, Config& config) {
  if (config.cpu_attention) return;
  if (const std::optional<RunManifest> run = writer.InterruptedRun()) {
    config.cpu_attention = AttendedOnCpu(*run);
    config.keeps_cpu_attention = config.cpu_attention.has_value();
  }
}

// Keeps an interrupted run's date of chat templates, where the flags leave it open.
void KeepChatDate(const CompletionWriter& writer, Config& config) {
  if (config.chat_date) return;
  const std::optional<RunManifest> run = writer.InterruptedRun();
  if (run) config.chat_date = ChatDateOf(*run);
  if (!config.chat_date) config.chat_date = DayBeforeToday(0);
}

// The policy that a finished run may also have had, where the flags leave CPU attention open.
Policy OtherAttention(Policy policy) {
  policy.cpu_attention = !policy.cpu_attention;
  policy.kv_frac = {};
  policy.kv_frac[Tier::kCpu] = 1.0;
  return policy;
}

class AnswerStages final : public Stages {
 public:
  explicit AnswerStages(const Opened& opened)
      : flags_(opened.flags),
        begin_s_(opened.begin_s),
        output_(flags_, flags_.input, flags_.output),
        writer_(flags_.output, *opened.model.tokenizer, FileOptionsOf(flags_, opened.model)) {}

  Config Settle(const Config& flags) override {
    Config config = flags;
    KeepCpuAttention(writer_, config);
    KeepChatDate(writer_, config);
    return config;
  }

  Workload ReadWork(const Setting& setting) override {
    const auto& [config, model, machine, device, needs] = setting;
    output_.line().Note("reading the input");
    prompts_.emplace(config, model);
    scan_ = prompts_->Scan();
    RefuseBadLines(config, scan_);
    return WorkloadOf(scan_, setting);
  }

  std::optional<Machine> MakeProfile(const Setting& setting, const Workload& work) override {
    if (writer_.finished()) return std::nullopt;
    return MakeQuickProfile(setting, work, output_.line());
  }

  Policy ChoosePolicy(const Setting& setting, const Workload& work) override {
    output_.line().Note("choosing a policy");
    return Stages::ChoosePolicy(setting, work);
  }

  // Plans for the whole input, whatever an interrupted run has left of it.
  Plan PlanFor(const Setting& setting, const Workload& work, const Policy& policy) override {
    Plan plan = Stages::PlanFor(setting, work, policy);
    Describe(setting.config, setting.model, scan_, plan);
    SampleRows(setting, plan.policy);
    BeginOrResume(setting, plan.policy);
    rest_ = finished_ ? Workload{} : Rest(work, writer_.earlier().num_completions);
    plan.num_requests = rest_.num_requests;  // its places stay those of the whole input
    return plan;
  }

  std::optional<Trace> Run(const Setting& setting, const PlannedRun& planned) override {
    if (finished_) return std::nullopt;
    const auto& [config, model, machine, device, needs] = setting;
    expected_ = PredictionFor(config, planned.plan, rest_);
    job_.emplace(*reader_, writer_, shadow_ ? &*shadow_ : nullptr);
    ExpectedWork expected = ExpectedOf(rest_, expected_);
    expected.earlier_rows = planned.work.num_requests - rest_.num_requests;
    SayWhatRuns(setting, planned);
    const RunInputs run = {model,
                           planned.plan,
                           device,
                           OffloadFolder(config),
                           config.seed,
                           expected,
                           output_.OpenTrace(planned.plan),
                           BeginningsOf(config)};
    Trace trace = RunKeepingLines(setting, run, planned);
    RefuseChangedInput();
    writer_.Finish();
    total_s_ = NowSeconds() - begin_s_;
    return trace;
  }

  int Report(const Setting& setting, const PlannedRun& planned,
             const std::optional<Trace>& trace) override {
    if (!trace) return ReportFinished(planned.plan);
    Plan plan = planned.plan;
    RunSummary summary = Summary();
    if (!setting.model.tokenizer->encodes_text()) summary.num_empty = 0;  // none has a text
    if (!Scores())
      summary.sampling = {setting.config.sampling, setting.config.from_generation_config};
    summary.predicted = PredictionAfter(setting.config, *trace, rest_, expected_, plan);
    output_.Report(plan, *trace, summary);
    const AnswerCounts written = writer_.earlier() + writer_.answers();
    if (written.num_lines() == 0) WarnOfNothingRead(setting.config);
    if (setting.model.tokenizer->encodes_text()) WarnOfEmpty(written);
    if (summary.quality) WarnOfQuality(*summary.quality, plan.policy);
    if (written.num_errors == 0) return 0;
    PrintWarning(fmt::format("{} of {} lines carry errors; each says why in the output",
                             written.num_errors, written.num_lines()));
    return kSomeLinesCarryErrors;
  }

  Error Explain(const Error& error) override {
    if (is_explained_ || error.code() != ErrorCode::kInterrupted) return error;
    if (writer_.finished() || writer_.part_path().empty()) return error;
    return Error(
        error.code(),
        fmt::format("{}; nothing was computed yet, the same command begins again", error.what()));
  }

 private:
  // Told before the model is loaded, and after all that may refuse the run.
  void SayWhatRuns(const Setting& setting, const PlannedRun& planned) {
    output_.line().Clear();
    if (flags_.verbosity == Verbosity::kQuiet) return;
    PrintTo(stderr, InputText(flags_, scan_, rest_.num_requests) +
                        PrefixText(planned.work, planned.plan) +
                        DoneByText(rest_.num_requests, expected_));
    // Of a search's result plan alone tells what would help: it searches on for it.
    if (!expected_) PrintTo(stderr, AdviceText(setting, planned, std::nullopt));
  }

  bool Scores() const { return flags_.verb == Verb::kScore; }

  // With --shadow: the sample, and its plan, which may refuse the run.
  void SampleRows(const Setting& setting, const Policy& policy) {
    if (!flags_.shadow_frac || scan_.num_requests == 0 || writer_.finished()) return;
    if (!DiffersFromFullKv(policy)) {
      throw Error(ErrorCode::kFlag,
                  "--shadow: compares with the full KV cache of 16 bits, which this run has; give "
                  "--kv-policy or --kv-bits, or leave it out");
    }
    if (policy.kv.rolls) {
      throw Error(ErrorCode::kFlag,
                  "--shadow: compares with the full KV cache, which does not roll; leave out "
                  "--rolling, or this");
    }
    RequestReader reader = prompts_->Read();
    shadow_.emplace(setting, reader, scan_.num_requests, *flags_.shadow_frac);
  }

  // Passes over the lines of the input that an interrupted run has answered, which may be all.
  void BeginOrResume(const Setting& setting, const Policy& policy) {
    const auto& [config, model, machine, device, needs] = setting;
    // Taking it reads from the model's files.
    const auto identity_of = [&](const Policy& of) {
      return IdentityOf(setting.config, setting.model, of, setting.device, scan_.hash,
                        output_.line().NoteReads());
    };
    const RunManifest manifest = identity_of(policy);
    if (writer_.finished()) {
      std::vector<RunManifest> runs = {manifest};
      if (!config.cpu_attention) runs.push_back(identity_of(OtherAttention(policy)));
      if (!flags_.chat_date) {
        for (std::size_t at = 0, size = runs.size(); at < size; ++at)
          std::ranges::move(OnEarlierDays(runs[at]), std::back_inserter(runs));
      }
      finished_ = writer_.FinishedRun(runs, scan_.num_lines);
      return;
    }
    writer_.SetRunFingerprint(scan_.hash);
    reader_.reset(new RequestReader(prompts_->Read()));
    reader_->Expect(std::move(scan_.line_hashes));
    if (reader_->Skip(writer_.Begin(manifest))) return;
    throw Error(ErrorCode::kResume, "the input changed while it was read");
  }

  // Bad lines alone need no model in memory.
  Trace RunLines(const Setting& setting, const RunInputs& run, const PlannedRun& planned) {
    if (run.plan.num_requests == 0) {
      if (job_->Next()) throw Error(ErrorCode::kResume, "the input changed while it was read");
      return {};
    }
    if (shadow_) RunFullRows(setting);
    Supervisor supervisor(run, output_.line());
    if (shadow_) RunOwnRows(planned, supervisor);
    answers_began_ = true;
    output_.line().Begin(run.expected);
    return supervisor.Run(run.plan, planned.schedule, *job_,
                          [this](const WorkDone& done) { output_.line().Update(done); });
  }

  void RunFullRows(const Setting& setting) {
    output_.Print(fmt::format(
        "quality: {} of {} rows run first, with the full KV cache and then along its answers\n",
        shadow_->num_rows(), scan_.num_requests));
    shadow_->RunFull(setting, output_.line());
  }

  // Told before the night, so that there is none if it is bad.
  void RunOwnRows(const PlannedRun& planned, Supervisor& supervisor) {
    shadow_->RunOwn(planned.plan, planned.schedule.overlap, supervisor, output_.line());
    output_.line().Clear();
    const std::optional<QualityReceipt> receipt = shadow_->Receipt();
    if (!receipt) {
      PrintWarning("--shadow: no row of the sample had finite logits; nothing is told of quality");
      return;
    }
    output_.Print(fmt::format("quality: {}\n", StepsText(*receipt)));
    WarnOfQuality(*receipt, planned.plan.policy);
  }

  // Keeps finished lines, whatever ends the run early.
  Trace RunKeepingLines(const Setting& setting, const RunInputs& run, const PlannedRun& planned) {
    try {
      return RunLines(setting, run, planned);
    } catch (const Error& error) {
      writer_.FlushFinished();
      if (error.code() == ErrorCode::kInterrupted) {
        ReportStopped(error, planned.plan);
        writer_.Keep();
      }
      is_explained_ = true;
      throw EarlyEnd(error, writer_, flags_,
                     answers_began_ ? output_.line().SecondsToRowEnd() : std::nullopt);
    } catch (...) {
      writer_.FlushFinished();
      throw;
    }
  }

  // Writes the report of what was run; without it the run goes on as well.
  void ReportStopped(const Error& error, const Plan& plan) {
    // Else nothing of the answers was computed.
    const auto* stopped = answers_began_ ? dynamic_cast<const StoppedRun*>(&error) : nullptr;
    total_s_ = NowSeconds() - begin_s_;
    RunSummary summary = Summary();
    summary.is_interrupted = true;
    try {
      output_.WriteReport(plan, stopped != nullptr ? stopped->trace() : Trace(), summary);
    } catch (const Error& failure) {
      PrintWarning(failure.what());
    }
  }

  void RefuseChangedInput() const {
    if (reader_->input_hash() == scan_.hash) return;
    throw Error(
        ErrorCode::kResume,
        fmt::format("{} changed while it was read; the answers so far are in {}",
                    Printable(flags_.input.string()), Printable(writer_.part_path().string())));
  }

  RunSummary Summary() const {
    RunSummary summary;
    summary.num_requests = job_->num_requests();
    summary.num_completions = writer_.answers().num_completions;
    summary.num_errors = writer_.answers().num_errors;
    summary.num_empty = writer_.answers().num_empty;
    summary.total_s = total_s_;
    summary.fingerprint = writer_.fingerprint();
    if (Scores()) {
      const ScoreTotals& scores = writer_.scores();
      summary.score = {scores.num_tokens, scores.logprob_sum, writer_.earlier_scores().num_tokens};
    }
    if (shadow_) summary.quality = shadow_->Receipt();
    const AnswerCounts earlier = writer_.earlier();
    if (earlier.num_lines() > 0) summary.resumed = {earlier.num_completions, earlier.num_errors};
    return summary;
  }

  // The run had ended before: nothing is left to do, and the report says so, unless one that tells
  // what was done is there.
  int ReportFinished(const Plan& plan) {
    RunSummary summary;
    summary.total_s = NowSeconds() - begin_s_;
    summary.resumed = {finished_->num_completions, finished_->num_errors};
    const bool kept = output_.WriteFilesOfNothing(plan, summary);
    output_.Print(fmt::format("{} is whole: {} {}, {} errors; nothing is left to do{}\n",
                              Printable(flags_.output.string()), finished_->num_completions,
                              Scores() ? "scores" : "completions", finished_->num_errors,
                              kept ? ", and the report of before stays" : ""));
    return finished_->num_errors == 0 ? 0 : kSomeLinesCarryErrors;
  }

  const Config& flags_;
  double begin_s_;
  RunOutput output_;
  CompletionWriter writer_;
  std::optional<PromptFile> prompts_;
  InputScan scan_;
  std::unique_ptr<RequestReader> reader_;
  std::optional<AnswerCounts> finished_;  // of an output that was whole before
  Workload rest_;                         // what an interrupted run has left
  std::optional<Prediction> expected_;
  std::optional<ShadowRows> shadow_;
  std::optional<FileJob> job_;
  bool answers_began_ = false;  // those of the output
  double total_s_ = 0.0;
  bool is_explained_ = false;  // the error that ends the run
};

std::unique_ptr<Stages> OpenAnswers(const Opened& opened) {
  if (SameFile(opened.flags.input, opened.flags.output)) {
    throw Error(ErrorCode::kInput, "--output is the input file; give another name");
  }
  return std::make_unique<AnswerStages>(opened);
}

}  // namespace

int AnswerLines(const Config& config) { return RunChain(config, OpenAnswers); }

}  // namespace spillway
