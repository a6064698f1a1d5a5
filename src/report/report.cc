#include "spillway/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <tuple>

#include "policies/cost/cost_model.h"
#include "policies/cost/decode_work.h"
#include "spillway/byte_use.h"
#include "spillway/tile.h"
#include "src/base/size_text.h"
#include "src/formats/kv_policy_json.h"

namespace spillway {
namespace {

using Json = nlohmann::ordered_json;

double Rate(int64_t count, double seconds) {
  return seconds > 0.0 ? static_cast<double>(count) / seconds : 0.0;
}

// Of the time that blocks were computed.
double RunRate(int64_t count, const Trace& trace) {
  return Rate(count, trace.prefill.seconds + trace.decode.seconds);
}

// A run that scores generates nothing.
int64_t GeneratedTokens(const Trace& trace, const RunSummary& summary) {
  return summary.score
             ? 0
             : trace.prefill.generated_tokens + trace.decode.generated_tokens - trace.lost_tokens;
}

Json ScoreJson(const ScoreSummary& score, const Trace& trace) {
  const std::optional<double> perplexity = score.perplexity();
  const bool finite = perplexity && std::isfinite(*perplexity);
  return {{"num_tokens", score.num_tokens},
          {"logprob_sum", score.logprob_sum},
          {"perplexity", finite ? Json(*perplexity) : Json(nullptr)},
          {"tokens_per_s", RunRate(score.num_tokens, trace)}};
}

Json PerTierJson(const PerTier<double>& values) {
  Json json;
  for (const Tier tier : kAllTiers) json[std::string(TierName(tier))] = values[tier];
  return json;
}

// The share of each tier in what the plan placed; zero of nothing.
PerTier<double> Realised(const PerTier<int64_t>& amounts) {
  PerTier<double> share;
  const int64_t total = amounts[Tier::kGpu] + amounts[Tier::kCpu] + amounts[Tier::kDisk];
  if (total == 0) return share;
  for (const Tier tier : kAllTiers) {
    share[tier] = static_cast<double>(amounts[tier]) / static_cast<double>(total);
  }
  return share;
}

// The room for a block's rows.
PerTier<double> Realised(const PerTier<RowShare>& shares) {
  PerTier<int64_t> sizes;
  for (const Tier tier : kAllTiers) sizes[tier] = shares[tier].size;
  return Realised(sizes);
}

// The unit of placement.
int64_t LargestTileBytes(const Plan& plan) {
  int64_t bytes = 0;
  for (const PlannedLayer& layer : plan.layers) {
    for (const PlannedTensor& tensor : layer.tensors) {
      const TensorSpec& spec = tensor.spec;
      const TileSplit split = SplitIntoTiles(spec.rows, spec.cols, spec.dtype);
      bytes = std::max({bytes, split.Tile(0).size() * spec.row_bytes(),
                        split.Tile(split.num_tiles - 1).size() * spec.row_bytes()});
    }
  }
  return bytes;
}

Json UsedBytesJson(const UsedBytes& used) {
  Json json;
  for (const ByteUse use : kAllByteUses) json[std::string(ByteUseName(use))] = used[use];
  return json;
}

Json TiersJson(const Plan& plan, const Trace& trace) {
  const PerTier<UsedBytes> used = BytesByUse(plan);
  Json json;
  for (const Tier tier : kAllTiers) {
    json[std::string(TierName(tier))] = {{"cap_bytes", plan.machine.cap_bytes[tier]},
                                         {"planned_peak_bytes", plan.PlannedBytes(tier)},
                                         {"planned_bytes", UsedBytesJson(used[tier])},
                                         {"peak_bytes", trace.peak_bytes[tier]}};
  }
  return json;
}

LinkTotals Sum(const LinkTotals& a, const LinkTotals& b) {
  return {a.bytes + b.bytes, a.busy_s + b.busy_s};
}

// What a link can do at most is known where the machine's rates are.
Json LinksJson(const MachineRates& rates, const Trace& trace) {
  Json json;
  for (const Link link : kAllLinks) {
    const LinkTotals total = Sum(trace.prefill.links[link], trace.decode.links[link]);
    json[std::string(LinkName(link))] = {
        {"bytes", total.bytes},
        {"busy_s", total.busy_s},
        {"bytes_per_s", total.busy_s > 0.0 ? Json(Rate(total.bytes, total.busy_s)) : Json(nullptr)},
        {"peak_bytes_per_s",
         rates.link_bytes_per_s[link] > 0.0 ? Json(rates.link_bytes_per_s[link]) : Json(nullptr)}};
  }
  if (rates.store_bytes_per_s > 0.0)
    json[std::string(LinkName(Link::kDiskRead))]["store_bytes_per_s"] = rates.store_bytes_per_s;
  return json;
}

// The limits of the device that computes, where its rates are known, and what may have spoilt them.
Json MachineJson(const Machine& machine) {
  const DeviceRates& rates = machine.device == Tier::kGpu ? machine.rates.gpu : machine.rates.cpu;
  const auto fastest = std::ranges::max_element(rates.matmul, {}, &MatmulRate::flops_per_s);
  const bool known = fastest != rates.matmul.end();
  Json json = {{"name", machine.name},
               {"isa", machine.isa},
               {"num_threads", machine.num_threads},
               {"memory_bytes_per_s", known ? Json(rates.memory_bytes_per_s) : Json(nullptr)},
               {"matmul_flops_per_s", known ? Json(fastest->flops_per_s) : Json(nullptr)}};
  if (!machine.disturbed.empty()) json["disturbed"] = machine.disturbed;
  return json;
}

Json WorkJson(const Plan& plan, const Trace& trace) {
  const DecodeWork work = DecodeWorkOf(plan, trace);
  return {{"decode_flops", work.flops}, {"decode_memory_bytes", work.memory_bytes}};
}

Json PhaseJson(const PhaseTotals& phase) {
  Json links;
  for (const Link link : kAllLinks) {
    links[std::string(LinkName(link))] = {{"bytes", phase.links[link].bytes},
                                          {"busy_s", phase.links[link].busy_s}};
  }
  return {{"passes", phase.passes},
          {"compute_s", phase.compute_s},
          {"wait_s",
           {{"weights", phase.waits.weights_s},
            {"kv", phase.waits.kv_s},
            {"activations", phase.waits.hidden_s},
            {"stores", phase.waits.stores_s}}},
          {"links", links}};
}

Json PlacementJson(const Plan& plan) {
  return {{"weights",
           {{"requested", PerTierJson(plan.policy.weight_frac)},
            {"realised", PerTierJson(Realised(plan.weight_bytes))},
            {"tile_bytes", LargestTileBytes(plan)}}},
          {"kv",
           {{"requested", PerTierJson(plan.policy.kv_frac)},
            {"realised", PerTierJson(Realised(plan.kv))}}},
          {"activations",
           {{"requested", PerTierJson(plan.policy.activation_frac)},
            {"realised", PerTierJson(Realised(plan.hidden))}}}};
}

Json PredictionJson(const std::optional<Prediction>& predicted) {
  const auto value_of = [&](auto member) {
    return predicted ? Json((*predicted).*member) : Json(nullptr);
  };
  return {{"prefill_s", value_of(&Prediction::prefill_s)},
          {"decode_s", value_of(&Prediction::decode_s)},
          {"generated_tokens_per_s", value_of(&Prediction::generated_tokens_per_s)},
          {"bound_by", value_of(&Prediction::bound_by)}};
}

// Predicted beside measured seconds; null where one of the two is not known or there was nothing.
Json ErrorJson(const std::optional<double>& predicted_s, double measured_s) {
  const bool comparable = predicted_s && measured_s > 0.0;
  return {{"predicted_s", predicted_s ? Json(*predicted_s) : Json(nullptr)},
          {"measured_s", measured_s},
          {"error", comparable ? Json(*predicted_s / measured_s - 1.0) : Json(nullptr)}};
}

Json PredictionErrorJson(const std::optional<Prediction>& predicted, const Trace& trace) {
  const auto value_of = [&](auto get) {
    return predicted ? std::optional<double>(get(*predicted)) : std::nullopt;
  };
  Json json;
  json["prefill"] =
      ErrorJson(value_of([](const Prediction& p) { return p.prefill_s; }), trace.prefill.seconds);
  json["decode"] =
      ErrorJson(value_of([](const Prediction& p) { return p.decode_s; }), trace.decode.seconds);
  for (const Link link : kAllLinks) {
    json["links"][std::string(LinkName(link))] =
        ErrorJson(value_of([&](const Prediction& p) { return p.link_busy_s[link]; }),
                  trace.prefill.links[link].busy_s + trace.decode.links[link].busy_s);
  }
  for (const ComputePart part : kAllComputeParts) {
    json["units"][std::string(ComputePartName(part))] =
        ErrorJson(value_of([&](const Prediction& p) { return p.parts[part]; }),
                  trace.prefill.parts[part] + trace.decode.parts[part]);
  }
  return json;
}

std::string PredictionLine(const Prediction& predicted) {
  return fmt::format("{:.1f} tokens/s  (prefill {:.2f} s, decode {:.2f} s), bound by {}",
                     predicted.generated_tokens_per_s, predicted.prefill_s, predicted.decode_s,
                     predicted.bound_by);
}

int64_t Parameters(const Plan& plan) {
  int64_t count = 0;
  for (const PlannedLayer& layer : plan.layers) {
    for (const PlannedTensor& tensor : layer.tensors) count += tensor.spec.rows * tensor.spec.cols;
  }
  return count;
}

Json ToJson(const Plan& plan, const Trace& trace, const RunSummary& summary) {
  const int64_t generated = GeneratedTokens(trace, summary);
  Json json;
  json["version"] = 1;
  json["model"] = {{"name", plan.shape.name},
                   {"num_parameters", Parameters(plan)},
                   {"weight_bytes", plan.WeightBytes()}};
  json["policy"] = {{"weight_frac", PerTierJson(plan.policy.weight_frac)},
                    {"kv_frac", PerTierJson(plan.policy.kv_frac)},
                    {"activation_frac", PerTierJson(plan.policy.activation_frac)},
                    {"gpu_batch_size", plan.policy.gpu_batch_size},
                    {"num_gpu_batches", plan.policy.num_gpu_batches},
                    {"cpu_attention", plan.policy.cpu_attention},
                    {"prefill_chunk", plan.workspace.chunk_tokens},
                    {"weight_bits", plan.shape.weight_bits},
                    {"kv_bits", plan.policy.kv_bits},
                    {"kv_dtype", DTypeName(plan.policy.kv_dtype)},
                    {"kv", KvPolicyJson(plan.policy.kv)}};
  json["machine"] = MachineJson(plan.machine);
  json["workload"] = {{"num_requests", summary.num_requests},
                      {"prompt_tokens", trace.prefill.prompt_tokens - trace.lost_prompt_tokens},
                      {"generated_tokens", generated},
                      {"num_completions", summary.num_completions},
                      {"num_errors", summary.num_errors}};
  if (const auto& resumed = summary.resumed) {
    json["resumed"] = {{"num_completions", resumed->num_completions},
                       {"num_errors", resumed->num_errors}};
  }
  json["time_s"] = {{"load", trace.load_s},
                    {"prefill", trace.prefill.seconds},
                    {"decode", trace.decode.seconds},
                    {"total", summary.total_s}};
  json["throughput"] = {
      {"prefill_tokens_per_s", Rate(trace.prefill.prompt_tokens, trace.prefill.seconds)},
      {"decode_tokens_per_s", Rate(trace.decode.generated_tokens, trace.decode.seconds)},
      {"generated_tokens_per_s", RunRate(generated, trace)}};
  json["tiers"] = TiersJson(plan, trace);
  json["placement"] = PlacementJson(plan);
  json["links"] = LinksJson(plan.machine.rates, trace);
  json["links"]["disk_read"]["rereads"] = trace.mending.num_rereads;
  json["links"]["disk_read"]["repaired"] = trace.mending.num_repaired;
  json["links"]["disk_read"]["recomputed"] = trace.mending.num_recomputed;
  json["work"] = WorkJson(plan, trace);
  json["phases"] = {{"prefill", PhaseJson(trace.prefill)}, {"decode", PhaseJson(trace.decode)}};
  json["kv"] = {{"policy", KvPolicyName(plan.policy.kv.kind)}, {"heavy", trace.largest_keep.heavy},
                {"recent", trace.largest_keep.recent},         {"sinks", trace.largest_keep.sinks},
                {"slots_per_row", trace.slots_per_row},        {"bytes", trace.kv_bytes}};
  json["kv"]["written_whole_every"] = plan.kv_log.exists() ? Json(plan.kv_log.passes) : Json();
  json["block"] = {{"gpu_batch_size", plan.policy.gpu_batch_size},
                   {"num_gpu_batches", plan.policy.num_gpu_batches},
                   {"num_blocks", trace.num_blocks},
                   {"passes", trace.prefill.passes + trace.decode.passes}};
  json["predicted"] = PredictionJson(summary.predicted);
  json["prediction_error"] = PredictionErrorJson(summary.predicted, trace);
  json["fingerprint"] = summary.fingerprint.empty() ? Json() : Json(summary.fingerprint);
  if (summary.score) json["score"] = ScoreJson(*summary.score, trace);
  return json;
}

std::string Dump(const Json& json) {
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

// Null for every value, the keys kept.
void ClearValues(Json& json) {
  if (!json.is_object()) {
    json = nullptr;
    return;
  }
  for (Json& value : json) ClearValues(value);
}

std::string KvLine(const Plan& plan, const KvKeep& keep, int64_t slots) {
  const KvPolicyKind kind = plan.policy.kv.kind;
  const int bits = plan.policy.kv_bits;
  const std::string width = bits == 16 ? "" : fmt::format(", {} bits", bits);
  if (!plan.policy.kv.evicts())
    return fmt::format("full, {} slots for the longest row{}", slots, width);
  const std::string layers =
      plan.kv_classes.size() == 1 ? "" : fmt::format(", {} budgets", plan.kv_classes.size());
  const std::string log =
      plan.kv_log.exists()
          ? fmt::format(", on disk written whole every {} passes", plan.kv_log.passes)
          : "";
  return fmt::format(
      "{}, {} heavy + {} recent + {} first tokens of the longest row, {} slots{}{}{}",
      KvPolicyName(kind), keep.heavy, keep.recent, keep.sinks, slots, layers, width, log);
}

std::string ModelLine(const Plan& plan) {
  return fmt::format("{}, {:.1f} M parameters, weights {} in {}", plan.shape.name,
                     static_cast<double>(Parameters(plan)) / 1e6, SizeText(plan.WeightBytes()),
                     DTypeName(MatrixDType(plan.shape)));
}

std::string MachineLine(const Plan& plan) {
  return fmt::format("{}, {} threads, {}", plan.machine.name, plan.machine.num_threads,
                     plan.machine.isa);
}

std::string RequestsLine(const RunSummary& summary) {
  std::string text = fmt::format("{} {}, {} errors", summary.num_completions,
                                 summary.score ? "scored" : "completions", summary.num_errors);
  if (const auto& resumed = summary.resumed)
    text += fmt::format("; {} and {} of the interrupted run", resumed->num_completions,
                        resumed->num_errors);
  return text;
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
    text += TableLine(ByteUseName(use),
                      TierColumns([&](Tier tier) { return SizeOrDash(used[tier][use]); }));
  }
  text += TableLine("planned",
                    TierColumns([&](Tier tier) { return SizeOrDash(plan.PlannedBytes(tier)); }));
  return text + TableLine("allowed", TierColumns([&](Tier tier) {
                            return SizeOrDash(plan.machine.cap_bytes[tier]);
                          }));
}

// Where it is not the device's alone.
std::string AttentionLine(const Plan& plan) {
  const bool cpu = plan.policy.cpu_attention && plan.kv[Tier::kGpu].rows < plan.batch.rows &&
                   plan.device() == Tier::kGpu;
  if (!cpu) return "";
  return TableLine("attention", plan.AttendsBeside()
                                    ? "single tokens by the CPU beside the GPU, prompts by the GPU"
                                    : "by the CPU where KV is not on the gpu");
}

// Where nothing is known of the machine, how that is mended.
std::string PredictedLine(const Plan& plan, const std::optional<Prediction>& predicted) {
  if (predicted) return TableLine("predicted", PredictionLine(*predicted));
  if (KnowsRates(plan.machine)) return "";
  return TableLine("predicted",
                   "nothing, as the machine's rates are not known: spillway profile "
                   "measures them, and policies are searched for then");
}

}  // namespace

std::optional<double> ScoreSummary::perplexity() const {
  if (num_tokens == 0) return std::nullopt;
  return std::exp(-logprob_sum / static_cast<double>(num_tokens));
}

std::string ReportJson(const Plan& plan, const Trace& trace, const RunSummary& summary) {
  return Dump(ToJson(plan, trace, summary));
}

std::string PlanJson(const Plan& plan, const Workload& work,
                     const std::optional<Prediction>& predicted) {
  RunSummary summary;
  summary.predicted = predicted;
  Json json = ToJson(plan, {}, summary);
  for (const char* measured : {"workload", "time_s", "throughput", "links", "work", "phases",
                               "prediction_error", "fingerprint"}) {
    ClearValues(json[measured]);
  }
  json["workload"]["num_requests"] = work.num_requests;
  for (Json& tier : json["tiers"]) tier["peak_bytes"] = nullptr;
  const KvKeep keep = plan.MostRowKeep(work.longest.slots());
  json["kv"]["heavy"] = keep.heavy;
  json["kv"]["recent"] = keep.recent;
  json["kv"]["sinks"] = keep.sinks;
  json["kv"]["slots_per_row"] = plan.MostRowSlots(work.longest.slots());
  json["kv"]["bytes"] = plan.KvBytes();
  json["block"]["num_blocks"] = json["block"]["passes"] = nullptr;
  return Dump(json);
}

std::string PlanTable(const Plan& plan, const Workload& work,
                      const std::optional<Prediction>& predicted) {
  std::string text = TableLine("model", ModelLine(plan)) + TableLine("machine", MachineLine(plan));
  text += TableLine("requests",
                    fmt::format("{}, prompts of up to {} tokens, {} in all", work.num_requests,
                                work.longest.prompt_tokens, work.longest.slots()));
  text += TableLine(
      "block", fmt::format("{} rows x {} batches, prefill in chunks of {} tokens", plan.batch.rows,
                           plan.num_batches, plan.workspace.chunk_tokens));
  text += TableLine("KV", KvLine(plan, plan.MostRowKeep(work.longest.slots()),
                                 plan.MostRowSlots(work.longest.slots())));
  text += AttentionLine(plan) + BytesTable(plan);
  text += TableLine("% placed", "as requested / as realised");
  text += TableLine("weights", ShareLine(plan.policy.weight_frac, Realised(plan.weight_bytes)));
  text += TableLine("kv", ShareLine(plan.policy.kv_frac, Realised(plan.kv)));
  text += TableLine("activations", ShareLine(plan.policy.activation_frac, Realised(plan.hidden)));
  return text + PredictedLine(plan, predicted);
}

std::string ReportTable(const Plan& plan, const Trace& trace, const RunSummary& summary) {
  const auto& [prefill, decode] = std::tie(trace.prefill, trace.decode);
  std::string text;
  const auto line = [&](std::string_view label, const std::string& value) {
    text += TableLine(label, value);
  };
  line("model", ModelLine(plan));
  line("machine", MachineLine(plan));
  line("requests", RequestsLine(summary));
  line("block",
       fmt::format("{} rows x {} batches, {} blocks, {} passes", plan.policy.gpu_batch_size,
                   plan.policy.num_gpu_batches, trace.num_blocks, prefill.passes + decode.passes));
  if (plan.policy.kv.evicts() || plan.policy.kv_bits != 16)
    line("KV", KvLine(plan, trace.largest_keep, trace.slots_per_row));
  text += AttentionLine(plan);
  line("prefill", fmt::format("{:.1f} tokens/s  ({} tokens in {:.2f} s)",
                              Rate(prefill.prompt_tokens, prefill.seconds), prefill.prompt_tokens,
                              prefill.seconds));
  if (decode.passes > 0) {
    line("decode", fmt::format("{:.1f} tokens/s  ({} tokens in {:.2f} s)",
                               Rate(decode.generated_tokens, decode.seconds),
                               decode.generated_tokens, decode.seconds));
  }
  const int64_t answered =
      summary.score ? summary.score->num_tokens : GeneratedTokens(trace, summary);
  line(summary.score ? "scored" : "generated",
       fmt::format("{:.1f} tokens/s  (load {:.2f} s, total {:.2f} s)", RunRate(answered, trace),
                   trace.load_s, summary.total_s));
  text += PredictedLine(plan, summary.predicted);
  for (const Tier tier : kAllTiers) {
    if (plan.PlannedBytes(tier) == 0) continue;
    line(tier == Tier::kDisk ? "disk" : fmt::format("{} memory", TierName(tier)),
         fmt::format("{} planned of {} allowed (weights {}, KV {})",
                     SizeText(plan.PlannedBytes(tier)), SizeText(plan.machine.cap_bytes[tier]),
                     SizeText(plan.weight_bytes[tier]), SizeText(plan.kv[tier].region.bytes)));
  }
  for (const Link link : kAllLinks) {
    const LinkTotals total = Sum(prefill.links[link], decode.links[link]);
    if (total.bytes == 0) continue;
    const double seconds = prefill.seconds + decode.seconds;
    line(LinkName(link),
         fmt::format("{} at {:.2f} GB/s, busy {:.0f} % of the time", SizeText(total.bytes),
                     Rate(total.bytes, total.busy_s) / 1e9,
                     100.0 * std::min(1.0, total.busy_s / std::max(seconds, 1e-9))));
  }
  const double waited_s = prefill.waits.total_s() + decode.waits.total_s();
  if (waited_s > 0.01 * (prefill.seconds + decode.seconds)) {
    line("waiting", fmt::format("{:.2f} s for weights, {:.2f} s for KV, {:.2f} s for activations",
                                prefill.waits.weights_s + decode.waits.weights_s,
                                prefill.waits.kv_s + decode.waits.kv_s,
                                prefill.waits.hidden_s + decode.waits.hidden_s));
  }
  return text;
}

}  // namespace spillway
