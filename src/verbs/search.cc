#include "src/verbs/search.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>
#include <string>

#include "spillway/error.h"
#include "spillway/report.h"
#include "spillway/round.h"
#include "src/base/report_file.h"
#include "src/base/size_text.h"
#include "src/base/terminal.h"
#include "src/formats/policy_file.h"
#include "src/gpu/gpu_needs.h"
#include "src/plan/cap_words.h"
#include "src/plan/remedy.h"
#include "src/verbs/chain.h"
#include "src/verbs/machine_for.h"
#include "src/verbs/planned_work.h"
#include "src/verbs/policy_for.h"

namespace spillway {
namespace {

// Adds to what tiers lack: what a search with more still lacked; where it found no layout for what
// its linear program took to fit, `step` of each tier that lacks something, or that there is.
void AddTo(Shortage& lacks, const Shortage& still, int64_t step, const Machine& machine) {
  const auto lacks_some = [](const Shortage& of, Tier tier) { return of.bytes[tier] > 0; };
  const bool knows = std::ranges::any_of(kAllTiers, [&](Tier t) { return lacks_some(still, t); });
  const bool named = std::ranges::any_of(kAllTiers, [&](Tier t) { return lacks_some(lacks, t); });
  for (const Tier tier : kAllTiers) {
    const bool takes = named ? lacks_some(lacks, tier) : machine.cap_bytes[tier] > 0;
    if (knows || takes) lacks.bytes[tier] += knows ? still.bytes[tier] : step;
  }
}

// What the tiers lack until a policy fits: a layout takes more than its linear program, so that
// each number is tried before it is told.
Shortage ProvenShortage(const Setting& setting, const Workload& work, Shortage lacks) {
  constexpr int kMaxTries = 16;
  constexpr int64_t kMib = 1 << 20;
  for (int tried = 0; tried < kMaxTries; ++tried) {
    Machine more = setting.machine;
    for (const Tier tier : kAllTiers) {
      lacks.bytes[tier] = RoundUp(lacks.bytes[tier], kMib);
      more.cap_bytes[tier] += lacks.bytes[tier];
    }
    const SearchResult result = SearchFor(setting.config, setting.model, more, work, setting.needs);
    if (result.feasible()) break;
    AddTo(lacks, result.shortage, kMib << tried, setting.machine);
  }
  return lacks;
}

[[noreturn]] void RefuseInfeasible(const Shortage& shortage, const Machine& machine) {
  std::string lacks;
  std::string caps;
  for (const Tier tier : kAllTiers) {
    if (shortage.bytes[tier] == 0) continue;
    const char* const also = lacks.empty() ? "" : " and ";
    lacks += fmt::format("{}{} of {}", also, SizeText(shortage.bytes[tier]), TierName(tier));
    caps += fmt::format("{}{}", also,
                        CapFor(machine, tier, machine.cap_bytes[tier] + shortage.bytes[tier]));
  }
  const bool has_faster = shortage.most() != machine.device;
  throw Error(CapWordsOf(machine, shortage.most()).code,
              fmt::format("no policy fits: even a small block lacks {}; give at least {}{}", lacks,
                          caps, has_faster ? ", or more of a faster tier" : ""));
}

std::string Percent(double frac) { return fmt::format("{:.0f}", 100.0 * frac); }

// FlexGen's six: weights, KV and activations on gpu and cpu.
std::string Percents(const Policy& policy) {
  std::string text;
  for (const PerTier<double>* share :
       {&policy.weight_frac, &policy.kv_frac, &policy.activation_frac}) {
    text += fmt::format("{}{}/{}", text.empty() ? "" : " ", Percent((*share)[Tier::kGpu]),
                        Percent((*share)[Tier::kCpu]));
  }
  return text;
}

// "KV of 8,4 bits, 20 % of the bytes (loses 0.8 %)"
std::string CalibratedText(const CalibratedKv& kv) {
  return fmt::format("KV of {} bits, {:.3g} % of the bytes (loses {:.2g} %)", KvBitsText(kv.bits),
                     100.0 * kv.bytes_frac, 100.0 * std::expm1(kv.loss));
}

// The storage that was chosen; empty where there was no choice.
std::string StorageText(const StorageChoice& storage) {
  std::string text;
  if (storage.weight_bits != 16) text += fmt::format("{}-bit weights, ", storage.weight_bits);
  if (const CalibratedKv* kv = storage.calibrated.get()) return text + CalibratedText(*kv) + ", ";
  if (const auto& budget = storage.kv_budget) {
    text += budget->frac != 0.0 ? fmt::format("KV {:g} %, ", 100.0 * budget->frac)
                                : fmt::format("KV {} tokens, ", budget->tokens);
  }
  if (storage.kv_bits.coded()) text += fmt::format("{}-bit KV, ", KvBitsText(storage.kv_bits));
  return text;
}

// Seconds to a tenth, or to three digits where that is more.
std::string SecondsText(double seconds) {
  return seconds < 10.0 ? fmt::format("{:.3g}", seconds) : fmt::format("{:.1f}", seconds);
}

std::string CandidateLine(const Candidate& candidate, const std::string& storage) {
  const Policy& policy = candidate.policy;
  const Prediction& predicted = candidate.prediction;
  return fmt::format("{:>9.2f}{:>10}{:>10}{:>6}{:>5}  {:<4}{:<22}{}{}\n",
                     predicted.generated_tokens_per_s, SecondsText(predicted.prefill_s),
                     SecondsText(predicted.decode_s), policy.gpu_batch_size, policy.num_gpu_batches,
                     policy.cpu_attention ? "cpu" : "-", Percents(policy), storage,
                     candidate.bound_by);
}

std::string CandidateTable(const SearchResult& result) {
  std::string text =
      "   tok/s  prefill_s  decode_s  rows  x N  att W K A on gpu/cpu %       bound by\n";
  const bool calibrated = std::ranges::any_of(result.best, [](const Candidate& candidate) {
    return candidate.storage.calibrated != nullptr;
  });
  for (const Candidate& candidate : result.best) {
    const bool is_full = calibrated && candidate.storage.calibrated == nullptr;
    text += CandidateLine(candidate,
                          StorageText(candidate.storage) + (is_full ? "full KV of 16 bits, " : ""));
  }
  return text;
}

double RateOf(const Candidate& candidate) { return candidate.prediction.generated_tokens_per_s; }

// What the bound of the loss costs beside `all`, which was searched without one; no line where the
// best of both is one.
std::string FloorLine(const Config& config, const SearchResult& within, const SearchResult& all) {
  if (!all.feasible()) return "";
  const Candidate& best = all.best.front();
  const double least = RateOf(within.best.front());
  if (best.storage.loss() <= std::log1p(config.max_loss_frac) || RateOf(best) <= least) return "";
  return fmt::format("--max-loss {:.3g}% costs {:.2f} tokens/s of {:.2f}, which {} would give\n",
                     100.0 * config.max_loss_frac, RateOf(best) - least, RateOf(best),
                     CalibratedText(*best.storage.calibrated));
}

// What more of each resource that bounds the best policy gives, searched for anew: more memory is
// for larger blocks too.
class Gains {
 public:
  Gains(const Setting& setting, const Workload& work, const Candidate& best)
      : setting_(setting), work_(work), best_(best) {}

