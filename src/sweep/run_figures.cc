#include "src/sweep/run_figures.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <string_view>

#include "spillway/tier.h"  // Link
#include "src/sweep/point_names.h"

namespace spillway {
namespace {

using Json = nlohmann::ordered_json;

// A value of a report, wherever a file that people may have edited has one.
const Json& At(const Json& report, const std::string& pointer) {
  static const Json none;
  const Json::json_pointer place(pointer);
  return report.contains(place) ? report.at(place) : none;
}

double NumberAt(const Json& report, const std::string& pointer) {
  const Json& value = At(report, pointer);
  return value.is_number() ? value.get<double>() : 0.0;
}

std::string TextAt(const Json& report, const std::string& pointer) {
  const Json& value = At(report, pointer);
  return value.is_string() ? value.get<std::string>() : "";
}

std::string AmountText(const Json& amount) {
  if (amount.contains("frac")) return fmt::format("{:.4g} %", 100.0 * NumberAt(amount, "/frac"));
  return fmt::format("{:.0f}", NumberAt(amount, "/tokens"));
}

std::string BudgetText(const Json& budget) {
  if (budget.contains("kept") && budget.size() == 1) return AmountText(budget["kept"]);
  std::string text;
  for (const auto& [part, amount] : budget.items()) {
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", AmountText(amount), part);
  }
  return text;
}

// Bits in words; empty for 16.
std::string BitsText(const char* what, const std::string& bits) {
  return bits == "16" ? "" : fmt::format(", {}-bit {}", bits, what);
}

// "8", or "8,4" where those of K and V differ; from the report's policy.
std::string KvBitsIn(const Json& report) {
  const Json& bits = At(report, "/policy/kv_bits");
  if (!bits.is_array()) return fmt::format("{:.0f}", NumberAt(report, "/policy/kv_bits"));
  return fmt::format("{:.0f},{:.0f}", NumberAt(bits, "/0"), NumberAt(bits, "/1"));
}

// Bits of an element of K and V together, in the mean.
double MeanKvBits(const Json& report) {
  const Json& bits = At(report, "/policy/kv_bits");
  if (!bits.is_array()) return NumberAt(report, "/policy/kv_bits");
  return (NumberAt(bits, "/0") + NumberAt(bits, "/1")) / 2.0;
}

// ", 4-bit weights"; empty for 16, and for the codes of a checkpoint, of which a policy states
// none.
std::string WeightsText(const Json& report) {
  const Json& bits = At(report, "/policy/weight_bits");
  return bits.is_number() ? BitsText("weights", fmt::format("{:.0f}", bits.get<double>())) : "";
}

double WeightBits(const Json& report) {
  const Json& bits = At(report, "/policy/weight_bits");
  if (bits.is_number()) return bits.get<double>();
  const double parameters = NumberAt(report, "/model/num_parameters");
  return parameters > 0.0 ? 8.0 * NumberAt(report, "/model/weight_bytes") / parameters : 0.0;
}

// "h2o 20 %", from the report's policy.
std::string KvText(const Json& report) {
  const Json& kv = At(report, "/policy/kv");
  std::string text = TextAt(kv, "/policy");
  if (kv.contains("layer_budgets")) text += " per layer";
  if (kv.contains("head_budgets")) text += " per KV head";
  if (kv.contains("budget")) text += fmt::format(" {}", BudgetText(kv["budget"]));
  if (NumberAt(kv, "/num_sinks") > 0) text += fmt::format(" + {:.0f}", NumberAt(kv, "/num_sinks"));
  return text + BitsText("KV", KvBitsIn(report)) + WeightsText(report);
}

// Setting in words as reports have it: "20%" becomes "20 %".
std::string SettingText(const std::string& value) {
  return value.ends_with('%') ? fmt::format("{} %", value.substr(0, value.size() - 1)) : value;
}

// KV policy in words for a point that has no report, spelt as for those that have one.
std::string KvText(const SweepPoint& point) {
  std::string text = point.Setting("kv-policy", "full");
  for (const auto& [flag, value] : point.settings) {
    const bool is_part = flag == "kv-heavy" || flag == "kv-recent" || flag == "kv-dtype";
    if (is_part) text += fmt::format(" {} {}", flag, SettingText(value));
  }
  const bool in_parts = point.settings.contains("kv-heavy") || point.settings.contains("kv-recent");
  if (text != "full" && !in_parts)
    text += fmt::format(" {}", SettingText(point.Setting("kv-budget", "20%")));
  if (const std::string sinks = point.Setting("kv-sinks", "0"); sinks != "0")
    text += fmt::format(" + {}", sinks);
  for (const auto& [flag, what] :
       {std::pair("kv-bits", "KV"), std::pair("weight-bits", "weights")}) {
    if (const std::string bits = point.Setting(flag, "16"); bits != "16")
      text += fmt::format(", {}-bit {}", bits, what);
  }
  return text;
}

std::string LengthsText(const Json& report) {
  const double rows = NumberAt(report, "/workload/num_requests");
  if (rows <= 0.0) return "";
  return fmt::format("{:.0f} + {:.0f}", NumberAt(report, "/workload/prompt_tokens") / rows,
                     NumberAt(report, "/workload/generated_tokens") / rows);
}

struct Level {
  std::string name;
  double bytes = 0.0;
  double bytes_per_s = 0.0;

