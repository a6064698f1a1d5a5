#include "spillway/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <tuple>

#include "src/size_text.h"

namespace spillway {
namespace {

using Json = nlohmann::ordered_json;

double Rate(int64_t count, double seconds) {
  return seconds > 0.0 ? static_cast<double>(count) / seconds : 0.0;
}

double GeneratedRate(const Trace& trace) {
  return Rate(trace.prefill.generated_tokens + trace.decode.generated_tokens,
              trace.prefill.seconds + trace.decode.seconds);
}

Json PerTierJson(const PerTier<double>& values) {
  Json json;
  for (const Tier tier : kAllTiers) json[std::string(TierName(tier))] = values[tier];
  return json;
}

// The share of each tier as the plan placed the bytes.
PerTier<double> RealisedWeights(const Plan& plan) {
  PerTier<double> share;
  int64_t total = 0;
  for (const Tier tier : kAllTiers) total += plan.weight_bytes[tier];
  for (const Tier tier : kAllTiers) {
    share[tier] = total == 0
                      ? 0.0
                      : static_cast<double>(plan.weight_bytes[tier]) / static_cast<double>(total);
  }
  return share;
}

int64_t LargestTileBytes(const Plan& plan) {
  int64_t bytes = 0;
  for (const PlannedLayer& layer : plan.layers) {
    for (const PlannedTensor& tensor : layer.tensors) {
      for (const WeightTile& tile : tensor.tiles) {
        bytes = std::max(bytes, (tile.row_end - tile.row_begin) * tensor.spec.cols *
                                    DTypeBytes(tensor.spec.dtype));
      }
    }
  }
  return bytes;
}

Json TiersJson(const Plan& plan, const Trace& trace) {
  Json json;
  for (const Tier tier : kAllTiers) {
    json[std::string(TierName(tier))] = {{"cap_bytes", plan.machine.cap_bytes[tier]},
                                         {"planned_peak_bytes", plan.arena_bytes[tier]},
                                         {"peak_bytes", trace.peak_bytes[tier]}};
  }
  return json;
}

// No byte crosses a link while everything is used in place.
Json LinksJson() {
  Json json;
  for (const char* link : {"disk_read", "disk_write", "cpu_to_gpu", "gpu_to_cpu"}) {
    json[link] = {
        {"bytes", 0}, {"busy_s", 0.0}, {"bytes_per_s", nullptr}, {"peak_bytes_per_s", nullptr}};
  }
  return json;
}

Json PlacementJson(const Plan& plan) {
  const PerTier<double> weights = RealisedWeights(plan);
  return {{"weights",
           {{"requested", PerTierJson(plan.policy.weight_frac)},
            {"realised", PerTierJson(weights)},
            {"tile_bytes", LargestTileBytes(plan)}}},
          {"kv",
           {{"requested", PerTierJson(plan.policy.kv_frac)},
            {"realised", PerTierJson(plan.policy.kv_frac)}}},
          {"activations",
           {{"requested", PerTierJson(plan.policy.activation_frac)},
            {"realised", PerTierJson(plan.policy.activation_frac)}}}};
}

int64_t Parameters(const Plan& plan) {
  int64_t count = 0;
  for (const PlannedLayer& layer : plan.layers) {
    for (const PlannedTensor& tensor : layer.tensors) count += tensor.spec.rows * tensor.spec.cols;
  }
  return count;
}

int64_t TotalWeightBytes(const Plan& plan) {
  int64_t bytes = 0;
  for (const Tier tier : kAllTiers) bytes += plan.weight_bytes[tier];
  return bytes;
}

}  // namespace

std::string ReportJson(const Plan& plan, const Trace& trace, const RunSummary& summary) {
  const int64_t generated = trace.prefill.generated_tokens + trace.decode.generated_tokens;
  Json json;
  json["version"] = 1;
  json["model"] = {{"name", plan.shape.name},
                   {"num_parameters", Parameters(plan)},
                   {"weight_bytes", TotalWeightBytes(plan)}};
  json["policy"] = {{"weight_frac", PerTierJson(plan.policy.weight_frac)},
                    {"kv_frac", PerTierJson(plan.policy.kv_frac)},
                    {"activation_frac", PerTierJson(plan.policy.activation_frac)},
                    {"gpu_batch_size", plan.policy.gpu_batch_size},
                    {"num_gpu_batches", plan.policy.num_gpu_batches},
                    {"prefill_chunk", plan.workspace.chunk_tokens},
                    {"weight_bits", 16},
                    {"kv_bits", 16},
                    {"kv_dtype", DTypeName(plan.policy.kv_dtype)}};
  json["machine"] = {{"name", plan.machine.name},
                     {"isa", plan.machine.isa},
                     {"num_threads", plan.machine.num_threads}};
  json["workload"] = {{"num_requests", summary.num_requests},
                      {"prompt_tokens", trace.prefill.prompt_tokens},
                      {"generated_tokens", generated},
                      {"num_completions", summary.num_completions},
                      {"num_errors", summary.num_errors}};
  json["time_s"] = {{"load", trace.load_s},
                    {"prefill", trace.prefill.seconds},
                    {"decode", trace.decode.seconds},
                    {"total", summary.total_s}};
  json["throughput"] = {
      {"prefill_tokens_per_s", Rate(trace.prefill.prompt_tokens, trace.prefill.seconds)},
      {"decode_tokens_per_s", Rate(trace.decode.generated_tokens, trace.decode.seconds)},
      {"generated_tokens_per_s", GeneratedRate(trace)}};
  json["tiers"] = TiersJson(plan, trace);
  json["placement"] = PlacementJson(plan);
  json["links"] = LinksJson();
  json["kv"] = {{"policy", "full"},
                {"heavy", 0},
                {"recent", trace.slots_per_row},
                {"slots_per_row", trace.slots_per_row},
                {"bytes", trace.kv_bytes}};
  json["block"] = {{"gpu_batch_size", plan.policy.gpu_batch_size},
                   {"num_gpu_batches", plan.policy.num_gpu_batches},
                   {"num_blocks", trace.num_blocks},
                   {"passes", trace.prefill.passes + trace.decode.passes}};
  json["predicted"] = {{"prefill_s", nullptr},
                       {"decode_s", nullptr},
                       {"generated_tokens_per_s", nullptr},
                       {"bound_by", nullptr}};
  json["fingerprint"] = summary.fingerprint;
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string ReportTable(const Plan& plan, const Trace& trace, const RunSummary& summary) {
  const auto& [prefill, decode] = std::tie(trace.prefill, trace.decode);
  std::string text;
  const auto line = [&](std::string_view label, const std::string& value) {
    text += fmt::format("  {:<14}{}\n", label, value);
  };
  line("model", fmt::format("{}, {:.1f} M parameters, weights {} in {}", plan.shape.name,
                            static_cast<double>(Parameters(plan)) / 1e6,
                            SizeText(TotalWeightBytes(plan)), DTypeName(plan.shape.dtype)));
  line("machine", fmt::format("{}, {} threads, {}", plan.machine.name, plan.machine.num_threads,
                              plan.machine.isa));
  line("requests",
       fmt::format("{} completions, {} errors", summary.num_completions, summary.num_errors));
  line("block",
       fmt::format("{} rows x {} batches, {} blocks, {} passes", plan.policy.gpu_batch_size,
                   plan.policy.num_gpu_batches, trace.num_blocks, prefill.passes + decode.passes));
  line("prefill", fmt::format("{:.1f} tokens/s  ({} tokens in {:.2f} s)",
                              Rate(prefill.prompt_tokens, prefill.seconds), prefill.prompt_tokens,
                              prefill.seconds));
  line("decode", fmt::format("{:.1f} tokens/s  ({} tokens in {:.2f} s)",
                             Rate(decode.generated_tokens, decode.seconds), decode.generated_tokens,
                             decode.seconds));
  line("generated", fmt::format("{:.1f} tokens/s  (load {:.2f} s, total {:.2f} s)",
                                GeneratedRate(trace), trace.load_s, summary.total_s));
  line("cpu memory", fmt::format("{} planned of {} allowed (weights {}, KV {})",
                                 SizeText(plan.arena_bytes[Tier::kCpu]),
                                 SizeText(plan.machine.cap_bytes[Tier::kCpu]),
                                 SizeText(TotalWeightBytes(plan)), SizeText(plan.kv.bytes)));
  return text;
}

}  // namespace spillway