  // No line where there is none.
  std::string Lines() const {
    std::string text;
    for (const Tier tier : kAllTiers) {
      if (setting_.machine.cap_bytes[tier] == 0 || !Bounds(tier)) continue;
      Machine more = setting_.machine;
      more.cap_bytes[tier] += int64_t{1} << 30;
      text += Line(more, "GiB", TierName(tier));
    }
    for (const Link link : kAllLinks) {
      Machine more = setting_.machine;
      if (more.rates.link_bytes_per_s[link] <= 0.0 || !Bounds(link)) continue;
      more.rates.link_bytes_per_s[link] += 1e9;
      if (link == Link::kDiskRead && more.rates.store_bytes_per_s > 0.0)
        more.rates.store_bytes_per_s += 1e9;
      text += Line(more, "GB/s", LinkName(link));
    }
    return text.empty() ? text : "with more, the best would be faster by:\n" + text;
  }

 private:
  // Whether bound_by, "decode disk_read, cpu memory", has a limit that ends so.
  bool Names(std::string_view limit) const {
    return fmt::format(" {},", best_.bound_by).find(fmt::format(" {},", limit)) !=
           std::string::npos;
  }
  // Memory always does: with more of it the best may be a larger block.
  bool Bounds(Tier tier) const { return tier != Tier::kDisk || Names("disk space"); }
  // "disk": reads and writes together.
  bool Bounds(Link link) const {
    const bool of_disk = link == Link::kDiskRead || link == Link::kDiskWrite;
    return Names(LinkName(link)) || (of_disk && Names("disk"));
  }

  std::string Line(const Machine& more, std::string_view unit, std::string_view of) const {
    constexpr double kLeastFrac = 0.001;
    const SearchResult result =
        SearchFor(setting_.config, setting_.model, more, work_, setting_.needs);
    if (!result.feasible()) return "";
    const double gain = RateOf(result.best.front()) - RateOf(best_);
    if (gain < kLeastFrac * RateOf(best_)) return "";
    return fmt::format("  one more {} of {:<10} {:+.3g} tokens/s\n", unit, of, gain);
  }

