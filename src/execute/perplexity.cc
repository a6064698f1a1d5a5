#include "src/execute/perplexity.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "spillway/error.h"
#include "spillway/report.h"
#include "src/clock.h"
#include "src/execute/job.h"
#include "src/execute/open_device.h"
#include "src/execute/prepare.h"
#include "src/execute/prompt_file.h"
#include "src/execute/run_blocks.h"
#include "src/execute/text_windows.h"
#include "src/model/open_model.h"
#include "src/report/progress.h"
#include "src/report/report_file.h"
#include "src/report/terminal.h"
#include "src/requests/fingerprint.h"
#include "src/requests/score_request.h"
#include "src/requests/text_file.h"

namespace spillway {
namespace {

// As in transformers' documentation.
constexpr int64_t kWindow = 2048;
constexpr int64_t kStride = 512;

// Windows are alike: more would only be counted again and again while policies are compared.
constexpr int64_t kSampleWindows = 4096;

std::vector<TokenId> ReadTokens(const Config& config, const Tokenizer& tokenizer) {
  if (!tokenizer.encodes_text()) {
    throw Error(ErrorCode::kFlag, "--perplexity: the model has no tokenizer; give --tokenizer");
  }
  const std::string text = ReadTextFile(config.perplexity, "--perplexity");
  std::vector<TokenId> tokens;
  if (!text.empty()) tokens = tokenizer.Encode(text, config.special_text);
  if (tokens.size() >= 2) return tokens;
  throw Error(ErrorCode::kInput, fmt::format("{}: is too short to score: {} tokens",
                                             Printable(config.perplexity.string()), tokens.size()));
}

std::vector<TextWindow> CutIntoWindows(const Config& config, const ModelShape& shape,
                                       int64_t num_tokens) {
  const int64_t window = config.window.value_or(std::min(kWindow, shape.max_positions));
  if (window > shape.max_positions) {
    throw Error(ErrorCode::kFlag, fmt::format("--window {}: {} has {} positions; give at most that",
                                              window, Printable(shape.name), shape.max_positions));
  }
  const int64_t stride = config.stride.value_or(std::min(kStride, window));
  if (stride > window) {
    throw Error(ErrorCode::kFlag,
                fmt::format("--stride {}: would leave tokens out between windows of {}; give at "
                            "most that",
                            stride, window));
  }
  return WindowsOf(num_tokens, window, stride);
}

// The start token where --start-each-window asks for it.
std::optional<TokenId> WindowStart(const Config& config, const ModelShape& shape) {
  if (!config.start_each_window) return std::nullopt;
  if (shape.bos < 0) {
    throw Error(ErrorCode::kFlag,
                fmt::format("--start-each-window: {} has no start token", Printable(shape.name)));
  }
  return shape.bos;
}

// How windows are fed.
struct Feed {
  ScorePrefill prefill;
  std::optional<TokenId> start;  // in place of each window's first token
};

// The windows of a text as requests; line N is window N.
class WindowJob final : public Job {
 public:
  // Lifetime: the tokens outlive the job.
  WindowJob(const std::vector<TokenId>& tokens, std::vector<TextWindow> windows, const Feed& feed)
      : tokens_(tokens), windows_(std::move(windows)), feed_(feed), sums_(windows_.size()) {}

  std::optional<Request> Next() override {
    if (next_ == windows_.size()) return std::nullopt;
    return RequestOf(next_++);
  }
  void Finish(const Request& request, const Completion& completion) override {
    const std::vector<float>& logprobs = completion.scores.logprobs;
    sums_[static_cast<std::size_t>(request.line - 1)] =
        std::accumulate(logprobs.begin(), logprobs.end(), 0.0);
  }
  // A perplexity of the rest of a text would be another text's.
  void Fail(const Request& request, const std::string&, const std::string&) override {
    const TextWindow& window = windows_[static_cast<std::size_t>(request.line - 1)];
    throw Error(
        ErrorCode::kNonFinite,
        fmt::format("tokens {} to {} of the text: the model gave logits that are not finite; "
                    "check its weights",
                    window.begin, window.end - 1));
  }

