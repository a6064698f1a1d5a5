#include "src/verbs/calibrate_heads.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <iterator>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "policies/kv/head_budgets.h"
#include "spillway/error.h"
#include "spillway/kv_block.h"
#include "spillway/round.h"
#include "src/base/hash.h"
#include "src/base/terminal.h"
#include "src/formats/policy_file.h"
#include "src/verbs/calibrate_stages.h"
#include "src/verbs/head_calibration.h"
#include "src/verbs/head_report.h"
#include "src/verbs/known_costs.h"
#include "src/verbs/run_identity.h"

namespace spillway {
namespace {

// Settings that --pareto measures: bits, and shares of the bytes of a full cache of 16 bits.
constexpr std::array kParetoBits = {KvBits(16), KvBits(8), KvBits(8, 4), KvBits(4)};
constexpr std::array kParetoSizes = {0.5, 0.3, 0.2, 0.12, 0.08};
constexpr double kUsefulOfBound = 3.0;  // smaller sizes than one that loses more are not measured

class HeadStages final : public CalibrateStages {
 public:
  explicit HeadStages(const Opened& opened)
      : CalibrateStages(opened),
        known_(flags_.output, {SourceOf(flags_), flags_.output, flags_.report}),
        bits_(flags_.pareto ? std::vector(kParetoBits.begin(), kParetoBits.end())
                            : std::vector{flags_.kv_bits.value_or(16)}) {
    if (flags_.pareto && !HoldsKeysOf4Bits(model_.shape))
      std::erase_if(bits_, [](KvBits bits) { return bits.key == 4; });
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
    job_.num_windows = std::ssize(windows_.at(WindowSet::kOneHead));
    job_.max_loss = std::log1p(flags_.max_loss_frac);
    job_.bytes = [this](const HeadShares& shares) { return BytesOf(shares); };
    UseBits(setting, planned, bits_.front());
    RefuseTooFewBytes();
    ReadCosts(IdentityText(setting, planned.plan.policy));
    BeginClock();
    if (std::ssize(job_.known_costs) < NumCosts(job_))
      MeasureHeads(setting, planned.schedule.overlap);
    MeasureReferences(setting, planned);
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
    const HeadReport report(flags_, model_.shape, found_, size_.tokens, Prompts());
    line_.Clear();
    output_.Write(PolicyJson(
        report.FoundKv(found_.joint), found_.joint.kv_bits,
        {fmt::format("spillway calibrate: {}, {} windows of {} tokens, {}", model_.shape.name,
                     begins_.size(), size_.tokens, report.Summary())}));
    report_.Write(report.JsonText(planned.plan));
    for (const std::string& warning : report.Warnings()) line_.Warn(warning);
    PrintTo(TerminalOf(flags_), HeadTable(found_) + report.Text());
    return 0;
  }

 private:
  int64_t LongestPrompt() const override {
    return size_.prompt.value_or(size_.tokens - std::max<int64_t>(1, size_.tokens / 8));
  }
  int64_t UsualSample() const override { return 32; }
  int64_t ShortPrompt() const { return std::max<int64_t>(1, size_.tokens / 4); }
  // Prompts of rows that keep less alone: but for the last token, whole steps of what is computed
  // once for all of them, so that each row's own tokens are scored.
  int64_t SharedPrompt() const {
    const int64_t longest = LongestPrompt();
    if (size_.prompt || longest <= kPrefixStep) return longest;
    return (longest - 1) / kPrefixStep * kPrefixStep + 1;
  }

  // Every other window tells what heads cost alone: a head that looks far back costs nothing in one
  // and decides in the next. The others tell what all cost together: every other one after a short
  // prompt, which scores many tokens, unless the flags say what the prompt is.
  void DealWindows() {
    std::map<WindowSet, std::vector<int64_t>> begins;
    for (std::size_t index = 0; index < begins_.size(); ++index) {
      const bool alone = index % 2 == 1;
      const bool is_short = !size_.prompt && index % 4 == 2;
      begins[alone      ? WindowSet::kOneHead
             : is_short ? WindowSet::kShortPrompts
                        : WindowSet::kLongPrompts]
          .push_back(begins_[index]);
    }
    if (begins_.size() == 1) begins[WindowSet::kOneHead] = begins_;  // one window tells it all
    for (const auto& [set, at] : begins) {
      windows_[set] = WindowsAt(at, size_.tokens, PromptOf(set));
    }
    for (const WindowSet set : kJointSets) {
      if (windows_.contains(set)) job_.joint_sets.push_back(set);
    }
  }

  int64_t PromptOf(WindowSet set) const {
    if (set == WindowSet::kOneHead) return SharedPrompt();
    return set == WindowSet::kShortPrompts ? ShortPrompt() : LongestPrompt();
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
    return static_cast<double>(slots * coded_.UsedSlotBytes()) / static_cast<double>(full);
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
    std::string work = fmt::format("by window: {} {}", size_.tokens, SharedPrompt());
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
      Note("calibrating: all KV heads together", work_done_);
      WindowLogprobs logprobs = Score(setting, by, KvWith(flags_, shares), windows_.at(set));
      work_done_ += WorkOf(set);
      return logprobs;
    };
  }

  // What an earlier call has found, and what becomes of it.
  void ReadCosts(const std::string& identity) {
    job_.known_costs = known_.Read(identity, static_cast<std::size_t>(NumCosts(job_)));
    costs_ = job_.known_costs;
    num_written_ = costs_.size();
    identity_ = identity;
    const std::string file = Printable(known_.name());
    if (known_.holds_other()) {
      line_.Warn(fmt::format("{}: is of another calibration, and is kept as {}", file,
                             Printable(known_.kept_name())));
    }
    if (costs_.empty() || std::ssize(costs_) == NumCosts(job_)) return;
    PrintTo(ProgressStreamOf(flags_), fmt::format("{}: {} of {} KV heads and layers are known\n",
                                                  file, costs_.size(), NumCosts(job_)));
  }

