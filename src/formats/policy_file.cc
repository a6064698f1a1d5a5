#include "src/formats/policy_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "src/base/json_node.h"
#include "src/base/json_text.h"
#include "src/base/report_kind.h"
#include "src/formats/kv_policy_json.h"
#include "src/formats/tier_json.h"

namespace spillway {
namespace {

using Json = nlohmann::ordered_json;

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

DType ReadKvDType(const JsonNode& node) {
  const std::string name = node.Text();
  for (const DType dtype : {DType::kF16, DType::kBF16}) {
    if (name == DTypeName(dtype)) return dtype;
  }
  node.Refuse(fmt::format("is \"{}\", must be fp16 or bf16", Printable(name, 40)));
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

GivenPolicy PolicyFrom(const nlohmann::json& document, const JsonOrigin& origin) {
  const JsonNode root(document, origin);
  const std::string of_report = fmt::format(
      "a policy has the keys of its \"policy\" at the top, beside \"version\": {}", kPolicyVersion);
  ExpectKind(root, ReportKind::kPolicy,
             document.contains("policy") ? std::string_view(of_report)
                                         : "give a file of search --output or calibrate --output");
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
  if (const auto kv = root.Find("kv")) policy.kv = ReadKvPolicy(*kv);
  if (const auto sources = root.Find("sources")) {
    for (const JsonNode& source : sources->Items()) source.Text();
  }
  return policy;
}

}  // namespace

GivenPolicy ReadPolicy(const std::filesystem::path& file) {
  const JsonOrigin origin = {file.string(), ErrorCode::kPolicy};
  return PolicyFrom(ReadJsonFile(file, origin), origin);
}

std::string PolicyJson(const KvPolicy& kv, KvBits bits, const std::vector<std::string>& sources) {
  return JsonFileText(Json{{"version", kPolicyVersion},
                           {"kv_bits", KvBitsJson(bits)},
                           {"kv", KvPolicyJson(kv)},
                           {"sources", sources}});
}

std::string PolicyJson(const Policy& policy, const ModelShape& shape,
                       const std::vector<std::string>& sources) {
  Json json = Json::object();
  json["version"] = kPolicyVersion;
  json["weight_frac"] = PerTierJson(policy.weight_frac);
  json["kv_frac"] = PerTierJson(policy.kv_frac);
  json["activation_frac"] = PerTierJson(policy.activation_frac);
  json["gpu_batch_size"] = policy.gpu_batch_size;
  json["num_gpu_batches"] = policy.num_gpu_batches;
  json["cpu_attention"] = policy.cpu_attention;
  json["prefill_chunk"] = policy.prefill_chunk;
  if (StatesWeightBits(shape, policy.weight_bits)) json["weight_bits"] = policy.weight_bits;
  json["kv_dtype"] = DTypeName(policy.kv_dtype);
  json["kv_bits"] = KvBitsJson(policy.kv_bits);
  json["kv"] = KvPolicyJson(policy.kv);
  if (!sources.empty()) json["sources"] = sources;
  return JsonFileText(json);
}

}  // namespace spillway
