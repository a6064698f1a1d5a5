#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "policies/cost/cost_rates.h"  // KnowsRates
#include "spillway/byte_use.h"
#include "spillway/report.h"
#include "src/base/size_text.h"
#include "src/report/progress_text.h"  // DurationText
#include "src/report/quality_text.h"
#include "src/report/report_figures.h"

namespace spillway {
namespace {

// Seconds of a prediction: nobody reads days in seconds.
std::string SecondsText(double seconds) {
  return seconds < 600.0 ? fmt::format("{:.2f} s", seconds) : DurationText(seconds);
}

// "1 batch", "2 batches"
std::string Count(int64_t count, std::string_view one, std::string_view many) {
  return fmt::format("{} {}", count, count == 1 ? one : many);
}

// "1.48 GB/s", "4.1 MB/s"
std::string ByteRateText(double bytes_per_s) {
  return bytes_per_s < 1e9 ? fmt::format("{:.1f} MB/s", bytes_per_s / 1e6)
                           : fmt::format("{:.2f} GB/s", bytes_per_s / 1e9);
}

std::string PredictionLine(const Prediction& predicted, double tokens_per_s) {
  return fmt::format("{:.1f} tokens/s  (prefill {}, decode {}), bound by {}", tokens_per_s,
                     SecondsText(predicted.prefill_s), SecondsText(predicted.decode_s),
                     predicted.bound_by);
}

// "22 of 26 layers see the last 512 tokens"; empty: all layers see all tokens.
std::string WindowsText(const Plan& plan) {
  std::vector<int64_t> windows = plan.kept.layer_windows;
  std::erase(windows, 0);
  if (windows.empty()) return "";
  const auto [least, most] = std::ranges::minmax(windows);
  return fmt::format("; {} of {} layers see the last {} tokens{}", windows.size(),
                     plan.shape.num_layers, most, least == most ? "" : " at most");
}

// Tokens that stay of the longest row.
std::string KeptText(const Plan& plan, const KvKeep& keep) {
  if (!plan.policy.kv.evicts()) return "all tokens";
  std::vector<std::string> parts;
  if (keep.heavy > 0) parts.push_back(fmt::format("{} heavy", keep.heavy));
  parts.push_back(fmt::format("{} recent", keep.recent));
  if (keep.sinks > 0) parts.push_back(fmt::format("{} first", keep.sinks));
  return fmt::format("{} tokens", fmt::join(parts, " + "));
}

std::string KvLine(const Plan& plan, const KvKeep& keep, int64_t slots) {
  const bool per_head = plan.KvRuns() > 1;
  std::string line =
      fmt::format("{}: {}{} of the longest row{}, {} slots{}", KvPolicyName(plan.policy.kv.kind),
                  per_head ? "at most " : "", KeptText(plan, keep),
                  plan.CachePrefix() > 0 ? " behind the prefix" : "", slots,
                  per_head ? " a KV head in the mean" : "");
  if (plan.policy.kv_bits.coded())
    line += fmt::format(" of {} bits", KvBitsText(plan.policy.kv_bits));
  line += WindowsText(plan);
  if (plan.kept.rolls) line += ", rolling";
  if (per_head) {
    line += "; KV heads with budgets of their own";
  } else if (plan.policy.kv.evicts() && plan.kv_classes.size() > 1) {
    line += fmt::format("; layers with {} different budgets", plan.kv_classes.size());
  }
  if (plan.kv_log.exists())
    line += fmt::format("; rows on disk are written anew every {} passes", plan.kv_log.passes);
  return line;
}

std::string ModelLine(const Plan& plan) {
  return fmt::format("{}, {:.1f} M parameters, weights {} in {}", plan.shape.name,
                     static_cast<double>(Parameters(plan)) / 1e6, SizeText(plan.WeightBytes()),
                     HeldTypesText(plan.shape));
}

std::string MachineLine(const Plan& plan) {
  return fmt::format("{}, {} threads, {}", plan.machine.name, plan.machine.num_threads,
                     plan.machine.isa);
}

// "500 completions (310 from before), 2 errors", those of an interrupted run included.
std::string RequestsLine(const RunSummary& summary) {
  const ResumedSummary earlier = summary.resumed.value_or(ResumedSummary{});
  const auto count = [](int64_t now, int64_t before, std::string_view noun) {
    std::string text = fmt::format("{} {}", now + before, noun);
    return before > 0 ? text + fmt::format(" ({} from before)", before) : text;
  };
  std::string text = count(summary.num_completions, earlier.num_completions,
                           summary.score ? "scored" : "completions");
  text += ", " + count(summary.num_errors, earlier.num_errors, "errors");
  if (summary.num_empty > 0) text += fmt::format(", {} completions empty", summary.num_empty);
  return text;
}

std::string SamplingLine(const SamplingSummary& summary) {
  const Sampling& sampling = summary.sampling;
  std::string text = fmt::format("temperature {}, top-p {}, top-k {}", sampling.temperature,
                                 sampling.top_p, sampling.top_k);
  if (sampling.repetition_penalty != 1.0)
    text += fmt::format(", repetition penalty {}", sampling.repetition_penalty);
  return fmt::format("{} ({} of generation_config.json)", text,
                     fmt::join(summary.from_generation_config, ", "));
}

std::string TableLine(std::string_view label, std::string_view value) {
  return fmt::format("  {:<14}{}\n", label, value);
}

// One value for each tier, in columns.
template <typename F>
std::string TierColumns(F text_of) {
  std::string text;
  for (const Tier tier : kAllTiers) text += fmt::format("{:>14}", text_of(tier));
  return text;
}

std::string SizeOrDash(int64_t bytes) { return bytes == 0 ? "-" : SizeText(bytes); }

std::string ShareLine(const PerTier<double>& requested, const PerTier<double>& realised) {
  return TierColumns([&](Tier tier) {
    return fmt::format("{:.1f} / {:.1f}", 100.0 * requested[tier], 100.0 * realised[tier]);
  });
}

// Planned bytes by use and tier; uses that take nothing anywhere are left out.
std::string BytesTable(const Plan& plan) {
  const PerTier<UsedBytes> used = BytesByUse(plan);
  std::string text = TableLine("bytes", TierColumns([](Tier tier) { return TierName(tier); }));
  for (const ByteUse use : kAllByteUses) {
    const auto takes = [&](Tier tier) { return used[tier][use] > 0; };
    if (std::ranges::none_of(kAllTiers, takes)) continue;
    // The store on disk has all weights, those that lie in memory too.
    const bool has_copies = use == ByteUse::kPadding && used[Tier::kDisk][use] > 0;
    text += TableLine(ByteUseName(use),
                      TierColumns([&](Tier tier) { return SizeOrDash(used[tier][use]); }) +
                          (has_copies ? "  on disk: copies of weights, in the store" : ""));
  }
  text += TableLine("planned",
                    TierColumns([&](Tier tier) { return SizeOrDash(plan.PlannedBytes(tier)); }));
  return text + TableLine("allowed", TierColumns([&](Tier tier) {
                            return SizeOrDash(plan.machine.cap_bytes[tier]);
                          }));
}

// Line on who attends; empty where it is the device alone.
std::string AttentionLine(const Plan& plan) {
  const bool cpu = plan.policy.cpu_attention && plan.kv[Tier::kGpu].rows < plan.batch.rows &&
                   plan.device() == Tier::kGpu;
  if (!cpu) return "";
  return TableLine("attention", plan.AttendsBeside()
                                    ? "single tokens by the CPU beside the GPU, prompts by the GPU"
                                    : "by the CPU where KV is not on the gpu");
}

// In a prediction's place: how it is mended where nothing is known of the machine.
std::string NoPredictionLine(const Plan& plan) {
  if (KnowsRates(plan.machine)) return "";
  return TableLine("predicted",
                   "nothing, as the machine's rates are not known: spillway profile "
                   "measures them (with --cpu-compute, where the run has it), and policies are "
                   "searched for then");
}

std::string PhaseLine(int64_t num_tokens, double seconds) {
  return fmt::format("{:.1f} tokens/s  ({} tokens in {:.2f} s)", Rate(num_tokens, seconds),
                     num_tokens, seconds);
}

// Of how many tokens K and V were another row's.
std::string PrefixLine(const Plan& plan) {
  if (plan.prefix.tokens.empty()) return "";
  return TableLine("prefix", fmt::format("{} tokens that all prompts begin with, held once",
                                         plan.prefix.num_tokens()));
}

std::string SharedText(int64_t num_tokens) {
  return num_tokens == 0 ? "" : fmt::format(", {} of them not computed anew", num_tokens);
}

std::string TierLines(const Plan& plan) {
  std::string text;
  for (const Tier tier : kAllTiers) {
    if (plan.PlannedBytes(tier) == 0) continue;
    text += TableLine(
        tier == Tier::kDisk ? "disk" : fmt::format("{} memory", TierName(tier)),
        fmt::format("{} planned of {} allowed (weights {}, KV {})",
                    SizeText(plan.PlannedBytes(tier)), SizeText(plan.machine.cap_bytes[tier]),
                    SizeText(plan.weight_bytes[tier]), SizeText(plan.KvBytesIn(tier))));
  }
  return text;
}

std::string LinkLines(const PhaseTotals& prefill, const PhaseTotals& decode) {
  std::string text;
  for (const Link link : kAllLinks) {
    const LinkTotals total = prefill.links[link] + decode.links[link];
    if (total.bytes == 0) continue;
    const double seconds = prefill.seconds + decode.seconds;
    text += TableLine(LinkName(link),
                      fmt::format("{} at {}, busy {:.0f} % of the time", SizeText(total.bytes),
                                  ByteRateText(Rate(total.bytes, total.busy_s)),
                                  100.0 * std::min(1.0, total.busy_s / std::max(seconds, 1e-9))));
  }
  return text;
}

// Empty where computes waited for less than a hundredth of the time.
std::string WaitingLine(const PhaseTotals& prefill, const PhaseTotals& decode) {
  const double waited_s = prefill.waits.total_s() + decode.waits.total_s();
  if (waited_s <= 0.01 * (prefill.seconds + decode.seconds)) return "";
  return TableLine("waiting",
                   fmt::format("{:.2f} s for weights, {:.2f} s for KV, {:.2f} s for activations",
                               prefill.waits.weights_s + decode.waits.weights_s,
                               prefill.waits.kv_s + decode.waits.kv_s,
                               prefill.waits.hidden_s + decode.waits.hidden_s));
}

std::string QualityLines(const QualityReceipt& receipt) {
  const std::string text = TableLine("quality", StepsText(receipt));
  return receipt.lengths ? text + TableLine("answers", LengthsText(*receipt.lengths)) : text;
}

}  // namespace

std::string PlanTable(const Plan& plan, const Workload& work,
                      const std::optional<Prediction>& predicted) {
  std::string text = TableLine("model", ModelLine(plan)) + TableLine("machine", MachineLine(plan));
  text += TableLine("requests",
                    fmt::format("{}, prompts of up to {} tokens, {} in all", work.num_requests,
                                work.longest.prompt_tokens, work.longest.slots()));
  text += TableLine(
      "block",
      fmt::format("{} x {}, prefill in chunks of {} tokens", Count(plan.batch.rows, "row", "rows"),
                  Count(plan.num_batches, "batch", "batches"), plan.workspace.chunk_tokens));
  text += TableLine("KV", KvLine(plan, plan.MostRunKeep(plan.longest.slots()),
                                 plan.MostHeadSlots(plan.longest.slots())));
  text += PrefixLine(plan) + AttentionLine(plan) + BytesTable(plan);
  text += TableLine("% placed", "as requested / as realised");
  text += TableLine("weights", ShareLine(plan.policy.weight_frac, Realised(plan.weight_bytes)));
  text += TableLine("kv", ShareLine(plan.policy.kv_frac, Realised(plan.kv)));
  text += TableLine("activations", ShareLine(plan.policy.activation_frac, Realised(plan.hidden)));
  if (!predicted) return text + NoPredictionLine(plan);
  return text +
         TableLine("predicted", PredictionLine(*predicted, predicted->generated_tokens_per_s));
}

std::string ReportTable(const Plan& plan, const Trace& trace, const RunSummary& summary) {
  const auto& [prefill, decode] = std::tie(trace.prefill, trace.decode);
  std::string text = TableLine("model", ModelLine(plan)) + TableLine("machine", MachineLine(plan));
  text += TableLine("requests", RequestsLine(summary));
  if (summary.sampling && !summary.sampling->from_generation_config.empty())
    text += TableLine("sampling", SamplingLine(*summary.sampling));
  text += TableLine("block",
                    fmt::format("{} x {}, {}, {}", Count(plan.policy.gpu_batch_size, "row", "rows"),
                                Count(plan.policy.num_gpu_batches, "batch", "batches"),
                                Count(trace.num_blocks, "block", "blocks"),
                                Count(prefill.passes + decode.passes, "pass", "passes")));
  if (plan.kept.evicts() || plan.policy.kv_bits.coded())
    text += TableLine("KV", KvLine(plan, trace.largest_keep, trace.slots_per_row));
  text += PrefixLine(plan) + AttentionLine(plan);
  text += TableLine("prefill", PhaseLine(prefill.prompt_tokens, prefill.seconds) +
                                   SharedText(trace.shared_prompt_tokens));
  if (decode.passes > 0)
    text += TableLine("decode", PhaseLine(decode.generated_tokens, decode.seconds));
  text += TableLine(
      summary.score ? "scored" : "generated",
      fmt::format("{:.1f} tokens/s  (load {:.2f} s, total {:.2f} s)",
                  RunRate(AnsweredTokens(trace, summary), trace), trace.load_s, summary.total_s));
  text += summary.predicted ? TableLine("predicted", PredictionLine(*summary.predicted,
                                                                    PredictedRate(trace, summary)))
                            : NoPredictionLine(plan);
  text += TierLines(plan) + LinkLines(prefill, decode) + WaitingLine(prefill, decode);
  return summary.quality ? text + QualityLines(*summary.quality) : text;
}

}  // namespace spillway
