#include "src/verbs/calibrate.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <filesystem>
#include <iterator>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "policies/kv/head_budgets.h"
#include "spillway/error.h"
#include "spillway/kv_block.h"
#include "spillway/round.h"
#include "src/base/hash.h"
#include "src/base/json_text.h"
#include "src/base/report_file.h"
#include "src/base/stop_signal.h"
#include "src/base/terminal.h"
#include "src/formats/kv_policy_json.h"
#include "src/formats/policy_file.h"
#include "src/report/progress.h"
#include "src/requests/reader.h"
#include "src/run/supervisor.h"
#include "src/verbs/chain.h"
#include "src/verbs/head_calibration.h"
#include "src/verbs/known_costs.h"
#include "src/verbs/layer_calibration.h"
#include "src/verbs/prompt_file.h"
#include "src/verbs/run_identity.h"
#include "src/verbs/window_job.h"

namespace spillway {
namespace {

constexpr int64_t kWindow = 640;
constexpr int64_t kSample = 16;  // windows

// Settings that --pareto measures: bits, and shares of the bytes of a full cache of 16 bits.
constexpr std::array kParetoBits = {KvBits(16), KvBits(8), KvBits(8, 4)};
constexpr std::array kParetoSizes = {0.5, 0.3, 0.2, 0.12, 0.08};
constexpr double kUsefulOfBound = 3.0;  // smaller sizes than one that loses more are not measured

using Json = nlohmann::ordered_json;

// Tokens of each window, and of its prompt where the flags say.
struct WindowSize {
  int64_t tokens = 0;
  std::optional<int64_t> prompt;
};

WindowSize SizeOf(const Config& config, const ModelShape& shape, int64_t num_tokens) {
  const int64_t window =
      config.window.value_or(std::min({kWindow, shape.max_positions, num_tokens}));
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

// First tokens of windows spread over a text.
std::vector<int64_t> BeginsOf(const Config& config, int64_t window, int64_t num_tokens) {
  const int64_t count =
      std::clamp<int64_t>(num_tokens / window, 1, config.sample.value_or(kSample));
  std::vector<int64_t> begins;
  for (int64_t index = 0; index < count; ++index)
    begins.push_back(count == 1 ? 0 : (num_tokens - window) * index / (count - 1));
  return begins;
}

// Windows that are scored alike. What is behind their prompts is told token by token, so that
// budgets act on it as on generated tokens.
std::vector<TextWindow> WindowsAt(const std::vector<int64_t>& begins, int64_t window,
                                  int64_t prompt) {
  std::vector<TextWindow> windows;
  for (const int64_t begin : begins) windows.push_back({begin, begin + window, begin + prompt});
  return windows;
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

KvBudget Share(double kept_frac) { return {{kept_frac, 0}, {}, {}}; }

KvPolicy KvOf(const Config& config) {
  KvPolicy kv;
  kv.kind = config.kv.kind;
  kv.num_sinks = config.kv.num_sinks;
  return kv;
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

// The policy of a file: the full cache where each head keeps everything.
KvPolicy FoundKv(const Config& config, const HeadShares& shares) {
  const bool keeps_all = std::ranges::all_of(shares, [](const std::vector<double>& heads) {
    return std::ranges::all_of(heads, [](double share) { return share >= 1.0; });
  });
  return keeps_all ? KvPolicy{} : KvWith(config, shares);
}

// Share of all tokens of such rows that stays: sinks count too.
double KeptOfAll(const KvPolicy& kv, const ModelShape& shape, int64_t row_tokens) {
  const int64_t heads = kv.head_budgets.empty() ? 1 : shape.num_kv_heads;
  int64_t kept = 0;
  for (int64_t decoder_layer = 0; decoder_layer < shape.num_layers; ++decoder_layer) {
    for (int64_t head = 0; head < heads; ++head)
      kept += KeepOf(kv, {decoder_layer, head}, row_tokens).slots();
  }
  return static_cast<double>(kept) / static_cast<double>(shape.num_layers * heads * row_tokens);
}

std::string Percent(double frac) { return fmt::format("{:.2f} %", 100.0 * frac); }
std::string ShortPercent(double frac) { return fmt::format("{:.3g} %", 100.0 * frac); }

// Model and policy as in the report of a run, so that the two can be compared.
Json HeadOfReport(const Plan& plan, const KvPolicy& kv) {
  Json json;
  json["version"] = 1;
  json["model"] = {{"name", plan.shape.name}};
  json["policy"] = {{"weight_bits", plan.shape.weight_bits},
                    {"kv_bits", KvBitsJson(plan.policy.kv_bits)},
                    {"kv", KvPolicyJson(kv)}};
  return json;
}

// File that the model is measured on.
const std::filesystem::path& SourceOf(const Config& config) {
  return config.input.empty() ? config.perplexity : config.input;
}

// The prompts of a job as one text, as far as a sample can want.
// Throws: Error kInput: no line of it can be read, or too little can; and what reading throws.
std::vector<TokenId> ReadPromptTokens(const Config& config, const OpenedModel& model) {
  constexpr std::size_t kMost = std::size_t{1} << 22;
  RequestReader reader(config.input, *model.tokenizer, ReaderOptionsFor(config, model));
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

// What layers and heads have in common: the text, its windows, and the runs that score them.
class CalibrateStages : public Stages {
 public:
  explicit CalibrateStages(const Opened& opened)
      : flags_(opened.flags),
        model_(opened.model),
        line_(ProgressStreamOf(flags_)),
        output_("--output", flags_.output, {SourceOf(flags_), {}, flags_.report}),
        report_("--report", flags_.report, {SourceOf(flags_), flags_.output, {}}) {}

  Workload ReadWork(const Setting& setting) override {
    tokens_ = flags_.input.empty()
                  ? ReadTextTokens(flags_, flags_.perplexity, "--text", *model_.tokenizer)
                  : ReadPromptTokens(flags_, model_);
    size_ = SizeOf(flags_, setting.model.shape, std::ssize(tokens_));
    begins_ = BeginsOf(flags_, size_.tokens, std::ssize(tokens_));
    return WindowJob(tokens_, WindowsAt(begins_, size_.tokens, LongestPrompt()),
                     FeedOf(LongestPrompt()))
        .Work();
  }

 protected:
  virtual int64_t LongestPrompt() const = 0;

  Feed FeedOf(int64_t prompt) const {
    Feed feed;
    feed.prefill.tokens = prompt;
    if (model_.shape.bos >= 0) feed.start = model_.shape.bos;
    return feed;
  }

  Supervisor Supervise(const Setting& setting, const Plan& plan) {
    return Supervisor(
        {model_, plan, setting.device, OffloadFolder(flags_), flags_.seed, {}, nullptr}, line_);
  }

  // A supervisor, the plan that it was made of, and the order of work.
  struct Supervised {
    const Plan& plan;
    Overlap overlap;
    Supervisor& supervisor;
  };

  // What each token's log-probability is with this KV policy, which takes no more memory than the
  // supervisor's plan.
  WindowLogprobs Score(const Setting& setting, const Supervised& by, const KvPolicy& kv,
                       const std::vector<TextWindow>& windows) {
    Policy policy = by.plan.policy;
    policy.kv = kv;
    policy.most_log_passes = by.plan.kv_log.passes;  // the log has to fit where that plan's lies
    KeepingJob job(tokens_, windows, FeedOf(windows.front().first - windows.front().begin));
    const Plan plan = LayOut(model_, by.plan.machine, job.Work(), policy, setting.needs);
    by.supervisor.Run(plan, MakeSchedule(plan, by.overlap), job, [](const WorkDone&) {});
    return job.Take();
  }

  const Config& flags_;
  const OpenedModel& model_;
  ProgressLine line_;
  std::vector<TokenId> tokens_;
  WindowSize size_;
  std::vector<int64_t> begins_;
  ReportFile output_;
  ReportFile report_;
};

double MeanOf(const WindowLogprobs& logprobs) {
  double sum = 0.0;
  int64_t count = 0;
  for (const std::vector<float>& window : logprobs) {
    double of_window = 0.0;
    for (const float logprob : window) of_window += logprob;
    sum += of_window;
    count += std::ssize(window);
  }
  return sum / static_cast<double>(count);
}

class LayerStages final : public CalibrateStages {
 public:
  using CalibrateStages::CalibrateStages;

  // Every token is kept: all other plans use the memory of that one.
  Config Settle(const Config& flags) override {
    Config whole = flags;
    whole.kv = KvWith(flags, std::vector(static_cast<std::size_t>(model_.shape.num_layers), 1.0));
    return whole;
  }

  // Makes many runs, each with its own plan.
  std::optional<Trace> Run(const Setting& setting, const PlannedRun& planned) override {
    Supervisor supervisor = Supervise(setting, planned.plan);
    const std::vector<TextWindow> windows = WindowsAt(begins_, size_.tokens, LongestPrompt());
    int num_runs = 0;
    const auto measure = [&](const std::vector<double>& kept_frac) {
      line_.Note(fmt::format("calibrating: run {}", ++num_runs));
      const Supervised by = {planned.plan, planned.schedule.overlap, supervisor};
      return -MeanOf(Score(setting, by, KvWith(flags_, kept_frac), windows));
    };
    found_ = FindLayerBudgets(model_.shape.num_layers, std::log1p(flags_.max_loss_frac), measure);
    return std::nullopt;
  }

  int Report(const Setting& /*setting*/, const PlannedRun& planned,
             const std::optional<Trace>& /*trace*/) override {
    const LayerBudgets& budgets = found_.budgets;
    const KvPolicy kv = KvWith(flags_, budgets.kept_frac);
    const double kept = KeptOfAll(kv, model_.shape, size_.tokens);
    line_.Clear();
    output_.Write(PolicyJson(
        kv, planned.plan.policy.kv_bits,
        {fmt::format("spillway calibrate: {}, {} windows of {} tokens, loss of perplexity {} of "
                     "at most {}, KV kept {}",
                     model_.shape.name, begins_.size(), size_.tokens,
                     Percent(std::expm1(budgets.loss)), Percent(flags_.max_loss_frac),
                     Percent(kept))}));
    report_.Write(ReportText(planned.plan, kv, kept));
    PrintTo(TerminalOf(flags_),
            LayerTable(found_) +
                fmt::format("perplexity {:.2f}, {:.2f} with all KV ({:+.2f} %); KV kept {}\n",
                            std::exp(found_.full + budgets.loss), std::exp(found_.full),
                            100.0 * std::expm1(budgets.loss), Percent(kept)));
    return 0;
  }

 private:
  int64_t LongestPrompt() const override { return size_.prompt.value_or(size_.tokens / 2); }

  std::string ReportText(const Plan& plan, const KvPolicy& kv, double kept) const {
    Json json = HeadOfReport(plan, kv);
    Json& out = json["calibration"];
    out["perplexity_full"] = std::exp(found_.full);
    out["perplexity"] = std::exp(found_.full + found_.budgets.loss);
    out["kv_frac"] = kept;
    for (std::size_t layer = 0; layer < found_.layers.size(); ++layer) {
      Json losses;
      for (const BudgetLoss& at : found_.layers[layer])
        losses.push_back({{"kept_frac", at.kept_frac}, {"perplexity_ratio", std::exp(at.loss)}});
      out["layers"].push_back({{"kept_frac", found_.budgets.kept_frac[layer]}, {"alone", losses}});
    }
    return JsonFileText(json);
  }

  LayerFindings found_;
};

class HeadStages final : public CalibrateStages {
 public:
  explicit HeadStages(const Opened& opened)
      : CalibrateStages(opened),
        known_(flags_.output, {SourceOf(flags_), flags_.output, flags_.report}),
        bits_(flags_.pareto ? std::vector(kParetoBits.begin(), kParetoBits.end())
                            : std::vector{flags_.kv_bits.value_or(16)}) {
    job_.num_layers = model_.shape.num_layers;
    job_.num_kv_heads = model_.shape.num_kv_heads;
  }

  // What is planned has 16 bits: losses are those beside the full cache of 16 bits, and heads are
  // measured in 16 bits, for of codes, whatever moves a state by a little gives some elements other
  // codes, which would hide what a head costs.
  Config Settle(const Config& flags) override {
    Config whole = flags;
    whole.kv_bits = 16;
    whole.kv = KvWith(flags, EvenShares(job_, 1.0));
    return whole;
  }

  std::optional<Trace> Run(const Setting& setting, const PlannedRun& planned) override {
    DealWindows();
    job_.max_loss = std::log1p(flags_.max_loss_frac);
    job_.bytes = [this](const HeadShares& shares) { return BytesOf(shares); };
    UseBits(setting, planned, bits_.front());
    RefuseTooFewBytes();
    const std::string identity = IdentityText(setting, planned.plan.policy);
    job_.known_costs =
        known_.Read(identity, static_cast<std::size_t>(job_.num_layers * (job_.num_kv_heads + 1)));
    job_.note_costs = [&](const std::vector<double>& costs) { known_.Write(identity, costs); };
    BeginClock();
    MeasureHeads(setting, planned);
    for (const KvBits bits : bits_) {
      UseBits(setting, planned, bits);
      Supervisor supervisor = Supervise(setting, coded_);
      MeasureBy(setting, {coded_, planned.schedule.overlap, supervisor});
      Take(FindHeadBudgets(job_));
    }
    return std::nullopt;
  }

  int Report(const Setting& /*setting*/, const PlannedRun& planned,
             const std::optional<Trace>& /*trace*/) override {
    const KvPolicy kv = FoundKv(flags_, found_.joint.shares);
    const std::string summary = Summary();
    line_.Clear();
    output_.Write(
        PolicyJson(kv, found_.joint.kv_bits,
                   {fmt::format("spillway calibrate: {}, {} windows of {} tokens, {}",
                                model_.shape.name, begins_.size(), size_.tokens, summary)}));
    report_.Write(ReportText(planned.plan, kv));
    WarnOfBounds();
    PrintTo(TerminalOf(flags_), HeadTable(found_) + ParetoLines() + SetLines() + summary + "\n");
    return 0;
  }

 private:
  int64_t LongestPrompt() const override {
    return size_.prompt.value_or(size_.tokens - std::max<int64_t>(1, size_.tokens / 8));
  }
  int64_t ShortPrompt() const { return std::max<int64_t>(1, size_.tokens / 4); }

  // Every fourth window tells what heads cost alone, the others what all cost together: one of
  // three after a short prompt, which scores many tokens, unless the flags say what the prompt is.
  void DealWindows() {
    std::map<WindowSet, std::vector<int64_t>> begins;
    for (std::size_t index = 0; index < begins_.size(); ++index) {
      const bool alone = index % 4 == 1;
      const bool is_short = !size_.prompt && index % 4 == 3;
      begins[alone      ? WindowSet::kOneHead
             : is_short ? WindowSet::kShortPrompts
                        : WindowSet::kLongPrompts]
          .push_back(begins_[index]);
    }
    if (begins_.size() == 1) begins[WindowSet::kOneHead] = begins_;  // one window tells it all
    for (const auto& [set, at] : begins) {
      const bool is_short = set == WindowSet::kShortPrompts;
      windows_[set] = WindowsAt(at, size_.tokens, is_short ? ShortPrompt() : LongestPrompt());
    }
    for (const WindowSet set : kJointSets) {
      if (windows_.contains(set)) job_.joint_sets.push_back(set);
    }
  }

  // All tokens together are measured in these bits from now on. Throws: as MakePlan.
  void UseBits(const Setting& setting, const PlannedRun& planned, KvBits bits) {
    Policy policy = planned.plan.policy;
    policy.kv_bits = bits;
    policy.most_log_passes = planned.plan.kv_log.passes;
    coded_ = MakePlan(model_, planned.plan.machine, planned.work, policy, setting.needs);
    job_.kv_bits = bits;
    job_.most_useful_loss = kUsefulOfBound * job_.max_loss;
    job_.sizes.clear();
    if (flags_.kv_bytes_frac) job_.sizes = {*flags_.kv_bytes_frac};
    if (!flags_.pareto) return;
    if (bits.coded()) job_.sizes.push_back(1.0);  // of 16 bits all tokens are the reference
    job_.sizes.insert(job_.sizes.end(), kParetoSizes.begin(), kParetoSizes.end());
    const double least = BytesOf(EvenShares(job_, kLeastHeadShare));
    std::erase_if(job_.sizes, [least](double size) { return size < least; });
    if (job_.sizes.empty()) job_.sizes.push_back(least);  // of windows of a few tokens
  }

  // Adds what was found in some bits to what was found in others.
  void Take(HeadFindings found) {
    std::ranges::move(found_.tried, std::back_inserter(found.tried));
    found_ = std::move(found);
    const JointLoss* least = LeastWithin(found_.tried, job_.max_loss);
    if (bits_.size() == 1) return;
    found_.joint =
        least != nullptr ? *least : *std::ranges::min_element(found_.tried, {}, &JointLoss::worst);
  }

  // Bytes of a window's KV with these shares, over those of a full cache of 16 bits.
  double BytesOf(const HeadShares& shares) const {
    const ModelShape& shape = model_.shape;
    const KvPolicy kv = KvWith(flags_, shares);
    int64_t slots = 0;
    for (int64_t decoder_layer = 0; decoder_layer < shape.num_layers; ++decoder_layer) {
      for (int64_t head = 0; head < shape.num_kv_heads; ++head) {
        const KvKeep keep = KeepOf(kv, {decoder_layer, head}, size_.tokens);
        slots += coded_.SlotsOf(keep, size_.tokens);
      }
    }
    const int64_t full = RoundUp(size_.tokens, KvBlockSlots(16)) * shape.num_layers *
                         KvSlotBytes(shape.num_kv_heads, shape.head_dim, 16);
    return static_cast<double>(slots * coded_.slot_bytes) / static_cast<double>(full);
  }

  void RefuseTooFewBytes() const {
    if (!flags_.kv_bytes_frac) return;
    const double least = BytesOf(EvenShares(job_, kLeastHeadShare));
    if (*flags_.kv_bytes_frac >= least) return;
    throw Error(
        ErrorCode::kFlag,
        fmt::format("--kv-bytes {}: each KV head keeps at least {} of the tokens, which take "
                    "{} in {} bits and whole blocks; give that or more",
                    ShortPercent(*flags_.kv_bytes_frac), ShortPercent(kLeastHeadShare),
                    ShortPercent(least), KvBitsText(bits_.front())));
  }

  std::string IdentityText(const Setting& setting, const Policy& policy) {
    std::string work = fmt::format("{} {}", size_.tokens, LongestPrompt());
    for (const TextWindow& window : windows_.at(WindowSet::kOneHead)) {
      work += fmt::format(" {}:", window.begin);
      for (int64_t at = window.begin; at < window.end; ++at)
        work += fmt::format(" {}", tokens_[static_cast<std::size_t>(at)]);
    }
    return ManifestDigest(IdentityOf(setting.config, model_, policy, setting.device, TextHash(work),
                                     line_.NoteReads()));
  }

  void MeasureBy(const Setting& setting, const Supervised& by) {
    job_.measure = [this, &setting, by](const HeadShares& shares, WindowSet set) {
      NoteRun(set);
      WindowLogprobs logprobs = Score(setting, by, KvWith(flags_, shares), windows_.at(set));
      work_done_ += WorkOf(set);
      return logprobs;
    };
  }

  // What heads cost, and what the full cache of 16 bits says in the other windows.
  void MeasureHeads(const Setting& setting, const PlannedRun& planned) {
    Supervisor supervisor = Supervise(setting, planned.plan);
    MeasureBy(setting, {planned.plan, planned.schedule.overlap, supervisor});
    job_.known_costs = CostsOfHeads(job_);
    for (const WindowSet set : job_.joint_sets)
      reference_[set] = job_.measure(EvenShares(job_, 1.0), set);
    job_.reference = [this](WindowSet set) { return reference_.at(set); };
  }

  // Work of one run, in passes: a pass reads all weights; some 64 tokens of prompts take as long.
  double WorkOf(WindowSet set) const {
    const std::vector<TextWindow>& windows = windows_.at(set);
    const int64_t prompt = windows.front().first - windows.front().begin;
    return static_cast<double>(size_.tokens - prompt) +
           static_cast<double>(prompt * std::ssize(windows)) / 64.0;
  }

  void BeginClock() {
    begin_ = std::chrono::steady_clock::now();
    work_ = static_cast<double>(NumHeadRuns(job_)) * WorkOf(WindowSet::kOneHead);
    const int64_t of_bits = NumJointSettings(job_) * std::ssize(bits_);
    const auto settings = static_cast<double>(1 + of_bits);  // and the full cache
    for (const WindowSet set : job_.joint_sets) work_ += settings * WorkOf(set);
  }

  // Says how long all of it will take once the first runs have shown it.
  void NoteRun(WindowSet set) {
    std::string text = set == WindowSet::kOneHead
                           ? fmt::format("calibrating: run {}", ++runs_)
                           : std::string("calibrating: all KV heads together");
    if (work_done_ > 0.0) {
      const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - begin_;
      const double left_min = spent.count() / work_done_ * (work_ - work_done_) / 60.0;
      text += fmt::format(", about {:.0f} min left", std::max(1.0, std::ceil(left_min)));
      if (!said_ && runs_ != 2) {  // one run tells little
        said_ = true;
        line_.Clear();
        PrintTo(ProgressStreamOf(flags_), WhatIsAhead(left_min));
      }
    }
    line_.Note(text);
  }

  std::string WhatIsAhead(double minutes) const {
    std::string text =
        fmt::format("calibrating {} KV heads, at most about {:.0f} min more",
                    job_.num_layers * job_.num_kv_heads, std::max(1.0, std::ceil(minutes)));
    if (known_.name().empty()) return text + "; without --output nothing of it is kept\n";
    return text + fmt::format("; {} keeps what heads cost\n", Printable(known_.name()));
  }

  int64_t PromptOf(WindowSet set) const {
    const TextWindow& window = windows_.at(set).front();
    return window.first - window.begin;
  }

  static std::string LossText(const SetLoss& set) {
    return fmt::format("{:+.2f} % ({})", 100.0 * std::expm1(set.loss),
                       set.loss_error
                           ? fmt::format("standard error {:.2f}", 100.0 * *set.loss_error)
                           : std::string("of one window"));
  }

  // "perplexity 22.31 after prompts of 560 tokens, ...".
  std::string SetLines() const {
    std::string text;
    for (const SetLoss& set : found_.joint.sets) {
      text += fmt::format(
          "perplexity {:.3f} after prompts of {} tokens, {:.3f} with the full cache of 16 bits: "
          "{}; "
          "divergence {:.4f} nats a token\n",
          std::exp(set.full + set.loss), PromptOf(set.set), std::exp(set.full), LossText(set),
          set.divergence);
    }
    return text;
  }

  // A line for each setting, those of a number of bits together.
  std::string ParetoLines() const {
    if (!flags_.pareto) return "";
    std::string text = "  KV bits  bytes  tokens  perplexity";
    for (const SetLoss& set : found_.joint.sets)
      text += fmt::format("  after {} tokens", PromptOf(set.set));
    text += "\n";
    for (const JointLoss& joint : found_.tried) {
      text += fmt::format("  {:<7}{:>5.1f} %{:>6.1f} %", KvBitsText(joint.kv_bits),
                          100.0 * joint.bytes, 100.0 * KeptOf(joint));
      for (const SetLoss& set : joint.sets) text += "  " + LossText(set);
      text += joint.bytes == found_.joint.bytes && joint.kv_bits == found_.joint.kv_bits
                  ? "  <- the file's\n"
                  : "\n";
    }
    return text;
  }

  double KeptOf(const JointLoss& joint) const {
    return KeptOfAll(KvWith(flags_, joint.shares), model_.shape, size_.tokens);
  }

  std::string Summary() const {
    std::string losses;
    for (const SetLoss& set : found_.joint.sets)
      losses += fmt::format("{}{}", losses.empty() ? "" : " and ", LossText(set));
    return fmt::format(
        "KV of {} bits, {} of the tokens, {} of a full cache's bytes in 16 bits; "
        "perplexity {}",
        KvBitsText(found_.joint.kv_bits), Percent(KeptOf(found_.joint)),
        Percent(found_.joint.bytes), losses);
  }

  bool IsWithinBound() const {
    return flags_.kv_bytes_frac || found_.joint.worst() <= job_.max_loss;
  }

  void WarnOfBounds() {
    const JointLoss& joint = found_.joint;
    if (!IsWithinBound()) {
      line_.Warn(fmt::format(
          "nothing is within --max-loss {}: {} in {} bits lose {} already; the file keeps them",
          ShortPercent(flags_.max_loss_frac),
          KeptOf(joint) == 1.0 ? "all tokens" : ShortPercent(joint.bytes) + " of the bytes",
          KvBitsText(joint.kv_bits), ShortPercent(std::expm1(joint.worst()))));
    }
    if (!flags_.kv_bytes_frac || KeptOf(joint) < 1.0) return;
    line_.Warn(fmt::format("--kv-bytes {}: all tokens in {} bits take {}; the file keeps them all",
                           ShortPercent(*flags_.kv_bytes_frac), KvBitsText(joint.kv_bits),
                           ShortPercent(joint.bytes)));
  }

  Json LossJson(const JointLoss& joint) const {
    Json json;
    json["kv_frac"] = KeptOf(joint);
    json["bytes_frac"] = joint.bytes;
    for (const SetLoss& set : joint.sets) {
      json["prompts"].push_back(
          {{"prompt_tokens", PromptOf(set.set)},
           {"scored_tokens", set.num_tokens},
           {"perplexity_full", std::exp(set.full)},
           {"perplexity", std::exp(set.full + set.loss)},
           {"loss", set.loss},
           {"loss_error", set.loss_error ? Json(*set.loss_error) : Json(nullptr)},
           {"divergence", set.divergence}});
    }
    return json;
  }

  std::string ReportText(const Plan& plan, const KvPolicy& kv) const {
    Json json = HeadOfReport(plan, kv);
    json["policy"]["kv_bits"] = KvBitsJson(found_.joint.kv_bits);
    Json& out = json["calibration"];
    out = LossJson(found_.joint);
    out["within_bound"] = IsWithinBound();
    for (const JointLoss& joint : found_.tried) {
      Json& tried = out["tried"].emplace_back(LossJson(joint));
      tried["kv_bits"] = KvBitsJson(joint.kv_bits);
      tried["kv"] = KvPolicyJson(FoundKv(flags_, joint.shares));
    }
    out["alone_kept_frac"] = kAloneShare;
    out["alone_divergence"] = found_.costs;
    out["exponents"] = found_.exponents;
    return JsonFileText(json);
  }

  KnownCosts known_;
  std::vector<KvBits> bits_;  // that all heads together are measured in
  Plan coded_;                // in those of them that are measured
  HeadCalibrationJob job_;
  std::map<WindowSet, std::vector<TextWindow>> windows_;
  std::map<WindowSet, WindowLogprobs> reference_;
  std::chrono::steady_clock::time_point begin_;
  double work_ = 0.0;  // of all runs
  double work_done_ = 0.0;
  int64_t runs_ = 0;  // of heads and layers
  bool said_ = false;
  HeadFindings found_;
};

}  // namespace

int RunCalibrate(const Config& config) {
  return RunChain(config, config.budgets_per == BudgetsPer::kHead ? MakeStages<HeadStages>
                                                                  : MakeStages<LayerStages>);
}

}  // namespace spillway
