#include "src/config/kv_flags.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>

#include "policies/search/storage_choice.h"  // kStoredBits
#include "spillway/error.h"
#include "src/config/flag_kinds.h"
#include "src/formats/calibration_report.h"

namespace spillway {
namespace {

void SetKvDType(Config& config, const std::string& text) {
  if (text != "fp16" && text != "bf16") {
    throw Error(ErrorCode::kFlag,
                fmt::format("--kv-dtype {}: expected fp16 or bf16", Printable(text)));
  }
  config.kv_dtype = text == "fp16" ? DType::kF16 : DType::kBF16;
}

void SetKvPolicy(Config& config, const std::string& text) {
  for (const KvPolicyKind kind : kAllKvPolicyKinds) {
    if (KvPolicyName(kind) != text) continue;
    config.kv_policy = kind;
    return;
  }
  throw Error(
      ErrorCode::kFlag,
      fmt::format("--kv-policy {}: expected full, h2o, window or h2o-flexgen", Printable(text)));
}

[[noreturn]] void RefusePercent(std::string_view flag, const std::string& text) {
  throw Error(ErrorCode::kFlag, fmt::format("--{} {}: expected a number of tokens, or a share from "
                                            "over 0% to 100%",
                                            flag, Printable(text)));
}

double ParsePercent(std::string_view flag, const std::string& text) {
  constexpr double kMaxPercent = 1e6;
  try {
    return ParseReal(flag, text.substr(0, text.size() - 1), 0.0, kMaxPercent);
  } catch (const Error&) {
    RefusePercent(flag, text);
  }
}

// "20%" of prompt + max new tokens, or a number of tokens.
TokenAmount ParseAmount(std::string_view flag, const std::string& text, int64_t min_tokens) {
  if (!text.ends_with('%')) return {0.0, ParseInteger(flag, text, min_tokens, kMaxTokens)};
  const double percent = ParsePercent(flag, text);
  if (percent > 100.0 || (percent == 0.0 && min_tokens > 0)) RefusePercent(flag, text);
  return {percent / 100.0, 0};
}

Flag Amount(std::string name, std::string help, std::optional<TokenAmount> Config::*member,
            int64_t min_tokens) {
  FlagSetter setter = [name, member, min_tokens](Config& config, const std::string& text) {
    config.*member = ParseAmount(name, text, min_tokens);
  };
  return {std::move(name), FlagKind::kValue, "N|N%", std::move(help), std::move(setter)};
}

// "10%,20%,64"
void SetKvBudgets(Config& config, const std::string& text) {
  config.kv_budgets.clear();
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    config.kv_budgets.push_back(ParseAmount("kv-budgets", text.substr(begin, end - begin), 1));
    begin = end + 1;
  }
}

// "8" or "8,4"
void SetKvBits(Config& config, const std::string& text) {
  const auto bits_of = [&](std::string_view part) {
    for (const int bits : kStoredBits) {
      if (part == std::to_string(bits)) return bits;
    }
    throw Error(ErrorCode::kFlag,
                fmt::format("--kv-bits {}: expected 16, 8 or 4, or two of them for K and V: 8,4",
                            Printable(text)));
  };
  const std::size_t comma = std::min(text.find(','), text.size());
  const int of_keys = bits_of(std::string_view(text).substr(0, comma));
  config.kv_bits = comma == text.size()
                       ? KvBits(of_keys)
                       : KvBits(of_keys, bits_of(std::string_view(text).substr(comma + 1)));
}

constexpr TokenAmount kDefaultKvBudget = {0.2, 0};

// Amounts that the KV policy has no use for are refused, not ignored.
void CheckKvFlags(const Config& config, KvPolicyKind kind) {
  const bool window = kind == KvPolicyKind::kWindow;
  const auto refuse = [&](bool given, std::string_view flag, std::string_view reason) {
    if (given) throw Error(ErrorCode::kFlag, fmt::format("--{}: {}", flag, reason));
  };
  refuse(config.verb == Verb::kCalibrate && config.rolling.value_or(false), "rolling",
         "calibrate measures what a row loses within the model's positions; leave it out");
  if (kind == KvPolicyKind::kFull) {
    constexpr std::string_view kAllStay =
        "the full KV policy keeps every token; give --kv-policy h2o or window";
    refuse(config.kv_budget.has_value(), "kv-budget", kAllStay);
    refuse(config.kv_heavy.has_value(), "kv-heavy",
           "the full KV policy keeps every token; give --kv-policy h2o");
    refuse(config.kv_recent.has_value(), "kv-recent", kAllStay);
    refuse(!config.kv_budgets.empty(), "kv-budgets", kAllStay);
    refuse(config.rolling.value_or(false), "rolling", kAllStay);
  }
  const bool amounts = config.kv_budget || config.kv_heavy || config.kv_recent;
  refuse(!config.kv_budgets.empty() && amounts, "kv-budgets",
         "--kv-budget, --kv-heavy and --kv-recent say the budget; leave one or the other out");
  refuse(!window && config.kv_sinks.value_or(0) > 0, "kv-sinks", "belongs to --kv-policy window");
  refuse(window && config.kv_heavy.has_value(), "kv-heavy",
         "a window keeps no heavy hitters; leave it out, or give --kv-policy h2o");
  refuse(config.kv_budget && config.kv_heavy && config.kv_recent, "kv-budget",
         "--kv-heavy and --kv-recent say it all; leave one of the three out");
}

// Where a part of a budget comes from: its flag, or the policy file's key.
std::string SourceOf(bool by_flag, std::string_view flag, std::string_view key) {
  return by_flag ? fmt::format("--{}", flag) : fmt::format("the policy file's {}", key);
}

// Refuses a budget that contradicts itself; `flag` is the one that says the whole, where one does.
void CheckBudget(const KvBudget& budget, const Config& config, std::string_view flag) {
  const bool by_flag = flag != "kv-budget" || config.kv_budget;
  const std::string kept = SourceOf(by_flag, flag, "budget");
  const auto refuse = [&](std::string_view what, const std::string& part) {
    throw Error(ErrorCode::kFlag, fmt::format("{}: {} {}", kept, what, part));
  };
  switch (FaultOf(budget, config.kv)) {
    case KvBudgetFault::kNone:
      return;
    case KvBudgetFault::kHeavyInWindow:
      throw Error(ErrorCode::kFlag,
                  "--kv-policy window: keeps no heavy hitters, and the policy file's budget has "
                  "some; give --kv-budget to replace it");
    case KvBudgetFault::kHeavyTakesAll:
      refuse("leaves no recent token beside",
             SourceOf(config.kv_heavy.has_value(), "kv-heavy", "heavy"));
      break;
    case KvBudgetFault::kRecentIsMore:
      refuse("is less than", SourceOf(config.kv_recent.has_value(), "kv-recent", "recent"));
      break;
    case KvBudgetFault::kSinksTakeAll:
      refuse("leaves no room for a recent token beside",
             SourceOf(config.kv_sinks.has_value(), "kv-sinks", "num_sinks"));
      break;
  }
}

void CheckKvWhole(const Config& config) {
  const KvPolicy& kv = config.kv;
  if (!kv.evicts()) return;
  const auto check = [&](const KvBudget& budget) { CheckBudget(budget, config, "kv-budget"); };
  if (kv.layer_budgets.empty() && kv.head_budgets.empty()) check(kv.budget);
  std::ranges::for_each(kv.layer_budgets, check);
  for (const std::vector<KvBudget>& heads : kv.head_budgets) std::ranges::for_each(heads, check);
}

// A flag's budget is that of all layers; the file's are set aside then.
KvBudget BudgetOver(const KvBudget& from_file, const Config& config) {
  const bool split = config.kv_heavy && config.kv_recent;
  KvBudget budget = from_file;
  if (config.kv_budget) budget = {*config.kv_budget, {}, {}};
  if (split) budget = {};
  if (config.kv_heavy) budget.heavy = config.kv_heavy;
  if (config.kv_recent) budget.recent = config.kv_recent;
  return budget;
}

// Below 16 bits K and V are codes, whatever type they would have at 16.
void CheckKvBits(const Config& config) {
  if (!config.kv_bits.value_or(16).coded()) return;
  if (config.kv_dtype.value_or(DType::kF16) == DType::kF16) return;
  throw Error(
      ErrorCode::kFlag,
      fmt::format(
          "--kv-dtype {}: belongs to K and V both of 16 bits, and --kv-bits is {}; leave one "
          "of the two out",
          DTypeName(*config.kv_dtype), KvBitsText(*config.kv_bits)));
}

}  // namespace