  double busy_s() const { return bytes_per_s > 0.0 ? bytes / bytes_per_s : 0.0; }
};

// Bytes that decoding reads of the device's memory, and moves over each link.
std::vector<Level> LevelsOf(const Json& report) {
  std::vector<Level> levels = {{"memory", NumberAt(report, "/work/decode_memory_bytes"),
                                NumberAt(report, "/machine/memory_bytes_per_s")}};
  for (const Link link : kAllLinks) {
    const std::string name(LinkName(link));
    levels.push_back({name, NumberAt(report, "/phases/decode/links/" + name + "/bytes"),
                      NumberAt(report, "/links/" + name + "/peak_bytes_per_s")});
  }
  return levels;
}

std::optional<RoofPoint> RoofOf(const Json& report) {
  const double flops = NumberAt(report, "/work/decode_flops");
  const double decode_s = NumberAt(report, "/time_s/decode");
  const double peak = NumberAt(report, "/machine/matmul_flops_per_s");
  const std::vector<Level> levels = LevelsOf(report);
  const Level& busiest = *std::ranges::max_element(levels, {}, &Level::busy_s);
  if (flops <= 0.0 || decode_s <= 0.0 || peak <= 0.0 || busiest.busy_s() <= 0.0)
    return std::nullopt;
  return RoofPoint{busiest.name, flops / busiest.bytes, flops / decode_s, busiest.bytes_per_s,
                   peak};
}

using Settings = std::map<std::string, std::string>;

// Work of a run, and what it may take for it. Runs whose rates are compared with each other are
// alike in all of it, whatever they hold weights and KV in.
struct Work {
  std::string model;
  std::string machine;
  std::string lengths;
  bool simulated = false;
  Settings settings;  // caps, placement, threads and whatever else the point sets

  auto operator<=>(const Work&) const = default;
};

// Settings that make another run of the same work: how weights and KV are held, and the block.
bool IsOfTheRun(const std::string& flag) {
  constexpr std::array<std::string_view, 14> kFlags = {
      "kv-policy",      "kv-budget",       "kv-heavy",      "kv-recent",   "kv-sinks",
      "kv-bits",        "kv-dtype",        "rolling",       "weight-bits", "policy",
      "gpu-batch-size", "num-gpu-batches", "prefill-chunk", "num-requests"};
  return std::ranges::find(kFlags, flag) != kFlags.end();
}

Work WorkOf(const PointResult& result) {
  Settings settings = result.point.settings;
  std::erase_if(settings, [](const auto& setting) { return IsOfTheRun(setting.first); });
  return {TextAt(result.report, "/model/name"), TextAt(result.report, "/machine/name"),
          LengthsText(result.report), result.point.verb == Verb::kSimulate, std::move(settings)};
}

Work WherePlacedOtherwise(Work work) {
  work.settings.erase("percent");
  return work;
}

double TokensPerS(const PointResult& result) {
  return NumberAt(result.report, "/throughput/generated_tokens_per_s");
}

// Bits of the run that the others are compared with: one that keeps all KV, with KV and weights in
// the most bits that the sweep has for this work. Zero where some KV is evicted.
double BaselineBits(const PointResult& result) {
  if (result.fault || TextAt(result.report, "/policy/kv/policy") != "full") return 0.0;
  return MeanKvBits(result.report) * WeightBits(result.report);
}

struct Baseline {
  double bits = 0.0;
  double tokens_per_s = 0.0;  // of the fastest
};

using Baselines = std::map<Work, Baseline>;

// Baselines of each placement, and of all placements of a work.
Baselines BaselinesOf(const std::vector<PointResult>& results) {
  Baselines baselines;
  for (const PointResult& result : results) {
    const double bits = BaselineBits(result);
    if (bits == 0.0) continue;
    for (const Work& work : {WorkOf(result), WherePlacedOtherwise(WorkOf(result))}) {
      Baseline& baseline = baselines[work];
      if (bits < baseline.bits) continue;
      const double before = bits > baseline.bits ? 0.0 : baseline.tokens_per_s;
      baseline = {bits, std::max(before, TokensPerS(result))};
    }
  }
  return baselines;
}

// A placement that no run of all KV has is compared with those that have another.
std::optional<double> Speedup(const PointResult& result, const Baselines& baselines) {
  const Work work = WorkOf(result);
  for (const Work& of : {work, WherePlacedOtherwise(work)}) {
    const auto found = baselines.find(of);
    if (found != baselines.end() && found->second.tokens_per_s > 0.0)
      return TokensPerS(result) / found->second.tokens_per_s;
  }
  return std::nullopt;
}

// A sweep that varies nothing but KV is of one model and one pair of lengths.
void AddNames(const std::vector<PointResult>& results, const std::vector<std::string>& varied,
              std::vector<RunFigures>& all) {
  std::vector<SweepPoint> points;
  std::vector<std::string> kv;
  for (std::size_t at = 0; at < all.size(); ++at) {
    points.push_back(results[at].point);
    kv.push_back(all[at].kv);
  }
  std::vector<std::string> names = PointNames(points, kv, varied);
  for (std::size_t at = 0; at < all.size(); ++at) {
    all[at].name = std::move(names[at]);
    if (!all[at].name.empty() || results[at].fault) continue;
    const Work work = WorkOf(results[at]);
    all[at].name = work.model + ", " + work.lengths;
  }
}

}  // namespace

std::vector<RunFigures> FiguresOf(const std::vector<PointResult>& results,
                                  const std::vector<std::string>& varied) {
  const Baselines baselines = BaselinesOf(results);
  std::vector<RunFigures> all;
  for (const PointResult& result : results) {
    RunFigures& figures = all.emplace_back();
    figures.kv = result.fault ? KvText(result.point) : KvText(result.report);
    if (result.fault) continue;
    figures.roof = RoofOf(result.report);
    figures.speedup = Speedup(result, baselines);
  }
  AddNames(results, varied, all);
  return all;
}

}  // namespace spillway
