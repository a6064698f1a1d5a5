#include "src/formats/kv_policy_json.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>

#include "policies/search/given_policy.h"    // kMaxTokens
#include "policies/search/storage_choice.h"  // kStoredBits
#include "src/base/json_node.h"

namespace spillway {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t kMaxLayers = 10'000;

Json AmountJson(const TokenAmount& amount) {
  return amount.frac != 0.0 ? Json{{"frac", amount.frac}} : Json{{"tokens", amount.tokens}};
}

Json BudgetJson(const KvBudget& budget) {
  Json json = Json::object();
  if (!budget.heavy || !budget.recent) json["kept"] = AmountJson(budget.kept);
  if (budget.heavy) json["heavy"] = AmountJson(*budget.heavy);
  if (budget.recent) json["recent"] = AmountJson(*budget.recent);
  return json;
}

// [layer][kv_head], a share as a number.
Json HeadBudgetsJson(const std::vector<std::vector<KvBudget>>& layers) {
  Json json = Json::array();
  for (const std::vector<KvBudget>& heads : layers) {
    Json row = Json::array();
    for (const KvBudget& budget : heads) {
      const bool is_share = !budget.heavy && !budget.recent && budget.kept.frac != 0.0;
      row.push_back(is_share ? Json(budget.kept.frac) : BudgetJson(budget));
    }
    json.push_back(std::move(row));
  }
  return json;
}

TokenAmount ReadAmount(const JsonNode& node, int64_t least) {
  node.ExpectKeys({"frac", "tokens"});
  const auto frac = node.Find("frac");
  const auto tokens = node.Find("tokens");
  if (frac.has_value() == tokens.has_value()) node.Refuse("must have either frac or tokens");
  if (tokens) return {0.0, tokens->Integer({least, kMaxTokens})};
  const double share = frac->Number(0.0, 1.0);
  if (share == 0.0) frac->Refuse("is 0, must be more");
  return {share, 0};
}

void RefuseFault(const JsonNode& node, KvBudgetFault fault) {
  switch (fault) {
    case KvBudgetFault::kNone:
      return;
    case KvBudgetFault::kHeavyInWindow:
      node.Refuse("has heavy, and a window keeps no heavy hitters");
    case KvBudgetFault::kHeavyTakesAll:
      node.Refuse("has a heavy that leaves no recent token in kept");
    case KvBudgetFault::kRecentIsMore:
      node.Refuse("has a recent of more than kept");
    case KvBudgetFault::kSinksTakeAll:
      node.Refuse("leaves no recent token beside num_sinks");
  }
}

// A budget of such a policy, which evicts.
KvBudget ReadBudget(const JsonNode& node, const KvPolicy& kv) {
  node.ExpectKeys({"kept", "heavy", "recent"});
  KvBudget budget;
  if (const auto heavy = node.Find("heavy")) budget.heavy = ReadAmount(*heavy, 0);
  if (const auto recent = node.Find("recent")) budget.recent = ReadAmount(*recent, 1);
  const bool set_apart = budget.heavy && budget.recent;
  if (set_apart && node.Find("kept")) node.Refuse("has kept beside heavy and recent; give two");
  if (!set_apart) budget.kept = ReadAmount(node.Member("kept"), 1);
  RefuseFault(node, FaultOf(budget, kv));
  return budget;
}

KvPolicyKind ReadKind(const JsonNode& node) {
  const std::string name = node.Text();
  for (const KvPolicyKind kind : kAllKvPolicyKinds) {
    if (name == KvPolicyName(kind)) return kind;
  }
  node.Refuse(
      fmt::format("is \"{}\", must be full, h2o, window or h2o-flexgen", Printable(name, 40)));
}

// Items for each of 1 to kMaxLayers layers.
JsonItems LayersOf(const JsonNode& node, std::string_view what) {
  const JsonItems layers = node.Items();
  if (node.value().empty() || node.value().size() > kMaxLayers)
    node.Refuse(fmt::format("must have {} for each of 1 to {} layers", what, kMaxLayers));
  return layers;
}

// A share as a number, or a budget.
KvBudget ReadHeadBudget(const JsonNode& node, const KvPolicy& kv) {
  if (!node.value().is_number()) return ReadBudget(node, kv);
  const double share = node.Number(0.0, 1.0);
  if (share == 0.0) node.Refuse("is 0, must be more");
  return {{share, 0}, {}, {}};
}

std::vector<std::vector<KvBudget>> ReadHeadBudgets(const JsonNode& node, const KvPolicy& kv) {
  std::vector<std::vector<KvBudget>> budgets;
  for (const JsonNode& layer : LayersOf(node, "a list of budgets")) {
    std::vector<KvBudget>& heads = budgets.emplace_back();
    for (const JsonNode& head : layer.Items()) heads.push_back(ReadHeadBudget(head, kv));
    if (heads.empty() || heads.size() != budgets.front().size())
      layer.Refuse("must have a budget for each KV head, as many as the first layer");
  }
  return budgets;
}

}  // namespace

