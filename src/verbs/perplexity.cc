#include "src/verbs/perplexity.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "spillway/error.h"
#include "spillway/report.h"
#include "src/answers/fingerprint.h"
#include "src/base/clock.h"
#include "src/base/terminal.h"
#include "src/run/supervisor.h"
#include "src/verbs/chain.h"
#include "src/verbs/policy_for.h"
#include "src/verbs/prompt_file.h"
#include "src/verbs/run_output.h"
#include "src/verbs/window_job.h"

namespace spillway {
namespace {

// Window of transformers' documentation.
constexpr int64_t kWindow = 2048;
constexpr int64_t kStride = 512;

std::vector<TextWindow> CutIntoWindows(const Config& config, const ModelShape& shape,
                                       int64_t num_tokens) {
  const int64_t window = config.window.value_or(std::min(kWindow, shape.max_positions));
  if (window > shape.max_positions && !config.kv.rolls) {
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

// Throws: Error kFlag: windows that a rolling cache cannot take.
void CheckLength(const Config& config, const ModelShape& shape, const RequestShape& longest) {
  if (longest.prompt_tokens > shape.max_positions) {
    throw Error(
        ErrorCode::kFlag,
        fmt::format("--window: first pass of {} tokens is over the {} positions of {}; give "
                    "--prefill fewer",
                    longest.prompt_tokens, shape.max_positions, Printable(shape.name)));
  }
  const std::string why =
      WhyTooLong(config.kv, shape.max_positions, {longest.prompt_tokens, longest.max_new_tokens});
  if (!why.empty()) throw Error(ErrorCode::kFlag, fmt::format("--window: {}", why));
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

class PerplexityStages final : public Stages {
 public:
  explicit PerplexityStages(const Opened& opened)
      : begin_s_(opened.begin_s), output_(opened.flags, opened.flags.perplexity, {}) {}

  Workload ReadWork(const Setting& setting) override {
    const auto& [config, model, machine, device, needs] = setting;
    output_.line().Note("reading the text");
    tokens_ = ReadTextTokens(config, config.perplexity, "--perplexity", *model.tokenizer);
    job_.emplace(tokens_, CutIntoWindows(config, model.shape, static_cast<int64_t>(tokens_.size())),
                 Feed{PrefillOf(config), WindowStart(config, model.shape)});
    const Workload work = job_->Work();
    CheckLength(config, model.shape, work.longest);
    return work;
  }

  std::optional<Trace> Run(const Setting& setting, const PlannedRun& planned) override {
    const auto& [config, model, machine, device, needs] = setting;
    return RunJob({model, planned.plan, device, OffloadFolder(config), config.seed,
                   ExpectedOf(planned.work, std::nullopt), output_.OpenTrace(planned.plan)},
                  planned.schedule, *job_, output_.line());
  }

  int Report(const Setting& /*setting*/, const PlannedRun& planned,
             const std::optional<Trace>& trace) override {
    const ScoreSummary score = job_->Summary();
    const RunSummary summary = {.num_requests = job_->num_windows(),
                                .num_completions = job_->num_windows(),
                                .total_s = NowSeconds() - begin_s_,
                                .fingerprint = TokenFingerprint().Hex(),
                                .score = score};
    output_.Report(planned.plan, *trace, summary);
    PrintTo(stdout,
            fmt::format("perplexity {:.2f} ({} tokens)\n", *score.perplexity(), score.num_tokens));
    return 0;
  }

 private:
  double begin_s_;
  RunOutput output_;
  std::vector<TokenId> tokens_;
  std::optional<WindowJob> job_;
};

}  // namespace

int RunPerplexity(const Config& config) { return RunChain(config, MakeStages<PerplexityStages>); }

}  // namespace spillway
