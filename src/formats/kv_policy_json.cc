#include "src/formats/kv_policy_json.h"

#include <nlohmann/json.hpp>

namespace spillway {
namespace {

using Json = nlohmann::ordered_json;

Json AmountJson(const TokenAmount& amount) {
  return amount.frac != 0.0 ? Json{{"frac", amount.frac}} : Json{{"tokens", amount.tokens}};
}

Json BudgetJson(const KvBudget& budget) {
  Json json;
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

}  // namespace

nlohmann::ordered_json KvPolicyJson(const KvPolicy& kv) {
  Json json;
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
  return json;
}

nlohmann::ordered_json KvBitsJson(KvBits bits) {
  if (bits.key == bits.value) return bits.key;
  return Json::array({bits.key, bits.value});
}

}  // namespace spillway