  // What heads and layers cost that are not known yet: rows of a plan of their own.
  void MeasureHeads(const Setting& setting, Overlap overlap) {
    const std::vector<TextWindow>& windows = windows_.at(WindowSet::kOneHead);
    const Workload work = WorkOfLess(windows.front(), NumPlaces(job_));
    const Plan plan = PlanFor(setting, work, ChoosePolicy(setting, work));
    Supervisor supervisor = Supervise(setting, plan);
    const int64_t missing = NumCosts(job_) - std::ssize(costs_);
    const int64_t of_window = missing % NumPlaces(job_);
    work_ += static_cast<double>(missing / NumPlaces(job_)) * WorkOfPlaces(plan, NumPlaces(job_));
    if (of_window > 0) work_ += WorkOfPlaces(plan, of_window);
    job_.note_costs = [this](const std::vector<double>& costs) { costs_ = costs; };
    job_.measure_less = [&](int64_t window, std::span<const KvLess> places,
                            const TellLogprobs& tell) {
      const double work_of_run = WorkOfPlaces(plan, std::ssize(places));
      ScoreLess(setting, {plan, overlap, supervisor}, windows[static_cast<std::size_t>(window)],
                places, tell, [&](const WorkDone& done) {
                  const double share = (done.PromptTokens() + done.DecodeTokens()) /
                                       TokensOfPlaces(plan, std::ssize(places));
                  NoteHeads(work_done_ + std::min(1.0, share) * work_of_run);
                });
      work_done_ += work_of_run;
    };
    try {
      job_.known_costs = CostsOfHeads(job_);
    } catch (const Error&) {
      WriteNewCosts();
      throw;
    }
    WriteNewCosts();
  }

  // What the full cache of 16 bits says in the other windows.
  void MeasureReferences(const Setting& setting, const PlannedRun& planned) {
    Supervisor supervisor = Supervise(setting, planned.plan);
    MeasureBy(setting, {planned.plan, planned.schedule.overlap, supervisor});
    for (const WindowSet set : job_.joint_sets)
      reference_[set] = job_.measure(EvenShares(job_, 1.0), set);
    job_.reference = [this](WindowSet set) { return reference_.at(set); };
  }

  // Work of one run, in passes: a pass reads all weights; some 64 tokens take as long.
  double WorkOf(WindowSet set) const {
    const std::vector<TextWindow>& windows = windows_.at(set);
    const int64_t prompt = windows.front().first - windows.front().begin;
    return static_cast<double>(size_.tokens - prompt) +
           static_cast<double>(size_.tokens * std::ssize(windows)) / 64.0;
  }

  // Tokens of the rows of so many places: what the plan has of their prompt is computed once.
  double TokensOfPlaces(const Plan& plan, int64_t num_places) const {
    const int64_t prefix = plan.prefix.num_tokens();
    return static_cast<double>(prefix + (num_places + 1) * (size_.tokens - prefix));
  }

  // Likewise, of those rows.
  double WorkOfPlaces(const Plan& plan, int64_t num_places) const {
    const int64_t blocks = DivideUp(num_places + 1, plan.BlockRows());
    return static_cast<double>(blocks * (size_.tokens - SharedPrompt())) +
           TokensOfPlaces(plan, num_places) / 64.0;
  }

  void BeginClock() {
    begin_ = noted_ = std::chrono::steady_clock::now();
    const int64_t of_bits = NumJointSettings(job_) * std::ssize(bits_);
    const auto settings = static_cast<double>(1 + of_bits);  // and the full cache
    for (const WindowSet set : job_.joint_sets) work_ += settings * WorkOf(set);
  }

  void WriteNewCosts() {
    if (costs_.size() == num_written_) return;
    known_.Write(identity_, costs_);
    num_written_ = costs_.size();
  }

  // Called often while heads are measured alone. Keeps what is known of them, and says how far it
  // is.
  void NoteHeads(double work_done) {
    const auto now = std::chrono::steady_clock::now();
    if (now - noted_ < std::chrono::seconds(1)) return;
    noted_ = now;
    WriteNewCosts();
    Note(fmt::format("calibrating: {} of {} KV heads and layers alone", costs_.size(),
                     NumCosts(job_)),
         work_done);
  }

  // Says how long all of it will take once a part has shown it.
  void Note(std::string text, double work_done) {
    constexpr double kEnoughSeconds = 5.0;
    const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - begin_;
    if (work_done > 0.0 && spent.count() >= kEnoughSeconds) {
      const double left_min = spent.count() / work_done * (work_ - work_done) / 60.0;
      text += fmt::format(", about {:.0f} min left", std::max(1.0, std::ceil(left_min)));
      if (!std::exchange(said_, true)) {
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

  // Tokens of the prompts of each set.
  std::map<WindowSet, int64_t> Prompts() const {
    std::map<WindowSet, int64_t> prompts;
    for (const auto& [set, windows] : windows_)
      prompts[set] = windows.front().first - windows.front().begin;
    return prompts;
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
  std::vector<double> costs_;  // known so far
  std::size_t num_written_ = 0;
  std::string identity_;  // of what they are costs of
  std::chrono::steady_clock::time_point noted_;
  bool said_ = false;
  HeadFindings found_;
};

}  // namespace

std::unique_ptr<Stages> CalibrateHeads(const Opened& opened) {
  return std::make_unique<HeadStages>(opened);
}

}  // namespace spillway
