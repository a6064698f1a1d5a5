#include "src/verbs/answer_lines.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <optional>
#include <vector>

#include "spillway/error.h"
#include "spillway/report.h"
#include "src/answers/writer.h"
#include "src/base/clock.h"
#include "src/base/exit_status.h"
#include "src/base/report_file.h"
#include "src/base/terminal.h"
#include "src/report/progress.h"
#include "src/requests/input_file.h"
#include "src/run/supervisor.h"
#include "src/verbs/choose_policy.h"
#include "src/verbs/model_for.h"
#include "src/verbs/open_device.h"
#include "src/verbs/prepare.h"
#include "src/verbs/prompt_file.h"
#include "src/verbs/run_identity.h"

namespace spillway {
namespace {

// Lines that may be read past an unfinished one; their answers wait in memory.
constexpr int64_t kMaxLinesAhead = 16384;

bool HasNothingToScore(const Request& request) {
  return request.scored && request.scored->told.empty();
}

// The lines of the input file on one side, the lines of the output file on the other.
class FileJob final : public Job {
 public:
  FileJob(RequestReader& reader, CompletionWriter& writer) : reader_(reader), writer_(writer) {}

  // Also nullopt when too many lines wait for an unfinished one: the block then runs before more is
  // read.
  std::optional<Request> Next() override {
    if (num_unfinished_ == 0) writer_.CommitIfDue();  // a new block begins
    while (num_unfinished_ == 0 || num_ahead_ < kMaxLinesAhead) {
      const std::optional<RequestOrError> line = reader_.Next();
      if (!line) return std::nullopt;
      num_ahead_ = num_unfinished_ == 0 ? 0 : num_ahead_ + 1;
      if (const auto* request = std::get_if<Request>(&*line)) {
        writer_.Expect(request->line);
        if (writer_.PutEarlier(request->line)) continue;
        ++num_requests_;
        if (HasNothingToScore(*request)) {
          writer_.Put(*request, {});
          continue;
        }
        ++num_unfinished_;
        return *request;
      }
      const LineError& error = std::get<LineError>(*line);
      writer_.Expect(error.line);
      if (!writer_.PutEarlier(error.line)) writer_.Put(error);
    }
    return std::nullopt;
  }
  void Finish(const Request& request, const Completion& completion) override {
    --num_unfinished_;
    writer_.Put(request, completion);
  }
  void Fail(const Request& request, const std::string& code, const std::string& message) override {
    --num_unfinished_;
    writer_.Put(LineError{request.line, request.custom_id, code, message});
  }
  int64_t num_requests() const { return num_requests_; }

