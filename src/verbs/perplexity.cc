#include "src/verbs/perplexity.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "spillway/error.h"
#include "spillway/report.h"
#include "src/answers/fingerprint.h"
#include "src/base/clock.h"
#include "src/base/report_file.h"
#include "src/base/terminal.h"
#include "src/report/progress.h"
#include "src/run/supervisor.h"
#include "src/verbs/choose_policy.h"
#include "src/verbs/model_for.h"
#include "src/verbs/open_device.h"
#include "src/verbs/prepare.h"
#include "src/verbs/prompt_file.h"
#include "src/verbs/window_job.h"

namespace spillway {
namespace {

// As in transformers' documentation.
constexpr int64_t kWindow = 2048;
constexpr int64_t kStride = 512;

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

}  // namespace

int RunPerplexity(const Config& config) {
  const double begin_s = NowSeconds();
  const std::unique_ptr<Device> device = OpenDevice(config);
  const OpenedModel model = ModelFor(config);
  const ReportFile report("--report", config.report, {config.perplexity, {}, config.trace});
  const ReportFile trace_file("--trace", config.trace, {config.perplexity, {}, config.report});
  const Machine machine = ProbeMachine(config, model, *device);
  RefuseWhatCannotFit(config, model, machine, *device);

  ProgressLine line(config.progress ? TerminalOf(config) : nullptr);
  line.Note("reading the text");
  const std::vector<TokenId> tokens =
      ReadTextTokens(config, config.perplexity, "--perplexity", *model.tokenizer);
  WindowJob job(tokens, CutIntoWindows(config, model.shape, static_cast<int64_t>(tokens.size())),
                {PrefillOf(config), WindowStart(config, model.shape)});
  const Plan plan = PlanFor(config, model, machine, job.Work(), *device);
  std::optional<TraceLog> trace_log;
  if (trace_file.asked_for()) trace_log.emplace(trace_file, plan);
  const Trace trace = RunJob({model, plan, *device, OffloadFolder(config), config.seed,
                              job.Expected(), trace_log ? &*trace_log : nullptr},
                             MakeSchedule(plan, OverlapOf(config)), job, line);

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
