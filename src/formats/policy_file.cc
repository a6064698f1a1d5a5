#include "src/formats/policy_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "policies/search/storage_choice.h"  // kStoredBits
#include "src/base/json_node.h"
#include "src/base/json_text.h"
#include "src/formats/kv_policy_json.h"
#include "src/formats/tier_json.h"

namespace spillway {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t kMaxLayers = 10'000;

// Shares that a person writes as decimals sum to 1 only about.
constexpr double kSumTolerance = 1e-6;

PerTier<double> ReadShares(const JsonNode& node) {
  node.ExpectKeys(NamesOf(kAllTiers, TierName));
  PerTier<double> shares;
  double sum = 0.0;
  for (const Tier tier : kAllTiers) {
    shares[tier] = node.Member(TierName(tier)).Number(0.0, 1.0);
    sum += shares[tier];
  }
  if (std::abs(sum - 1.0) > kSumTolerance) {
    node.Refuse(fmt::format("the shares sum to {}, must sum to 1", sum));
  }
  return shares;
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

KvBudget ReadBudget(const JsonNode& node) {
  node.ExpectKeys({"kept", "heavy", "recent"});
  KvBudget budget;
  if (const auto heavy = node.Find("heavy")) budget.heavy = ReadAmount(*heavy, 0);
  if (const auto recent = node.Find("recent")) budget.recent = ReadAmount(*recent, 1);
  const bool set_apart = budget.heavy && budget.recent;
  if (set_apart && node.Find("kept")) node.Refuse("has kept beside heavy and recent; give two");
  if (!set_apart) budget.kept = ReadAmount(node.Member("kept"), 1);
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
KvBudget ReadHeadBudget(const JsonNode& node) {
  if (!node.value().is_number()) return ReadBudget(node);
  const double share = node.Number(0.0, 1.0);
  if (share == 0.0) node.Refuse("is 0, must be more");
  return {{share, 0}, {}, {}};
}

std::vector<std::vector<KvBudget>> ReadHeadBudgets(const JsonNode& node) {
  std::vector<std::vector<KvBudget>> budgets;
  for (const JsonNode& layer : LayersOf(node, "a list of budgets")) {
    std::vector<KvBudget>& heads = budgets.emplace_back();
    for (const JsonNode& head : layer.Items()) heads.push_back(ReadHeadBudget(head));
    if (heads.empty() || heads.size() != budgets.front().size())
      layer.Refuse("must have a budget for each KV head, as many as the first layer");
  }
  return budgets;
}

KvPolicy ReadKv(const JsonNode& node) {
  node.ExpectKeys({"policy", "budget", "layer_budgets", "head_budgets", "num_sinks"});
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
  if (budget) kv.budget = ReadBudget(*budget);
  if (of_layers) {
    for (const JsonNode& item : LayersOf(*of_layers, "one budget"))
      kv.layer_budgets.push_back(ReadBudget(item));
  }
  if (of_heads) kv.head_budgets = ReadHeadBudgets(*of_heads);
  if (const auto sinks = node.Find("num_sinks")) {
    if (kv.kind != KvPolicyKind::kWindow) sinks->Refuse("belongs to the window policy");
    kv.num_sinks = sinks->Integer({0, kMaxTokens});
  }
  return kv;
}

DType ReadKvDType(const JsonNode& node) {
  const std::string name = node.Text();
  for (const DType dtype : {DType::kF16, DType::kBF16}) {
    if (name == DTypeName(dtype)) return dtype;
  }
  node.Refuse(fmt::format("is \"{}\", must be fp16 or bf16", Printable(name, 40)));
}

int ReadBits(const JsonNode& node) {
  const int64_t bits = node.Integer({1, 16});
  if (std::ranges::find(kStoredBits, bits) == kStoredBits.end()) {
    node.Refuse(fmt::format("is {}, must be 16, 8 or 4", bits));
  }
  return static_cast<int>(bits);
}

// One number for K and V, or a list of K's and V's.
KvBits ReadKvBits(const JsonNode& node) {
  if (!node.value().is_array()) return ReadBits(node);
  if (node.value().size() != 2) node.Refuse("must be one number, or those of K and V: [8, 4]");
  std::vector<int> bits;
  for (const JsonNode& item : node.Items()) bits.push_back(ReadBits(item));
  return {bits[0], bits[1]};
}

// All three kinds of shares, or none.
std::optional<Placement> ReadPlacement(const JsonNode& root) {
  const bool stated =
      root.Find("weight_frac") || root.Find("kv_frac") || root.Find("activation_frac");
  if (!stated) return std::nullopt;
  return Placement{ReadShares(root.Member("weight_frac")), ReadShares(root.Member("kv_frac")),
                   ReadShares(root.Member("activation_frac"))};
}

std::optional<int64_t> FindInteger(const JsonNode& root, const char* key, int64_t max) {
  const auto node = root.Find(key);
  return node ? std::optional(node->Integer({1, max})) : std::nullopt;
}

GivenPolicy FromDocument(const nlohmann::json& document, const JsonOrigin& origin) {
  const JsonNode root(document, origin);
  ExpectVersion(root, kPolicyVersion);
  root.ExpectKeys({"version", "weight_frac", "kv_frac", "activation_frac", "gpu_batch_size",
                   "num_gpu_batches", "cpu_attention", "prefill_chunk", "kv_dtype", "weight_bits",
                   "kv_bits", "kv", "sources"});
  GivenPolicy policy;
  policy.placement = ReadPlacement(root);
  policy.gpu_batch_size = FindInteger(root, "gpu_batch_size", kMaxRows);
  policy.num_gpu_batches = FindInteger(root, "num_gpu_batches", kMaxRows);
  policy.prefill_chunk = FindInteger(root, "prefill_chunk", kMaxTokens);
  if (const auto node = root.Find("cpu_attention")) policy.cpu_attention = node->Boolean();
  if (const auto node = root.Find("kv_dtype")) policy.kv_dtype = ReadKvDType(*node);
  if (const auto node = root.Find("weight_bits")) policy.weight_bits = ReadBits(*node);
  if (const auto node = root.Find("kv_bits")) policy.kv_bits = ReadKvBits(*node);
  if (policy.kv_bits.value_or(16).coded() && policy.kv_dtype == DType::kBF16)
    root.Member("kv_dtype").Refuse("belongs to kv_bits 16; leave it out");
  if (const auto kv = root.Find("kv")) policy.kv = ReadKv(*kv);
  if (const auto sources = root.Find("sources")) {
    for (const JsonNode& source : sources->Items()) source.Text();
  }
  return policy;
}

}  // namespace

GivenPolicy ReadPolicy(const std::filesystem::path& file) {
  const JsonOrigin origin = {file.string(), ErrorCode::kPolicy};
  return FromDocument(ReadJsonFile(file, origin), origin);
}

std::string PolicyJson(const KvPolicy& kv, KvBits bits, const std::vector<std::string>& sources) {
  return JsonFileText(Json{{"version", kPolicyVersion},
                           {"kv_bits", KvBitsJson(bits)},
                           {"kv", KvPolicyJson(kv)},
                           {"sources", sources}});
}

std::string PolicyJson(const Policy& policy, const std::vector<std::string>& sources) {
  Json json;
  json["version"] = kPolicyVersion;
  json["weight_frac"] = PerTierJson(policy.weight_frac);
  json["kv_frac"] = PerTierJson(policy.kv_frac);
  json["activation_frac"] = PerTierJson(policy.activation_frac);
  json["gpu_batch_size"] = policy.gpu_batch_size;
  json["num_gpu_batches"] = policy.num_gpu_batches;
  json["cpu_attention"] = policy.cpu_attention;
  json["prefill_chunk"] = policy.prefill_chunk;
  json["weight_bits"] = policy.weight_bits;
  json["kv_dtype"] = DTypeName(policy.kv_dtype);
  json["kv_bits"] = KvBitsJson(policy.kv_bits);
  json["kv"] = KvPolicyJson(policy.kv);
  if (!sources.empty()) json["sources"] = sources;
  return JsonFileText(json);
}

}  // namespace spillway
