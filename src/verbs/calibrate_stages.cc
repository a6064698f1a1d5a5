#include "src/verbs/calibrate_stages.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <utility>
#include <variant>

#include "spillway/error.h"
#include "src/base/stop_signal.h"
#include "src/base/terminal.h"
#include "src/formats/kv_policy_json.h"
#include "src/requests/reader.h"
#include "src/verbs/prompt_file.h"

namespace spillway {
namespace {

constexpr int64_t kWindow = 640;
constexpr int64_t kLeastWindow = 64;  // that a text is cut to; a smaller one must be asked for
constexpr int64_t kFewWindows = 4;    // tell little: their mean may be off by half of itself

WindowSize SizeOf(const Config& config, const ModelShape& shape, int64_t num_tokens) {
  const int64_t window =
      config.window.value_or(std::min({kWindow, shape.max_positions, num_tokens}));
  if (!config.window && window < kLeastWindow) {
    throw Error(
        ErrorCode::kFlag,
        fmt::format("{}: {} tokens are too few to measure on; give a text of {} windows of "
                    "{} tokens or more",
                    config.input.empty() ? "--text" : "--input", num_tokens, kFewWindows, kWindow));
  }
  if (window > shape.max_positions || window > num_tokens) {
    throw Error(ErrorCode::kFlag,
                fmt::format("--window {}: the text has {} tokens and {} {} positions; give at most "
                            "the smaller number",
                            window, num_tokens, Printable(shape.name), shape.max_positions));
  }
  if (config.prefill && *config.prefill >= window) {
    throw Error(ErrorCode::kFlag,
                fmt::format("--prefill {}: leaves nothing of a window of {} to score",
                            *config.prefill, window));
  }
  return {window, config.prefill};
}

// Windows of a text, `usual` where the flags do not say and it has so many.
int64_t NumWindows(const Config& config, int64_t usual, int64_t window, int64_t num_tokens) {
  const int64_t most = num_tokens / window;
  if (config.sample.value_or(0) > most) {
    throw Error(
        ErrorCode::kFlag,
        fmt::format("--sample {}: the text has {} tokens, {} windows of {}; give at most as "
                    "many, more text or a smaller --window",
                    *config.sample, num_tokens, most, window));
  }
  const int64_t count = config.sample.value_or(std::min(usual, most));
  if (count < kFewWindows) {
    PrintWarning(fmt::format("{} of {} tokens tell little of what a budget costs; give more text",
                             count == 1 ? "one window" : fmt::format("{} windows", count), window));
  }
  return count;
}

// First tokens of windows spread over a text.
std::vector<int64_t> BeginsOf(int64_t count, int64_t window, int64_t num_tokens) {
  std::vector<int64_t> begins;
  for (int64_t index = 0; index < count; ++index)
    begins.push_back(count == 1 ? 0 : (num_tokens - window) * index / (count - 1));
  return begins;
}

// A job that keeps the log-probability of each token.
class KeepingJob final : public WindowJob {
 public:
  using WindowJob::WindowJob;

  void Finish(const Request& request, const Completion& completion) override {
    const auto window = static_cast<std::size_t>(request.line - 1);
    if (logprobs_.size() <= window) logprobs_.resize(window + 1);
    logprobs_[window] = completion.scores.logprobs;
    WindowJob::Finish(request, completion);
  }
  WindowLogprobs Take() { return std::move(logprobs_); }

 private:
  WindowLogprobs logprobs_;
};

// A job of one window, over and over.
class LessJob final : public WindowJob {
 public:
  LessJob(const std::vector<TokenId>& tokens, const TextWindow& window,
          std::span<const KvLess> places, const Feed& feed, TellLogprobs tell)
      : WindowJob(tokens, std::vector(places.size() + 1, window), feed),
        places_(places),
        tell_(std::move(tell)),
        waiting_(places.size() + 1) {}

