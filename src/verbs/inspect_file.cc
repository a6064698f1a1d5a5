#include "src/verbs/inspect_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <fstream>
#include <optional>

#include "spillway/error.h"
#include "src/base/json_node.h"
#include "src/base/report_kind.h"
#include "src/base/size_text.h"
#include "src/base/strict_json.h"
#include "src/formats/calibration_report.h"
#include "src/formats/machine_file.h"
#include "src/formats/policy_file.h"
#include "src/report/trace_summary.h"
#include "src/verbs/inspect_row.h"
#include "src/verbs/inspect_run.h"

namespace spillway {
namespace {

using nlohmann::json;
using Path = std::filesystem::path;

// "22 TFLOP/s", "13.8 GB/s".
std::string RateText(double per_s, std::string_view unit) {
  return per_s >= 1e12 ? fmt::format("{:.4g} T{}", per_s / 1e12, unit)
                       : fmt::format("{:.4g} G{}", per_s / 1e9, unit);
}

std::string RatesText(std::string_view name, const DeviceRates& rates) {
  if (rates.matmul.empty()) return "";
  std::string text = fmt::format(
      "{:<11} memory {}, attention prefill {}, decode {}, launch {:.3g} us\n{:<11} matmul", name,
      RateText(rates.memory_bytes_per_s, "B/s"),
      RateText(rates.prefill_attention_flops_per_s, "FLOP/s"),
      RateText(rates.decode_attention_bytes_per_s, "B/s"), rates.launch_s * 1e6, "");
  for (const MatmulRate& rate : rates.matmul) {
    text += fmt::format("{} {} at {} {}", &rate == rates.matmul.data() ? "" : ",",
                        RateText(rate.flops_per_s, "FLOP/s"), rate.rows,
                        rate.rows == 1 ? "row" : "rows");
  }
  return text + '\n';
}

std::string SharesText(std::string_view name, const PerTier<double>& frac) {
  return fmt::format("{:<11} gpu {:.4g} %, cpu {:.4g} %, disk {:.4g} %\n", name,
                     100.0 * frac[Tier::kGpu], 100.0 * frac[Tier::kCpu], 100.0 * frac[Tier::kDisk]);
}

std::string KvText(const KvPolicy& kv) {
  std::string text = fmt::format("kv policy   {}", KvPolicyName(kv.kind));
  const auto kept = [](const KvBudget& budget) {
    if (budget.heavy && budget.recent) return std::string("parts");
    return budget.kept.frac != 0.0 ? fmt::format("{:.4g}%", 100.0 * budget.kept.frac)
                                   : fmt::format("{}", budget.kept.tokens);
  };
  if (kv.evicts() && kv.layer_budgets.empty() && kv.head_budgets.empty())
    text += fmt::format(", keeps {}", kept(kv.budget));
  if (kv.rolls) text += ", rolling";
  for (const KvBudget& budget : kv.layer_budgets) text += fmt::format(" {}", kept(budget));
  for (const std::vector<KvBudget>& heads : kv.head_budgets) {
    text += fmt::format("\n  layer {:<4}", &heads - kv.head_budgets.data());
    for (const KvBudget& budget : heads) text += fmt::format(" {:>6}", kept(budget));
  }
  text += '\n';
  return text;
}

std::string DescribePolicy(const Path& file, const json& document) {
  const GivenPolicy policy = ReadPolicy(file);
  std::string text = "policy\n";
  if (policy.placement) {
    text += SharesText("weights", policy.placement->weights);
    text += SharesText("kv", policy.placement->kv);
    text += SharesText("activations", policy.placement->activations);
  }
  if (policy.gpu_batch_size) text += fmt::format("rows        {}\n", *policy.gpu_batch_size);
  if (policy.num_gpu_batches) text += fmt::format("batches     {}\n", *policy.num_gpu_batches);
  if (policy.cpu_attention)
    text += fmt::format("attention   on the {}\n",
                        *policy.cpu_attention ? "CPU for KV there" : "device");
  if (policy.weight_bits) text += fmt::format("weight bits {}\n", *policy.weight_bits);
  if (policy.kv_bits) text += fmt::format("kv bits     {}\n", KvBitsText(*policy.kv_bits));
  if (policy.kv) text += KvText(*policy.kv);
  for (const json& source : document.value("sources", json::array()))
    text += InspectRow("from", Printable(source.get<std::string>(), 400));
  return text;
}

std::string DescribeMachine(const Path& file) {
  const Machine machine = ReadMachine(file);
  std::string text =
      fmt::format("machine     {}, computes on {}, {} threads{}{}\n", Printable(machine.name),
                  TierName(machine.device), machine.num_threads, machine.isa.empty() ? "" : ", ",
                  Printable(machine.isa, 20));
  text += "caps       ";
  for (const Tier tier : kAllTiers)
    text += fmt::format(" {} {}", TierName(tier), SizeText(machine.cap_bytes[tier]));
  text += "\nlinks      ";
  for (const Link link : kAllLinks) {
    const double rate = machine.rates.link_bytes_per_s[link];
    if (rate > 0.0) text += fmt::format(" {} {}", LinkName(link), RateText(rate, "B/s"));
  }
  text += '\n' + RatesText("gpu", machine.rates.gpu) + RatesText("cpu", machine.rates.cpu);
  if (machine.flexgen) text += "flexgen     has FlexGen's effective rates\n";
  text += fmt::format("from        {}\n",
                      machine.date.empty() ? "no date" : Printable(machine.date, 40));
  for (const std::string& source : machine.sources)
    text += fmt::format("            {}\n", Printable(source, 400));
  return text;
}

// Reports grow from version to version and are ours to write, so that what is shown is looked up
// and what is missing is left out.
std::string ValueText(const json& value) {
  return value.is_string()         ? Printable(value.get<std::string>())
         : value.is_number_float() ? fmt::format("{:.6g}", value.get<double>())
         : value.is_structured()   ? std::string(value.type_name())
                                   : value.dump();
}

std::string MembersText(std::string_view name, const json& object) {
  std::string text;
  if (!object.is_object()) return text;
  for (const auto& [key, value] : object.items()) {
    if (value.is_structured() || value.is_null()) continue;
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", Printable(key, 40), ValueText(value));
  }
  return text.empty() ? text : InspectRow(name, text);
}

std::string DescribeReport(const json& report) {
  const auto fingerprint = report.find("fingerprint");
  const bool answered = fingerprint != report.end() && fingerprint->is_string() &&
                        !fingerprint->get_ref<const std::string&>().empty();
  const bool ran = answered || report.contains("resumed");  // with nothing left to do
  const json total = report.value(json::json_pointer("/time_s/total"), json());
  const std::string_view kind = ran ? "report" : total.is_number() ? "simulation" : "plan";
  std::string text =
      fmt::format("{:<11} version {}\n", kind, ValueText(report.value("version", json())));
  for (const char* section :
       {"model", "machine", "policy", "workload", "block", "kv", "time_s", "throughput"}) {
    if (const auto found = report.find(section); found != report.end())
      text += MembersText(section, *found);
  }
  const auto tiers = report.find("tiers");
  if (tiers != report.end() && tiers->is_object()) {
    for (const auto& [name, tier] : tiers->items()) text += MembersText(Printable(name, 10), tier);
  }
  if (answered) text += InspectRow("fingerprint", ValueText(*fingerprint));
  return text;
}

[[noreturn]] void RefuseMember(const Path& file, const json& document, std::string_view key,
                               std::string_view what) {
  const JsonOrigin origin = {file.string(), ErrorCode::kInput};
  JsonNode(document, origin).Member(key).Refuse(what, "give the file as spillway wrote it");
}

// Settings of all KV heads that were measured, or of budgets per layer what was found.
std::string DescribeCalibration(const Path& file, const json& report) {
  const json name = report.value(json::json_pointer("/model/name"), json());
  std::string text = InspectRow("calibration", "of " + ValueText(name));
  const json& found = report["calibration"];
  if (!found.is_object()) RefuseMember(file, report, "calibration", "is no object");
  if (!found.contains("tried")) return text + MembersText("found", found);
  text += fmt::format("{:<11} {:>6} {:>7}  {}\n", "KV bits", "bytes", "tokens", "loses at most");
  for (const CalibratedKv& setting : ReadCalibration(file)) {
    double shares = 0.0;
    std::size_t num_heads = 0;
    for (const std::vector<KvBudget>& layer : setting.kv.head_budgets) {
      for (const KvBudget& head : layer) shares += head.kept.frac;
      num_heads += layer.size();
    }
    const double kept = num_heads == 0 ? 1.0 : shares / static_cast<double>(num_heads);
    text += fmt::format("{:<11} {:>4.1f} % {:>5.1f} %  {:.2f} % of perplexity\n",
                        KvBitsText(setting.bits), 100.0 * setting.bytes_frac, 100.0 * kept,
                        100.0 * std::expm1(setting.loss));
  }
  return text;
}

// What calibrate keeps to go on from.
std::string DescribeCosts(const Path& file, const json& document) {
  if (!document["costs"].is_array()) RefuseMember(file, document, "costs", "is no list");
  return InspectRow("costs", fmt::format("{} of KV heads and layers, for a calibrate that goes on",
                                         document["costs"].size()));
}

[[noreturn]] void RefuseKind(const Path& file) {
  throw Error(ErrorCode::kInput,
              fmt::format("{}: is no policy file, machine file, report, trace, requests or output; "
                          "give one of them, or the folder of a model or store",
                          Printable(file.string())));
}

// What no document of ours is like: too large, or without the brace that each begins with.
bool IsOtherThanDocument(const Path& file) {
  constexpr std::uintmax_t kMostBytes = 1 << 20;
  std::error_code ignored;
  const std::uintmax_t size = std::filesystem::file_size(file, ignored);
  char first = '{';
  std::ifstream(file, std::ios::binary) >> first;
  return size > kMostBytes || first != '{';
}

}  // namespace

std::string DescribeFile(const Path& file) {
  if (LooksLikeTrace(file)) return DescribeTrace(file);
  if (std::optional<std::string> text = DescribeRunFile(file)) return *std::move(text);
  std::error_code ignored;
  if (std::filesystem::is_empty(file, ignored))
    throw Error(ErrorCode::kInput,
                fmt::format("{}: is empty; there is nothing to tell", Printable(file.string())));
  if (IsOtherThanDocument(file)) RefuseKind(file);
  const json document = ReadJsonFile(file, {file.string(), ErrorCode::kInput});
  const std::optional<ReportKind> kind = KindOf(document);
  if (kind == ReportKind::kMachine) return DescribeMachine(file);
  if (kind == ReportKind::kPolicy) return DescribePolicy(file, document);
  if (kind == ReportKind::kCosts) return DescribeCosts(file, document);
  if (kind != ReportKind::kReport) RefuseKind(file);
  if (document.contains("throughput")) return DescribeReport(document);
  if (document.contains("calibration")) return DescribeCalibration(file, document);
  RefuseKind(file);
}

}  // namespace spillway