  const Setting& setting_;
  const Workload& work_;
  const Candidate& best_;
};

// "18 % gpu, 73 % cpu, 9 % disk"; tiers without a share are left out.
std::string PlacesText(const PerTier<double>& shares) {
  std::string text;
  for (const Tier tier : kAllTiers) {
    if (shares[tier] < 0.005) continue;
    text +=
        fmt::format("{}{} % {}", text.empty() ? "" : ", ", Percent(shares[tier]), TierName(tier));
  }
  return text;
}

// The best policy in words.
std::string WinnerLine(const Candidate& best, const std::filesystem::path& output) {
  const Policy& policy = best.policy;
  const int64_t rows = policy.gpu_batch_size * policy.num_gpu_batches;
  return fmt::format(
      "the first line's policy{}: weights are read once for {} rows ({} batches of {}), and lie "
      "{}; "
      "KV {}; activations {}{}\n",
      output.empty() ? " (keep it with --output)" : " is in " + Printable(output.string(), 160),
      rows, policy.num_gpu_batches, policy.gpu_batch_size, PlacesText(policy.weight_frac),
      PlacesText(policy.kv_frac), PlacesText(policy.activation_frac),
      policy.cpu_attention ? "; the CPU attends to KV outside the GPU" : "");
}

std::string SourceOf(const Setting& setting, const Workload& work, const Candidate& best) {
  return fmt::format(
      "spillway search: {} on {}; prompts of up to {} tokens, {} new; predicted "
      "{:.2f} tokens/s{}",
      setting.model.shape.name, setting.machine.name, work.longest.prompt_tokens,
      work.longest.max_new_tokens, best.prediction.generated_tokens_per_s,
      setting.config.overlap ? "" : " without overlap");
}

class SearchStages final : public Stages {
 public:
  explicit SearchStages(const Opened& opened)
      : output_(ReportKind::kPolicy, "--output", opened.flags.output,
                {opened.flags.input, {}, opened.flags.report}),
        report_(ReportKind::kReport, "--report", opened.flags.report,
                {opened.flags.input, opened.flags.output, {}}) {}

  Workload ReadWork(const Setting& setting) override {
    RequireRates(setting.machine);
    return PlannedWork(setting);
  }

  Policy ChoosePolicy(const Setting& setting, const Workload& work) override {
    result_ = SearchFor(setting.config, setting.model, setting.machine, work, setting.needs);
    if (!result_.feasible())
      RefuseInfeasible(ProvenShortage(setting, work, result_.shortage), setting.machine);
    if (!setting.config.calibration.empty()) SearchWithoutFloor(setting, work);
    return result_.best.front().policy;
  }

  // Plans for the requests that the policy was judged by, and the bits that it stores weights in.
  Plan PlanFor(const Setting& setting, const Workload& work, const Policy& policy) override {
    judged_ = IsEndless(setting.config) ? OneBlock(work, policy) : work;
    ModelShape stored = setting.model.shape;
    stored.weight_bits = policy.weight_bits;
    Plan plan = MakePlan(MakeModel(stored), setting.machine, judged_, policy, setting.needs);
    RefuseWhatGpuLacks(plan);
    return plan;
  }

  int Report(const Setting& setting, const PlannedRun& planned,
             const std::optional<Trace>& /*trace*/) override {
    const Candidate& best = result_.best.front();
    output_.Write(
        PolicyJson(best.policy, setting.model.shape, {SourceOf(setting, planned.work, best)}));
    report_.Write(PlanJson(planned.plan, judged_, best.prediction, std::nullopt));
    PrintTo(TerminalOf(setting.config), CandidateTable(result_) + floor_ +
                                            Gains(setting, planned.work, best).Lines() +
                                            WinnerLine(best, setting.config.output));
    return 0;
  }

 private:
  void SearchWithoutFloor(const Setting& setting, const Workload& work) {
    Config config = setting.config;
    const double bound = std::log1p(config.max_loss_frac);
    const auto is_beyond = [bound](const CalibratedKv& kv) { return kv.loss > bound; };
    if (std::ranges::none_of(config.calibration, is_beyond)) return;
    config.max_loss_frac = std::numeric_limits<double>::infinity();
    floor_ = FloorLine(setting.config, result_,
                       SearchFor(config, setting.model, setting.machine, work, setting.needs));
  }

  ReportFile output_;
  ReportFile report_;
  SearchResult result_;
  std::string floor_;  // what --max-loss costs
  Workload judged_;
};

}  // namespace

int RunSearch(const Config& config) { return RunChain(config, MakeStages<SearchStages>); }

}  // namespace spillway