 private:
  RequestReader& reader_;
  CompletionWriter& writer_;
  int64_t num_requests_ = 0;
  int64_t num_unfinished_ = 0;
  int64_t num_ahead_ = 0;  // lines read since a request was first left unfinished
};

// Whatever ends a run early, finished lines stay, and the message says where.
[[noreturn]] void KeepFinishedLines(const Error& error, CompletionWriter& writer,
                                    const Config& config) {
  writer.FlushFinished();
  const int64_t num_lines = (writer.earlier() + writer.answers()).num_lines();
  if (writer.part_path().empty() || num_lines == 0) throw error;
  throw Error(
      error.code(),
      fmt::format("{}; {} finished line{} in {}{}", error.what(), num_lines,
                  num_lines == 1 ? " is" : "s are", Printable(writer.part_path().string()),
                  config.verb == Verb::kGenerate
                      ? fmt::format("; --resume goes on after {} of them", writer.num_resumable())
                      : ""));
}

// What an interrupted run has left of it; a sample of some stands for the others all the same.
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

// Bad lines alone need no model in memory.
Trace RunLines(const Config& config, const RunInputs& run, FileJob& job, CompletionWriter& writer,
               ProgressLine& line) {
  try {
    if (run.plan.num_requests > 0)
      return RunJob(run, MakeSchedule(run.plan, OverlapOf(config)), job, line);
    if (job.Next()) throw Error(ErrorCode::kResume, "the input changed while it was read");
    return {};
  } catch (const Error& error) {
    KeepFinishedLines(error, writer, config);
  } catch (...) {
    writer.FlushFinished();
    throw;
  }
}

void PrintTable(const Config& config, const Plan& plan, const Trace& trace,
                const RunSummary& summary, const AnswerCounts& output) {
  if (std::FILE* terminal = TerminalOf(config))
    PrintTo(terminal, ReportTable(plan, trace, summary));
  if (output.num_errors == 0) return;
  PrintTo(
      stderr,
      fmt::format("spillway: warning: {} of {} lines carry errors; each says why in the output\n",
                  output.num_errors, output.num_lines()));
}

WriterOptions WriterOptionsOf(const Config& config, const OpenedModel& model) {
  WriterOptions options;
  options.model_name = model.shape.name;
  if (config.overwrite) options.existing = ExistingOutput::kReplace;
  if (config.resume) options.existing = ExistingOutput::kResume;
  if (config.verb == Verb::kScore) options.form = AnswerForm::kScore;
  return options;
}

// --resume after the run had ended: nothing is left to do, and the report says so.
int ReportFinished(const Config& config, const AnswerCounts& output, const ReportFile& report,
                   Plan plan, double total_s) {
  plan.num_requests = 0;
  RunSummary summary;
  summary.total_s = total_s;
  summary.resumed = {output.num_completions, output.num_errors};
  report.Write(ReportJson(plan, {}, summary));
  if (std::FILE* terminal = TerminalOf(config)) {
    PrintTo(terminal, fmt::format("{} is whole: {} completions, {} errors; nothing to resume\n",
                                  Printable(config.output.string()), output.num_completions,
                                  output.num_errors));
  }
  return output.num_errors == 0 ? 0 : kSomeLinesCarryErrors;
}

// Passes over the lines of the input that an interrupted run has answered.
void BeginOrResume(const RunManifest& manifest, CompletionWriter& writer, RequestReader& reader) {
  if (reader.Skip(writer.Begin(manifest))) return;
  throw Error(ErrorCode::kResume, "the input changed while it was read");
}

// Where it is left to be chosen, an interrupted run's choice of what attends stays.
void KeepCpuAttention(const CompletionWriter& writer, Config& config) {
  if (config.cpu_attention) return;
  if (const std::optional<RunManifest> run = writer.InterruptedRun()) {
    config.cpu_attention = AttendedOnCpu(*run);
    config.keeps_cpu_attention = config.cpu_attention.has_value();
  }
}

// What a run that is whole may have been made with as well, where that was left to be chosen.
Policy OtherAttention(Policy policy) {
  policy.cpu_attention = !policy.cpu_attention;
  policy.kv_frac = {};
  policy.kv_frac[Tier::kCpu] = 1.0;
  return policy;
}

// What is opened before the first line is read.
struct Opened {
  const Config& config;
  Device& device;
  const OpenedModel& model;
  const ReportFile& report;
  const ReportFile& trace_file;
  CompletionWriter& writer;
  double begin_s;
};

int Answer(const Opened& opened) {
  const auto& [config, device, model, report, trace_file, writer, begin_s] = opened;
  const bool scores = config.verb == Verb::kScore;
  const Machine machine = MachineToPlanFor(config, model, device);
  RefuseWhatCannotFit(config, model, machine, device);

  ProgressLine line(config.progress ? TerminalOf(config) : nullptr);
  line.Note("reading the input");
  const PromptFile prompts(config, model);
  const InputScan scan = prompts.Scan();

  const Workload work = WorkloadOf(scan);
  Plan plan = PlanFor(config, model, machine, work, device);
  Describe(config, model, scan, plan);
  // Taking it reads from the model's files; a run that scores cannot be resumed.
  const RunManifest manifest =
      scores ? RunManifest{} : IdentityOf(config, model, plan.policy, device, scan.hash);
  if (writer.finished()) {
    std::vector<RunManifest> runs = {manifest};
    if (!config.cpu_attention)
      runs.push_back(IdentityOf(config, model, OtherAttention(plan.policy), device, scan.hash));
    const AnswerCounts output = writer.FinishedRun(runs, scan.num_lines);
    line.Clear();
    if (trace_file.asked_for()) TraceLog(trace_file, plan).Finish();
    return ReportFinished(config, output, report, plan, NowSeconds() - begin_s);
  }
  writer.SetRunFingerprint(scan.hash);

  RequestReader reader = prompts.Read();
  if (!scores) BeginOrResume(manifest, writer, reader);
  const Workload rest = Rest(work, writer.earlier().num_completions);
  plan.num_requests = rest.num_requests;  // its places stay those of the whole input
  const std::optional<Prediction> expected = PredictionFor(config, plan, rest);
  FileJob job(reader, writer);
  std::optional<TraceLog> trace_log;
  if (trace_file.asked_for()) trace_log.emplace(trace_file, plan);
  const Trace trace =
      RunLines(config,
               {model, plan, device, OffloadFolder(config), config.seed,
                ExpectedOf(rest, plan, expected), trace_log ? &*trace_log : nullptr},
               job, writer, line);
  if (reader.input_hash() != scan.hash) {
    throw Error(
        ErrorCode::kResume,
        fmt::format("{} changed while it was read; the answers so far are in {}",
                    Printable(config.input.string()), Printable(writer.part_path().string())));
  }
  writer.Finish();

  const double total_s = NowSeconds() - begin_s;
  const std::optional<Prediction> predicted =
      TakeStoreRate(trace, plan) ? PredictionFor(config, plan, rest) : expected;
  RunSummary summary = {job.num_requests(),
                        writer.answers().num_completions,
                        writer.answers().num_errors,
                        total_s,
                        writer.fingerprint(),
                        std::nullopt,
                        predicted};
  if (scores) summary.score = {writer.scores().num_tokens, writer.scores().logprob_sum};
  const AnswerCounts earlier = writer.earlier();
  if (config.resume) summary.resumed = {earlier.num_completions, earlier.num_errors};
  report.Write(ReportJson(plan, trace, summary));
  if (trace_log) trace_log->Finish();
  line.Clear();
  const AnswerCounts output = earlier + writer.answers();
  PrintTable(config, plan, trace, summary, output);
  return output.num_errors == 0 ? 0 : kSomeLinesCarryErrors;
}

}  // namespace

int AnswerLines(const Config& config) {
  const double begin_s = NowSeconds();
  const std::unique_ptr<Device> device = OpenDevice(config);
  const OpenedModel model = ModelFor(config);
  if (SameFile(config.input, config.output)) {
    throw Error(ErrorCode::kInput, "--output is the input file; give another name");
  }
  const ReportFile report("--report", config.report, {config.input, config.output, config.trace});
  const ReportFile trace_file("--trace", config.trace,
                              {config.input, config.output, config.report});
  CompletionWriter writer(config.output, *model.tokenizer, WriterOptionsOf(config, model));
  try {
    Config settled = config;
    KeepCpuAttention(writer, settled);
    return Answer({settled, *device, model, report, trace_file, writer, begin_s});
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kInterrupted || config.verb != Verb::kGenerate) throw;
    writer.Keep();  // even a run that has not begun to compute: --resume then begins it again
    if (writer.part_path().empty() || (writer.earlier() + writer.answers()).num_lines() > 0) throw;
    throw Error(error.code(),
                fmt::format("{}; no line is finished, --resume begins again", error.what()));
  }
}

}  // namespace spillway