std::vector<Flag> KvFlags() {
  return {
      Value("kv-policy", "full|h2o|window|h2o-flexgen", "which tokens stay in the KV cache (full)",
            SetKvPolicy),
      Amount("kv-budget",
             "tokens kept per row, layer and KV head: a number, or a share of prompt + max new "
             "tokens; half heavy hitters, half recent (20%)",
             &Config::kv_budget, 1),
      Amount("kv-heavy", "heavy hitters kept, set apart from --kv-budget", &Config::kv_heavy, 0),
      Amount("kv-recent", "recent tokens kept, set apart from --kv-budget", &Config::kv_recent, 1),
      Integer("kv-sinks", "first tokens that a window keeps (0)", &Config::kv_sinks, 0, kMaxTokens),
      Switch(
          "rolling",
          "positions are those in the cache, so that rows may grow past the model's; prompts may "
          "not, and fewer tokens must be kept. Of policies that evict (as the policy says)",
          &Config::rolling),
      Value("kv-dtype", "fp16|bf16", "how K and V are stored (fp16, for bf16 models too)",
            SetKvDType),
      Value("kv-bits", "K[,V]",
            "bits of an element of K and of V, each 16, 8 or 4; one number sets both; below 16 in "
            "groups of 64, with a min and a scale; try 8,4 first: 41 % of the bytes (16)",
            SetKvBits),
  };
}