  std::optional<Request> Next() override {
    std::optional<Request> request = WindowJob::Next();
    if (request && request->line > 1)
      request->kv_less = places_[static_cast<std::size_t>(request->line - 2)];
    return request;
  }
  void Finish(const Request& request, const Completion& completion) override {
    waiting_[static_cast<std::size_t>(request.line - 1)] = completion.scores.logprobs;
    for (; told_ < waiting_.size() && waiting_[told_]; ++told_) {
      tell_(*waiting_[told_]);
      waiting_[told_].reset();
    }
  }
  std::vector<TokenId> Prefix() const {
    const Request request = RequestOf(0);
    const std::span<const TokenId> before = request.BeforeLogits();
    const auto size = std::ssize(before) / kPrefixStep * kPrefixStep;
    return {before.begin(), before.begin() + size};
  }

 private:
  std::span<const KvLess> places_;
  TellLogprobs tell_;
  std::vector<std::optional<std::vector<float>>> waiting_;  // for rows before them
  std::size_t told_ = 0;
};

KvBudget Share(double kept_frac) { return {{kept_frac, 0}, {}, {}}; }

KvPolicy KvOf(const Config& config) {
  KvPolicy kv;
  kv.kind = config.kv.kind;
  kv.num_sinks = config.kv.num_sinks;
  return kv;
}

// The prompts of a job as one text, as far as a sample can want.
// Throws: Error kInput: no line of it can be read, or too little can; and what reading throws.
std::vector<TokenId> ReadPromptTokens(const Config& config, const OpenedModel& model) {
  constexpr std::size_t kMost = std::size_t{1} << 22;
  RequestReader reader(config.input, *model.tokenizer, ReaderOptionsFor(config, model));
  reader.CheckForm();
  std::vector<TokenId> tokens;
  while (tokens.size() < kMost) {
    const std::optional<RequestOrError> line = reader.Next();
    if (!line) break;
    const auto* request = std::get_if<Request>(&*line);
    if (request == nullptr) continue;
    tokens.insert(tokens.end(), request->prompt.begin(), request->prompt.end());
    ThrowIfStopRequested();
  }
  if (tokens.size() >= 2) return tokens;
  throw Error(ErrorCode::kInput, fmt::format("{}: its prompts are too short to score: {} tokens",
                                             Printable(config.input.string()), tokens.size()));
}

// Makes plans of the policy lay KV and its log out as `loaded`, in whose files and memory they run.
void PinLayout(const Plan& loaded, Policy& policy) {
  policy.most_log_passes = loaded.kv_log.passes;
  policy.kv_block_fill = loaded.kv_block_fill;
}

}  // namespace

std::vector<TextWindow> WindowsAt(const std::vector<int64_t>& begins, int64_t window,
                                  int64_t prompt) {
  std::vector<TextWindow> windows;
  for (const int64_t begin : begins) windows.push_back({begin, begin + window, begin + prompt});
  return windows;
}

KvPolicy KvWith(const Config& config, const std::vector<double>& kept_frac) {
  KvPolicy kv = KvOf(config);
  for (const double frac : kept_frac) kv.layer_budgets.push_back(Share(frac));
  return kv;
}

KvPolicy KvWith(const Config& config, const HeadShares& shares) {
  KvPolicy kv = KvOf(config);
  for (const std::vector<double>& layer : shares) {
    std::vector<KvBudget>& heads = kv.head_budgets.emplace_back();
    for (const double share : layer) heads.push_back(Share(share));
  }
  return kv;
}

double KeptOfAll(const KvPolicy& kv, const ModelShape& shape, int64_t row_tokens) {
  const int64_t heads = kv.head_budgets.empty() ? 1 : shape.num_kv_heads;
  int64_t kept = 0;
  for (int64_t decoder_layer = 0; decoder_layer < shape.num_layers; ++decoder_layer) {
    for (int64_t head = 0; head < heads; ++head)
      kept += KeepOf(kv, {decoder_layer, head}, row_tokens).slots();
  }
  return static_cast<double>(kept) / static_cast<double>(shape.num_layers * heads * row_tokens);
}

const std::filesystem::path& SourceOf(const Config& config) {
  return config.input.empty() ? config.perplexity : config.input;
}

nlohmann::ordered_json HeadOfReport(const Plan& plan, const KvPolicy& kv) {
  auto json = nlohmann::ordered_json::object();
  json["version"] = 1;
  json["model"] = {{"name", plan.shape.name}};
  json["policy"] = {{"kv_bits", KvBitsJson(plan.policy.kv_bits)}, {"kv", KvPolicyJson(kv)}};
  if (StatesWeightBits(plan.shape, plan.shape.weight_bits))
    json["policy"]["weight_bits"] = plan.shape.weight_bits;
  return json;
}

std::string Percent(double frac) { return fmt::format("{:.2f} %", 100.0 * frac); }
std::string ShortPercent(double frac) { return fmt::format("{:.3g} %", 100.0 * frac); }

CalibrateStages::CalibrateStages(const Opened& opened)
    : flags_(opened.flags),
      model_(opened.model),
      line_(ProgressStreamOf(flags_)),
      output_(ReportKind::kPolicy, "--output", flags_.output,
              {SourceOf(flags_), {}, flags_.report}),
      report_(ReportKind::kReport, "--report", flags_.report,
              {SourceOf(flags_), flags_.output, {}}) {}

Workload CalibrateStages::ReadWork(const Setting& setting) {
  tokens_ = flags_.input.empty()
                ? ReadTextTokens(flags_, flags_.perplexity, "--text", *model_.tokenizer)
                : ReadPromptTokens(flags_, model_);
  size_ = SizeOf(flags_, setting.model.shape, std::ssize(tokens_));
  const int64_t num_tokens = std::ssize(tokens_);
  begins_ = BeginsOf(NumWindows(flags_, UsualSample(), size_.tokens, num_tokens), size_.tokens,
                     num_tokens);
  return WindowJob(tokens_, WindowsAt(begins_, size_.tokens, LongestPrompt()),
                   FeedOf(LongestPrompt()))
      .Work();
}

Feed CalibrateStages::FeedOf(int64_t prompt) const {
  Feed feed;
  feed.prefill.tokens = prompt;
  if (model_.shape.bos >= 0) feed.start = model_.shape.bos;
  return feed;
}

Supervisor CalibrateStages::Supervise(const Setting& setting, const Plan& plan) {
  return Supervisor({model_, plan, setting.device, OffloadFolder(flags_), flags_.seed, {}, nullptr},
                    line_);
}

WindowLogprobs CalibrateStages::Score(const Setting& setting, const Supervised& by,
                                      const KvPolicy& kv, const std::vector<TextWindow>& windows) {
  Policy policy = by.plan.policy;
  policy.kv = kv;
  PinLayout(by.plan, policy);
  KeepingJob job(tokens_, windows, FeedOf(windows.front().first - windows.front().begin));
  const Plan plan = LayOut(model_, by.plan.machine, job.Work(), policy, setting.needs);
  by.supervisor.Run(plan, MakeSchedule(plan, by.overlap), job, [](const WorkDone&) {});
  return job.Take();
}

Workload CalibrateStages::WorkOfLess(const TextWindow& window, int64_t num_places) const {
  const std::vector<KvLess> nowhere(static_cast<std::size_t>(num_places));
  const LessJob job(tokens_, window, nowhere, FeedOf(window.first - window.begin), {});
  Workload work = job.Work();
  if (flags_.shares_beginnings) work.prefix = job.Prefix();
  return work;
}

void CalibrateStages::ScoreLess(const Setting& setting, const Supervised& by,
                                const TextWindow& window, std::span<const KvLess> places,
                                const TellLogprobs& tell, const ProgressFn& progress) {
  Policy policy = by.plan.policy;
  PinLayout(by.plan, policy);
  Workload work = WorkOfLess(window, by.plan.num_requests - 1);
  work.prefix.resize(by.plan.prefix.tokens.size());
  const Plan plan = LayOut(model_, by.plan.machine, work, policy, setting.needs);
  LessJob job(tokens_, window, places, FeedOf(window.first - window.begin), tell);
  by.supervisor.Run(plan, MakeSchedule(plan, by.overlap), job, progress);
}

}  // namespace spillway
