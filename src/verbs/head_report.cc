#include "src/verbs/head_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "src/base/json_text.h"
#include "src/formats/kv_policy_json.h"
#include "src/verbs/calibrate_stages.h"

namespace spillway {
namespace {

using Json = nlohmann::ordered_json;

std::string LossText(const SetLoss& set) {
  return fmt::format("{:+.2f} % ({})", 100.0 * std::expm1(set.loss),
                     set.loss_error ? fmt::format("standard error {:.2f}", 100.0 * *set.loss_error)
                                    : std::string("of one window"));
}

}  // namespace

HeadReport::HeadReport(const Config& flags, const ModelShape& shape, const HeadFindings& found,
                       int64_t row_tokens, std::map<WindowSet, int64_t> prompts)
    : flags_(flags),
      shape_(shape),
      found_(found),
      row_tokens_(row_tokens),
      prompts_(std::move(prompts)) {}

KvPolicy HeadReport::FoundKv(const JointLoss& joint) const {
  const bool keeps_all = std::ranges::all_of(joint.shares, [](const std::vector<double>& heads) {
    return std::ranges::all_of(heads, [](double share) { return share >= 1.0; });
  });
  return keeps_all ? KvPolicy{} : KvWith(flags_, joint.shares);
}

std::string HeadReport::SetLines() const {
  std::string text;
  for (const SetLoss& set : found_.joint.sets) {
    text += fmt::format(
        "perplexity {:.3f} after prompts of {} tokens, {:.3f} with the full cache of 16 bits: "
        "{}; "
        "divergence {:.4f} nats a token\n",
        std::exp(set.full + set.loss), prompts_.at(set.set), std::exp(set.full), LossText(set),
        set.divergence);
  }
  return text;
}

std::string HeadReport::ParetoLines() const {
  if (!flags_.pareto) return "";
  // The loss is what a bound holds and search shows: the worst of the others and of divergences.
  std::string text = "  KV bits  bytes  tokens    loss  perplexity";
  for (const SetLoss& set : found_.joint.sets)
    text += fmt::format("  after {} tokens", prompts_.at(set.set));
  text += "\n";
  for (const JointLoss& joint : found_.tried) {
    text +=
        fmt::format("  {:<7}{:>5.1f} %{:>6.1f} %{:>6.2f} %", KvBitsText(joint.kv_bits),
                    100.0 * joint.bytes, 100.0 * KeptOf(joint), 100.0 * std::expm1(joint.worst()));
    for (const SetLoss& set : joint.sets) text += "  " + LossText(set);
    text += joint.bytes == found_.joint.bytes && joint.kv_bits == found_.joint.kv_bits
                ? "  <- the file's\n"
                : "\n";
  }
  return text;
}

double HeadReport::KeptOf(const JointLoss& joint) const {
  return KeptOfAll(KvWith(flags_, joint.shares), shape_, row_tokens_);
}

std::string HeadReport::Summary() const {
  std::string losses;
  for (const SetLoss& set : found_.joint.sets)
    losses += fmt::format("{}{}", losses.empty() ? "" : " and ", LossText(set));
  return fmt::format(
      "KV of {} bits, {} of the tokens, {} of a full cache's bytes in 16 bits; "
      "perplexity {}",
      KvBitsText(found_.joint.kv_bits), Percent(KeptOf(found_.joint)), Percent(found_.joint.bytes),
      losses);
}

bool HeadReport::IsWithinBound() const {
  return flags_.kv_bytes_frac || found_.joint.worst() <= std::log1p(flags_.max_loss_frac);
}

std::vector<std::string> HeadReport::Warnings() const {
  std::vector<std::string> warnings;
  const JointLoss& joint = found_.joint;
  if (!IsWithinBound()) {
    warnings.push_back(fmt::format(
        "nothing is within --max-loss {}: {} in {} bits lose {} already; the file keeps them",
        ShortPercent(flags_.max_loss_frac),
        KeptOf(joint) == 1.0 ? "all tokens" : ShortPercent(joint.bytes) + " of the bytes",
        KvBitsText(joint.kv_bits), ShortPercent(std::expm1(joint.worst()))));
  }
  if (!flags_.kv_bytes_frac || KeptOf(joint) < 1.0) return warnings;
  warnings.push_back(fmt::format(
      "--kv-bytes {}: all tokens in {} bits take {}; the file keeps them all",
      ShortPercent(*flags_.kv_bytes_frac), KvBitsText(joint.kv_bits), ShortPercent(joint.bytes)));
  return warnings;
}

nlohmann::ordered_json HeadReport::LossJson(const JointLoss& joint) const {
  Json json = Json::object();
  json["kv_frac"] = KeptOf(joint);
  json["bytes_frac"] = joint.bytes;
  Json& prompts = json["prompts"] = Json::array();
  for (const SetLoss& set : joint.sets) {
    prompts.push_back({{"prompt_tokens", prompts_.at(set.set)},
                       {"scored_tokens", set.num_tokens},
                       {"perplexity_full", std::exp(set.full)},
                       {"perplexity", std::exp(set.full + set.loss)},
                       {"loss", set.loss},
                       {"loss_error", set.loss_error ? Json(*set.loss_error) : Json(nullptr)},
                       {"divergence", set.divergence}});
  }
  return json;
}

std::string HeadReport::JsonText(const Plan& plan) const {
  Json json = HeadOfReport(plan, FoundKv(found_.joint));
  json["policy"]["kv_bits"] = KvBitsJson(found_.joint.kv_bits);
  Json& out = json["calibration"];
  out = LossJson(found_.joint);
  out["within_bound"] = IsWithinBound();
  for (const JointLoss& joint : found_.tried) {
    Json& tried = out["tried"].emplace_back(LossJson(joint));
    tried["kv_bits"] = KvBitsJson(joint.kv_bits);
    tried["kv"] = KvPolicyJson(FoundKv(joint));
  }
  out["alone_kept_frac"] = kAloneShare;
  out["alone_divergence"] = found_.costs;
  out["exponents"] = found_.exponents;
  return JsonFileText(json);
}

std::string HeadReport::Text() const { return ParetoLines() + SetLines() + Summary() + "\n"; }

}  // namespace spillway