Flag KvBudgetsFlag() {
  return Value("kv-budgets", "N|N%,...",
               "KV budgets to try, in place of the one of --kv-budget; less KV is faster and less "
               "accurate: the table has the best policy of each, the file the fastest",
               SetKvBudgets);
}

Flag CalibrationFlag() {
  return Value(
      "calibration", "FILE",
      "what calibrate --pareto --report wrote: choose among its KV policies and bits too, "
      "within --max-loss",
      [](Config& config, const std::string& text) { config.calibration = ReadCalibration(text); });
}

void ResolveKv(Config& config) {
  const KvPolicy from_file = config.policy ? config.policy->kv.value_or(KvPolicy{}) : KvPolicy{};
  const KvPolicyKind kind = config.kv_policy.value_or(from_file.kind);
  CheckKvFlags(config, kind);
  const bool amounts = config.kv_budget || config.kv_heavy || config.kv_recent;
  const bool one_part =
      !config.kv_budget && config.kv_heavy.has_value() != config.kv_recent.has_value();
  const bool many = !from_file.layer_budgets.empty() || !from_file.head_budgets.empty();
  if (many && one_part) {
    throw Error(ErrorCode::kFlag,
                "--kv-heavy, --kv-recent: the policy file has many budgets; give --kv-budget or "
                "both parts to replace them");
  }
  config.kv = from_file;
  config.kv.kind = kind;
  const bool scored_otherwise = config.kv.evicts() && kind != KvPolicyKind::kH2o && !amounts;
  if (!from_file.head_budgets.empty() && scored_otherwise) {
    throw Error(ErrorCode::kFlag,
                fmt::format("--kv-policy {}: the policy file has budgets per KV head, which only "
                            "h2o takes; give --kv-budget to replace them",
                            KvPolicyName(kind)));
  }
  if (config.kv_sinks) config.kv.num_sinks = *config.kv_sinks;
  if (kind != KvPolicyKind::kWindow) config.kv.num_sinks = 0;
  config.kv.rolls = config.kv.evicts() && config.rolling.value_or(from_file.rolls);
  if (amounts || !config.kv.evicts()) {
    config.kv.layer_budgets.clear();
    config.kv.head_budgets.clear();
  }
  if (amounts) {
    config.kv.budget = BudgetOver(
        from_file.evicts() ? from_file.budget : KvBudget{kDefaultKvBudget, {}, {}}, config);
  } else if (!from_file.evicts()) {
    config.kv.budget = {kDefaultKvBudget, {}, {}};
  }
  CheckKvWhole(config);
  CheckKvBits(config);
}

void CheckCalibration(const Config& config, const Stated& stated) {
  if (config.calibration.empty()) {
    if (!stated.Has("max-loss")) return;
    throw Error(ErrorCode::kFlag,
                "--max-loss: belongs to --calibration, which says what KV policies lose");
  }
  for (const char* name : {"kv-policy", "kv-budget", "kv-budgets", "kv-heavy", "kv-recent",
                           "kv-sinks", "kv-bits", "kv-dtype", "rolling"}) {
    if (!stated.Has(name)) continue;
    throw Error(ErrorCode::kFlag,
                fmt::format("--{}: --calibration has the KV policies and bits to choose from; "
                            "leave one of the two out",
                            name));
  }
  if (config.policy && (config.policy->kv || config.policy->kv_bits || config.policy->kv_dtype)) {
    throw Error(ErrorCode::kFlag,
                "--policy: has a KV policy, and --calibration has those to choose from; leave one "
                "of the two out");
  }
}

void CheckKvBudgets(const Config& config) {
  for (const TokenAmount& budget : config.kv_budgets)
    CheckBudget({budget, {}, {}}, config, "kv-budgets");
}

}  // namespace spillway