  ScoreSummary Summary() const {
    ScoreSummary summary;
    for (const TextWindow& window : windows_) summary.num_tokens += window.end - window.first;
    summary.logprob_sum = std::accumulate(sums_.begin(), sums_.end(), 0.0);  // in the text's order
    return summary;
  }

  Workload Work() const {
    Workload work;
    work.num_requests = num_windows();
    int64_t longest = 0;
    for (std::size_t index = 0; index < windows_.size(); ++index) {
      const Request request = RequestOf(index);
      const RequestShape row = {static_cast<int64_t>(request.prompt.size()),
                                request.sampling.max_tokens, request.NumPromptLogits()};
      longest = std::max(longest, row.slots());
      work.longest.prompt_tokens = std::max(work.longest.prompt_tokens, row.prompt_tokens);
      work.longest.prompt_logits = std::max(work.longest.prompt_logits, row.prompt_logits);
      if (static_cast<int64_t>(index) < kSampleWindows) work.sample.push_back(row);
    }
    work.longest.max_new_tokens = longest - work.longest.prompt_tokens;
    return work;
  }

  int64_t num_windows() const { return static_cast<int64_t>(windows_.size()); }

 private:
  Request RequestOf(std::size_t index) const {
    const TextWindow& window = windows_[index];
    KnownTokens text;
    text.tokens.assign(tokens_.begin() + window.begin, tokens_.begin() + window.end);
    text.first = window.first - window.begin;
    if (feed_.start) text.tokens.front() = *feed_.start;
    Request request = ScoreRequest(std::move(text), feed_.prefill);
    request.line = static_cast<int64_t>(index) + 1;
    return request;
  }

  const std::vector<TokenId>& tokens_;
  std::vector<TextWindow> windows_;
  Feed feed_;
  std::vector<double> sums_;  // [window]
  std::size_t next_ = 0;
};

ExpectedWork ExpectedOf(const WindowJob& job) {
  return {job.num_windows(), job.Summary().num_tokens};
}

}  // namespace

int RunPerplexity(const Config& config) {
  const double begin_s = NowSeconds();
  const std::unique_ptr<Device> device = OpenDevice(config);
  const OpenedModel model = OpenModel(config);
  const ReportFile report("--report", config.report, {config.perplexity, {}, config.trace});
  const ReportFile trace_file("--trace", config.trace, {config.perplexity, {}, config.report});
  const Machine machine = ProbeMachine(config, model, *device);
  RefuseWhatCannotFit(config, model.shape, machine, *device);

  ProgressLine line(config.progress ? TerminalOf(config) : nullptr);
  line.Note("reading the text");
  const std::vector<TokenId> tokens = ReadTokens(config, *model.tokenizer);
  WindowJob job(tokens, CutIntoWindows(config, model.shape, static_cast<int64_t>(tokens.size())),
                {PrefillOf(config), WindowStart(config, model.shape)});
  const Plan plan = PlanFor(config, model.shape, machine, job.Work(), *device);
  std::optional<TraceLog> trace_log;
  if (trace_file.asked_for()) trace_log.emplace(trace_file, plan);
  const Trace trace =
      RunBlocks({config, model, plan, *device, ExpectedOf(job), trace_log ? &*trace_log : nullptr},
                job, line);

  const ScoreSummary score = job.Summary();
  const RunSummary summary = {job.num_windows(),      job.num_windows(),        0,
                              NowSeconds() - begin_s, TokenFingerprint().Hex(), score};
  report.Write(ReportJson(plan, trace, summary));
  if (trace_log) trace_log->Finish();
  line.Clear();
  if (std::FILE* terminal = TerminalOf(config))
    PrintTo(terminal, ReportTable(plan, trace, summary));
  PrintTo(stdout,
          fmt::format("perplexity {:.2f} ({} tokens)\n", *score.perplexity(), score.num_tokens));
  return 0;
}

}  // namespace spillway