nlohmann::ordered_json KvPolicyJson(const KvPolicy& kv) {
  Json json = Json::object();
  json["policy"] = KvPolicyName(kv.kind);
  if (!kv.evicts()) return json;
  if (!kv.head_budgets.empty()) {
    json["head_budgets"] = HeadBudgetsJson(kv.head_budgets);
  } else if (kv.layer_budgets.empty()) {
    json["budget"] = BudgetJson(kv.budget);
  } else {
    for (const KvBudget& budget : kv.layer_budgets)
      json["layer_budgets"].push_back(BudgetJson(budget));
  }
  if (kv.kind == KvPolicyKind::kWindow) json["num_sinks"] = kv.num_sinks;
  if (kv.rolls) json["rolling"] = true;
  return json;
}

nlohmann::ordered_json KvBitsJson(KvBits bits) {
  if (bits.key == bits.value) return bits.key;
  return Json::array({bits.key, bits.value});
}

KvPolicy ReadKvPolicy(const JsonNode& node) {
  node.ExpectKeys({"policy", "budget", "layer_budgets", "head_budgets", "num_sinks", "rolling"});
  KvPolicy kv;
  kv.kind = ReadKind(node.Member("policy"));
  const auto of_heads = node.Find("head_budgets");
  const auto of_layers = node.Find("layer_budgets");
  const auto budget = node.Find("budget");
  const int given = of_heads.has_value() + of_layers.has_value() + budget.has_value();
  if (!kv.evicts() && given > 0) node.Refuse("has a budget, but keeps every token");
  if (kv.evicts() && given != 1)
    node.Refuse("must have either budget, layer_budgets or head_budgets");
  if (of_heads && kv.kind != KvPolicyKind::kH2o) of_heads->Refuse("belongs to the h2o policy");
  if (const auto sinks = node.Find("num_sinks")) {
    if (kv.kind != KvPolicyKind::kWindow) sinks->Refuse("belongs to the window policy");
    kv.num_sinks = sinks->Integer({0, kMaxTokens});
  }
  if (budget) kv.budget = ReadBudget(*budget, kv);
  if (of_layers) {
    for (const JsonNode& item : LayersOf(*of_layers, "one budget"))
      kv.layer_budgets.push_back(ReadBudget(item, kv));
  }
  if (of_heads) kv.head_budgets = ReadHeadBudgets(*of_heads, kv);
  if (const auto rolling = node.Find("rolling")) {
    if (!kv.evicts()) rolling->Refuse("belongs to a policy that evicts");
    kv.rolls = rolling->Boolean();
  }
  return kv;
}

int ReadBits(const JsonNode& node) {
  const int64_t bits = node.Integer({1, 16});
  if (std::ranges::find(kStoredBits, bits) == kStoredBits.end()) {
    node.Refuse(fmt::format("is {}, must be 16, 8 or 4", bits));
  }
  return static_cast<int>(bits);
}

KvBits ReadKvBits(const JsonNode& node) {
  if (!node.value().is_array()) return ReadBits(node);
  if (node.value().size() != 2) node.Refuse("must be one number, or those of K and V: [8, 4]");
  std::vector<int> bits;
  for (const JsonNode& item : node.Items()) bits.push_back(ReadBits(item));
  return {bits[0], bits[1]};
}

}  // namespace spillway
