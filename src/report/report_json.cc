#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "policies/cost/decode_work.h"
#include "spillway/byte_use.h"
#include "spillway/report.h"
#include "spillway/tile.h"
#include "src/base/json_text.h"
#include "src/formats/kv_policy_json.h"
#include "src/formats/tier_json.h"
#include "src/report/report_figures.h"

namespace spillway {
namespace {

using Json = nlohmann::ordered_json;

Json ScoreJson(const RunSummary& summary, const Trace& trace) {
  Json json = ScoreTotalsJson(*summary.score);
  json["tokens_per_s"] = RunRate(AnsweredTokens(trace, summary), trace);
  json["predicted_tokens_per_s"] =
      summary.predicted ? Json(PredictedRate(trace, summary)) : Json(nullptr);
  return json;
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
  Json json = Json::object();
  for (const ByteUse use : kAllByteUses) json[std::string(ByteUseName(use))] = used[use];
  return json;
}

Json TiersJson(const Plan& plan, const Trace& trace) {
  const PerTier<UsedBytes> used = BytesByUse(plan);
  Json json = Json::object();
  for (const Tier tier : kAllTiers) {
    json[std::string(TierName(tier))] = {{"cap_bytes", plan.machine.cap_bytes[tier]},
                                         {"planned_peak_bytes", plan.PlannedBytes(tier)},
                                         {"planned_bytes", UsedBytesJson(used[tier])},
                                         {"peak_bytes", trace.peak_bytes[tier]}};
  }
  return json;
}

// Links by name. The most that a link can do is known where the machine's rates are.
Json LinksJson(const MachineRates& rates, const Trace& trace) {
  Json json = Json::object();
  for (const Link link : kAllLinks) {
    const LinkTotals total = trace.prefill.links[link] + trace.decode.links[link];
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
  Json links = Json::object();
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

Json PredictionJson(const RunSummary& summary) {
  const std::optional<Prediction>& predicted = summary.predicted;
  const auto value_of = [&](auto member) {
    return predicted ? Json((*predicted).*member) : Json(nullptr);
  };
  return {{"prefill_s", value_of(&Prediction::prefill_s)},
          {"decode_s", value_of(&Prediction::decode_s)},
          {"generated_tokens_per_s",
           summary.score ? Json(nullptr) : value_of(&Prediction::generated_tokens_per_s)},
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
  Json json = Json::object();
  json["prefill"] =
      ErrorJson(value_of([](const Prediction& p) { return p.prefill_s; }), trace.prefill.seconds);
  json["decode"] =
      ErrorJson(value_of([](const Prediction& p) { return p.decode_s; }), trace.decode.seconds);
  Json& links = json["links"] = Json::object();
  for (const Link link : kAllLinks) {
    links[std::string(LinkName(link))] =
        ErrorJson(value_of([&](const Prediction& p) { return p.link_busy_s[link]; }),
                  trace.prefill.links[link].busy_s + trace.decode.links[link].busy_s);
  }
  Json& units = json["units"] = Json::object();
  for (const ComputePart part : kAllComputeParts) {
    units[std::string(ComputePartName(part))] =
        ErrorJson(value_of([&](const Prediction& p) { return p.parts[part]; }),
                  trace.prefill.parts[part] + trace.decode.parts[part]);
  }
  return json;
}

Json ModelJson(const Plan& plan) {
  return {{"name", plan.shape.name},
          {"num_parameters", Parameters(plan)},
          {"weights", HeldTypesText(plan.shape)},
          {"weight_bytes", plan.WeightBytes()}};
}

Json PolicyJson(const Plan& plan) {
  const Policy& policy = plan.policy;
  Json json = {{"weight_frac", PerTierJson(policy.weight_frac)},
               {"kv_frac", PerTierJson(policy.kv_frac)},
               {"activation_frac", PerTierJson(policy.activation_frac)},
               {"gpu_batch_size", policy.gpu_batch_size},
               {"num_gpu_batches", policy.num_gpu_batches},
               {"cpu_attention", policy.cpu_attention},
               {"prefill_chunk", plan.workspace.chunk_tokens},
               {"kv_bits", KvBitsJson(policy.kv_bits)},
               {"kv_dtype", DTypeName(policy.kv_dtype)},
               {"kv", KvPolicyJson(policy.kv)}};
  if (StatesWeightBits(plan.shape, plan.shape.weight_bits))
    json["weight_bits"] = plan.shape.weight_bits;
  return json;
}

Json WorkloadJson(const Trace& trace, const RunSummary& summary) {
  // Tokens of texts that are fed one by one, behind the first pass of `score --prefill`.
  const int64_t num_told =
      summary.score ? trace.decode.generated_tokens - trace.lost_decode_tokens : 0;
  return {{"num_requests", summary.num_requests},
          {"prompt_tokens", trace.prefill.prompt_tokens + num_told - trace.lost_prompt_tokens},
          {"shared_prompt_tokens", trace.shared_prompt_tokens},
          {"generated_tokens", GeneratedTokens(trace, summary)},
          {"num_completions", summary.num_completions},
          {"num_errors", summary.num_errors},
          {"num_empty_completions", summary.num_empty}};
}

Json SamplingJson(const SamplingSummary& summary) {
  const Sampling& sampling = summary.sampling;
  return {{"temperature", sampling.temperature},
          {"top_p", sampling.top_p},
          {"top_k", sampling.top_k},
          {"repetition_penalty", sampling.repetition_penalty},
          {"max_tokens", sampling.max_tokens},
          {"min_tokens", sampling.min_tokens},
          {"choices", sampling.choices},
          {"stop", sampling.stop},
          {"stop_token_ids", sampling.stop_token_ids},
          {"ignore_eos", sampling.ignore_eos},
          {"from_generation_config", summary.from_generation_config}};
}

Json QualityJson(const QualityReceipt& receipt) {
  const auto error_of = [](const MeanWithError& mean) {
    return mean.error ? Json(*mean.error) : Json(nullptr);
  };
  Json json = {{"num_rows", receipt.num_rows},
               {"num_tokens", receipt.num_tokens},
               {"same_token_frac", receipt.agreement.mean},
               {"same_token_error", error_of(receipt.agreement)},
               {"divergence", receipt.divergence.mean},
               {"divergence_error", error_of(receipt.divergence)},
               {"answers", nullptr},
               {"seconds", receipt.seconds}};
  if (const auto& lengths = receipt.lengths) {
    json["answers"] = {{"num_rows", lengths->num_rows},
                       {"mean_tokens", lengths->own},
                       {"mean_tokens_full", lengths->full},
                       {"difference_error", error_of(lengths->difference)}};
  }
  return json;
}

Json TimeJson(const Trace& trace, const RunSummary& summary) {
  return {{"load", trace.load_s},
          {"prefill", trace.prefill.seconds},
          {"decode", trace.decode.seconds},
          {"total", summary.total_s}};
}

Json ThroughputJson(const Trace& trace, const RunSummary& summary) {
  return {{"prefill_tokens_per_s", Rate(trace.prefill.prompt_tokens, trace.prefill.seconds)},
          {"decode_tokens_per_s", Rate(trace.decode.generated_tokens, trace.decode.seconds)},
          {"generated_tokens_per_s", RunRate(GeneratedTokens(trace, summary), trace)}};
}

Json LinksJson(const Plan& plan, const Trace& trace) {
  Json json = LinksJson(plan.machine.rates, trace);
  Json& disk = json["disk_read"];
  disk["rereads"] = trace.mending.num_rereads;
  disk["repaired"] = trace.mending.num_repaired;
  disk["recomputed"] = trace.mending.num_recomputed;
  return json;
}

Json KvJson(const Plan& plan, const Trace& trace) {
  Json json = {{"policy", KvPolicyName(plan.policy.kv.kind)}, {"heavy", trace.largest_keep.heavy},
               {"recent", trace.largest_keep.recent},         {"sinks", trace.largest_keep.sinks},
               {"slots_per_row", trace.slots_per_row},        {"bytes", trace.kv_bytes},
               {"prefix_tokens", plan.prefix.num_tokens()},   {"slot_bytes", plan.slot_bytes},
               {"block_fill_bytes", plan.kv_block_fill}};
  json["written_whole_every"] = plan.kv_log.exists() ? Json(plan.kv_log.passes) : Json();
  return json;
}

Json BlockJson(const Plan& plan, const Trace& trace) {
  return {{"gpu_batch_size", plan.policy.gpu_batch_size},
          {"num_gpu_batches", plan.policy.num_gpu_batches},
          {"num_blocks", trace.num_blocks},
          {"passes", trace.prefill.passes + trace.decode.passes}};
}

Json ToJson(const Plan& plan, const Trace& trace, const RunSummary& summary) {
  Json json = Json::object();
  json["version"] = 1;
  if (summary.is_interrupted) json["interrupted"] = true;
  json["model"] = ModelJson(plan);
  json["policy"] = PolicyJson(plan);
  json["machine"] = MachineJson(plan.machine);
  json["workload"] = WorkloadJson(trace, summary);
  if (const auto& resumed = summary.resumed) {
    json["resumed"] = {{"num_completions", resumed->num_completions},
                       {"num_errors", resumed->num_errors}};
  }
  if (summary.sampling) json["sampling"] = SamplingJson(*summary.sampling);
  json["time_s"] = TimeJson(trace, summary);
  json["throughput"] = ThroughputJson(trace, summary);
  json["tiers"] = TiersJson(plan, trace);
  json["placement"] = PlacementJson(plan);
  json["links"] = LinksJson(plan, trace);
  json["work"] = WorkJson(plan, trace);
  json["phases"] = {{"prefill", PhaseJson(trace.prefill)}, {"decode", PhaseJson(trace.decode)}};
  json["kv"] = KvJson(plan, trace);
  json["block"] = BlockJson(plan, trace);
  json["predicted"] = PredictionJson(summary);
  json["prediction_error"] = PredictionErrorJson(summary.predicted, trace);
  json["fingerprint"] = summary.fingerprint.empty() ? Json() : Json(summary.fingerprint);
  if (summary.quality) json["quality"] = QualityJson(*summary.quality);
  if (summary.score) json["score"] = ScoreJson(summary, trace);
  return json;
}

// Null for every value, the keys kept.
void ClearValues(Json& json) {
  if (!json.is_object()) {
    json = nullptr;
    return;
  }
  for (Json& value : json) ClearValues(value);
}

}  // namespace

std::string ReportJson(const Plan& plan, const Trace& trace, const RunSummary& summary) {
  return JsonFileText(ToJson(plan, trace, summary));
}

std::string PlanJson(const Plan& plan, const Workload& work,
                     const std::optional<Prediction>& predicted,
                     const std::optional<SamplingSummary>& sampling) {
  RunSummary summary;
  summary.predicted = predicted;
  summary.sampling = sampling;
  Json json = ToJson(plan, {}, summary);
  for (const char* measured : {"workload", "time_s", "throughput", "links", "work", "phases",
                               "prediction_error", "fingerprint"}) {
    ClearValues(json[measured]);
  }
  json["workload"]["num_requests"] = work.num_requests;
  for (Json& tier : json["tiers"]) tier["peak_bytes"] = nullptr;
  const KvKeep keep = plan.MostRunKeep(plan.longest.slots());
  json["kv"]["heavy"] = keep.heavy;
  json["kv"]["recent"] = keep.recent;
  json["kv"]["sinks"] = keep.sinks;
  json["kv"]["slots_per_row"] = plan.MostHeadSlots(plan.longest.slots());
  json["kv"]["bytes"] = plan.KvBytes();
  json["block"]["num_blocks"] = json["block"]["passes"] = nullptr;
  return JsonFileText(json);
}

}  // namespace spillway
