#include "src/config/config.h"

#include <fmt/format.h>
#include <toml++/toml.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdlib>
#include <map>
#include <span>
#include <utility>

#include "spillway/error.h"
#include "src/base/isa.h"  // ComputeOf
#include "src/config/flags.h"
#include "src/config/parse_value.h"
#include "src/config/suggestion.h"
#include "src/config/toml_text.h"
#include "src/config/version.h"

namespace spillway {
namespace {

// Flag -> the values that were stated, from the source that wins.
using Given = std::map<std::string, std::vector<std::string>>;

struct VerbRow {
  std::string_view name;
  Verb verb;
  std::string_view help;
};
constexpr std::array kVerbs = {
    VerbRow{"generate", Verb::kGenerate, "prompts file in, completions file out"},
    VerbRow{"score", Verb::kScore, "log-likelihood of given texts, or perplexity of one"},
    VerbRow{"bench", Verb::kBench, "one measured run on synthetic prompts"},
    VerbRow{"sweep", Verb::kSweep, "a grid of bench or simulate runs -> JSON and CSV"},
    VerbRow{"plan", Verb::kPlan, "where every byte goes and whether it fits; runs nothing"},
    VerbRow{"calibrate", Verb::kCalibrate, "how much KV each layer needs -> budgets per layer"},
    VerbRow{"profile", Verb::kProfile, "measure this machine: links, products, attention"},
    VerbRow{"search", Verb::kSearch, "the best policy for a model, a machine and a workload"},
    VerbRow{"simulate", Verb::kSimulate, "run the schedule on a virtual clock, for any machine"},
    VerbRow{"convert", Verb::kConvert, "checkpoint -> store of aligned tiles"},
    VerbRow{"inspect", Verb::kInspect,
            "print a checkpoint, store, machine file, report or trace in short"},
};

std::vector<std::string> Names(const std::vector<Flag>& flags) {
  std::vector<std::string> names;
  for (const Flag& flag : flags) names.push_back(flag.name);
  return names;
}

[[noreturn]] void RefuseUnknown(const std::string& name, const std::vector<Flag>& flags,
                                const std::string& where) {
  throw Error(ErrorCode::kFlag, fmt::format("{}{}: unknown flag{}", where, Printable(name),
                                            Suggestion(name, Names(flags), "--")));
}

// What CLI11 is told to recognise. It splits the command line; values are checked by the table's
// own setters.
struct Parser {
  CLI::App app;
  std::map<std::string, CLI::Option*> options;
  CLI::Option* config = nullptr;
  std::string positional;
  std::string config_file;
};

// `num_words` each time that the option is given: which are too many is said here, not by CLI11.
void TakeAllWords(CLI::Option& option, int num_words) {
  option.expected(num_words)->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
}

void Declare(Parser& parser, const VerbRow& verb, const std::vector<Flag>& flags) {
  parser.app.name(fmt::format("spillway {}", verb.name));
  parser.app.description(std::string(verb.help));
  parser.app.allow_extras();
  if (verb.verb == Verb::kInspect) {
    parser.app.add_option("path", parser.positional, "what to print");
  } else if (verb.verb == Verb::kSweep) {
    parser.app.add_option("grid", parser.positional, "TOML file: what to run");
  } else if (std::ranges::find(flags, "input", &Flag::name) != flags.end()) {
    parser.app.add_option("file", parser.positional, "same as --input");
  }
  for (const Flag& flag : flags) {
    const std::string name = "--" + flag.name;
    CLI::Option* option =
        flag.kind == FlagKind::kSwitch
            ? parser.app.add_flag(name, flag.help)
            : parser.app.add_option(name)->description(flag.help)->type_name(flag.placeholder);
    if (flag.kind != FlagKind::kSwitch) TakeAllWords(*option, flag.num_words);
    parser.options[flag.name] = option;
  }
  parser.config = parser.app.add_option("--config");
  parser.config->description("flags from a TOML file")->type_name("FILE");
  TakeAllWords(*parser.config, 1);
}

void JoinWords(const Flag& flag, Given& given) {
  if (flag.num_words == 1) return;
  std::vector<std::string>& words = given[flag.name];
  words = {fmt::format("{}", fmt::join(words, " "))};
}

bool IsNumber(std::string_view word) {
  return !word.empty() && word.find_first_not_of("0123456789.") == std::string_view::npos;
}

// CLI11 would take a number after the last one of a flag for the input.
void RefuseSurplusNumber(const Flag& flag, std::span<const char* const> words) {
  const auto at = std::ranges::find(words, "--" + flag.name,
                                    [](const char* word) { return std::string(word); });
  auto next = at == words.end() ? at : at + 1;
  while (next != words.end() && IsNumber(*next)) ++next;
  const auto num_numbers = next - at - 1;
  if (num_numbers <= flag.num_words) return;
  const std::string surplus = Printable(at[flag.num_words + 1], 40);
  throw Error(ErrorCode::kFlag,
              fmt::format("--{}: takes {} numbers, and {} is one more; leave it out (a file of "
                          "that name is ./{})",
                          flag.name, flag.num_words, surplus, surplus));
}

void RefuseExtras(const Parser& parser, const std::vector<Flag>& flags, const char* verb) {
  for (const std::string& extra : parser.app.remaining()) {
    if (!extra.starts_with("-")) {
      throw Error(ErrorCode::kFlag, fmt::format("{}: one word too many; see spillway {} --help",
                                                Printable(extra), verb));
    }
    const std::size_t name = extra.find_first_not_of('-');
    RefuseUnknown(extra.substr(name == std::string::npos ? 0 : name), flags,
                  extra.starts_with("--") ? "--" : "-");
  }
}

void RefuseRepeated(const std::string& flag, const CLI::Option& option, int num_words) {
  if (option.results().size() <= static_cast<std::size_t>(num_words)) return;
  throw Error(ErrorCode::kFlag, fmt::format("--{}: given more than once; leave one out", flag));
}

Given FromCommandLine(Parser& parser, int argc, const char* const* argv,
                      const std::vector<Flag>& flags) {
  for (const Flag& flag : flags) {
    if (flag.num_words > 1) RefuseSurplusNumber(flag, {argv, static_cast<std::size_t>(argc)});
  }
  try {
    parser.app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    throw;
  } catch (const CLI::ParseError& error) {
    throw Error(ErrorCode::kFlag, fmt::format("{}; see spillway {} --help", error.what(), argv[0]));
  }
  RefuseExtras(parser, flags, argv[0]);
  Given given;
  for (const Flag& flag : flags) {
    const CLI::Option& option = *parser.options.at(flag.name);
    if (option.count() == 0) continue;
    if (flag.kind != FlagKind::kList) RefuseRepeated(flag.name, option, flag.num_words);
    given[flag.name] = option.results();
    JoinWords(flag, given);
  }
  RefuseRepeated("config", *parser.config, 1);
  if (parser.config->count() > 0) parser.config_file = parser.config->results().front();
  if (!parser.positional.empty() && parser.options.contains("input")) {
    if (given.contains("input"))
      throw Error(ErrorCode::kFlag, "the input is given twice: as a word and with --input");
    given["input"] = {parser.positional};
  }
  return given;
}

std::string EnvironmentName(std::string name) {
  std::ranges::transform(name, name.begin(), [](char c) {
    return c == '-' ? '_' : static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  });
  return "SPILLWAY_" + name;
}

Given FromEnvironment(const std::vector<Flag>& flags) {
  Given given;
  for (const Flag& flag : flags) {
    if (const char* text = std::getenv(EnvironmentName(flag.name).c_str()))
      given[flag.name] = {text};
  }
  return given;
}

std::vector<std::string> TomlValues(const toml::node& node, const std::string& where) {
  std::vector<std::string> values;
  if (const toml::array* array = node.as_array()) {
    for (const toml::node& item : *array) {
      for (std::string& value : TomlValues(item, where)) values.push_back(std::move(value));
    }
    return values;
  }
  if (std::optional<std::string> value = TomlScalar(node)) return {std::move(*value)};
  throw Error(ErrorCode::kFlag,
              fmt::format("{}: expected a string, number, boolean or list", where));
}

void TakeTable(const toml::table& table, const std::string& where, const std::vector<Flag>& flags,
               Given& given) {
  for (const auto& [key, node] : table) {
    const std::string name(key.str());
    const std::string place = where + Printable(name);
    if (node.is_table()) continue;  // a verb's table; checked by the caller
    const auto flag = std::ranges::find(flags, name, &Flag::name);
    if (flag == flags.end()) RefuseUnknown(name, flags, where);
    given[name] = TomlValues(node, place);
    JoinWords(*flag, given);
    if (flag->kind != FlagKind::kList && given[name].size() != 1) {
      throw Error(ErrorCode::kFlag, fmt::format("{}: expected one value", place));
    }
  }
}

Given FromFile(const std::string& path, const VerbRow& verb, const std::vector<Flag>& flags) {
  const std::string text = ReadTomlText(path, "--config");
  Given given;
  try {
    const toml::table table = toml::parse(text);
    for (const auto& [key, node] : table) {
      const bool known = std::ranges::find(kVerbs, key.str(), &VerbRow::name) != kVerbs.end();
      if (node.is_table() && !known) {
        throw Error(ErrorCode::kFlag,
                    fmt::format("{}: [{}] is no verb", Printable(path), Printable(key.str())));
      }
    }
    TakeTable(table, Printable(path) + ": ", flags, given);
    if (const toml::table* own = table[verb.name].as_table()) {
      TakeTable(*own, fmt::format("{}: {}.", Printable(path), verb.name), flags, given);
    }
  } catch (const toml::parse_error& error) {
    throw Error(ErrorCode::kFlag, fmt::format("--config {}: line {}: {}", Printable(path),
                                              error.source().begin.line, error.description()));
  }
  return given;
}

// Two switches of which one at most can be on.
struct Opposites {
  const char* first;
  const char* second;
};
constexpr std::array kOpposites = {Opposites{"cpu-attention", "no-cpu-attention"},
                                   Opposites{"quiet", "verbose"}};

// `given`, and what a later source states of which it states neither the same nor the opposite.
Given WithLater(Given given, Given later) {
  for (const auto& [first, second] : kOpposites) {
    if (!given.contains(first) && !given.contains(second)) continue;
    later.erase(first);
    later.erase(second);
  }
  given.merge(later);
  return given;
}

void RefuseOpposites(const Given& given) {
  const auto is_on = [&](const std::string& name) {
    const auto found = given.find(name);
    return found != given.end() && ParseBool(name, found->second.back());
  };
  for (const auto& [first, second] : kOpposites) {
    if (!is_on(first) || !is_on(second)) continue;
    throw Error(ErrorCode::kFlag, fmt::format("--{} and --{}: one says the opposite of the other; "
                                              "leave one of the two out",
                                              first, second));
  }
}

// Where a value that was refused comes from, unless from the command line.
std::string SourceText(const std::string& flag, const Parser& parser) {
  if (parser.options.at(flag)->count() > 0) return "";
  const std::string variable = EnvironmentName(flag);
  if (std::getenv(variable.c_str()) != nullptr) return fmt::format(" (from {})", variable);
  return fmt::format(" (from {})", Printable(parser.config_file));
}

const VerbRow& FindVerb(const std::string& word) {
  for (const VerbRow& row : kVerbs) {
    if (row.name == word) return row;
  }
  std::vector<std::string> names;
  for (const VerbRow& row : kVerbs) names.emplace_back(row.name);
  throw Error(ErrorCode::kFlag, fmt::format("{}: unknown verb{}; see spillway --help",
                                            Printable(word), Suggestion(word, names, "")));
}

std::string Overview() {
  std::string text =
      "Spillway generates text for files of prompts with models larger than the accelerator.\n\n"
      "usage: spillway VERB [flags]\n\n";
  for (const VerbRow& row : kVerbs) text += fmt::format("  {:<10} {}\n", row.name, row.help);
  return text +
         "\nspillway VERB --help lists the flags. Every flag is also a key of --config's TOML file "
         "and an\n"
         "environment variable SPILLWAY_<FLAG>.\n";
}

// What a verb does without being told.
Config DefaultsOf(Verb verb) {
  Config config;
  config.verb = verb;
  if (verb == Verb::kGenerate || verb == Verb::kScore) config.output = "-";
  if (verb == Verb::kBench) config.tokenizer = "none";
  return config;
}

constexpr TokenAmount kDefaultKvBudget = {0.2, 0};

// Amounts that the KV policy has no use for are refused, not ignored.
void CheckKvFlags(const Config& config, KvPolicyKind kind) {
  const bool window = kind == KvPolicyKind::kWindow;
  const auto refuse = [&](bool given, std::string_view flag, std::string_view reason) {
    if (given) throw Error(ErrorCode::kFlag, fmt::format("--{}: {}", flag, reason));
  };
  if (kind == KvPolicyKind::kFull) {
    constexpr std::string_view kAllStay =
        "the full KV policy keeps every token; give --kv-policy h2o or window";
    refuse(config.kv_budget.has_value(), "kv-budget", kAllStay);
    refuse(config.kv_heavy.has_value(), "kv-heavy", kAllStay);
    refuse(config.kv_recent.has_value(), "kv-recent", kAllStay);
    refuse(!config.kv_budgets.empty(), "kv-budgets", kAllStay);
  }
  const bool amounts = config.kv_budget || config.kv_heavy || config.kv_recent;
  refuse(!config.kv_budgets.empty() && amounts, "kv-budgets",
         "--kv-budget, --kv-heavy and --kv-recent say the budget; leave one or the other out");
  refuse(!window && config.kv_sinks.value_or(0) > 0, "kv-sinks", "belongs to --kv-policy window");
  refuse(window && config.kv_heavy.has_value(), "kv-heavy", "a window keeps no heavy hitters");
  refuse(config.kv_budget && config.kv_heavy && config.kv_recent, "kv-budget",
         "--kv-heavy and --kv-recent say it all; leave one of the three out");
}

void CheckBudget(const KvBudget& budget, const KvPolicy& kv) {
  const auto refuse = [](std::string_view reason) {
    throw Error(ErrorCode::kFlag, fmt::format("--kv-budget: {}", reason));
  };
  if (kv.kind == KvPolicyKind::kWindow && budget.heavy) refuse("a window keeps no heavy hitters");
  if (budget.heavy && budget.recent) return;
  if (budget.kept.frac != 0.0) return;
  const auto counted = [](const std::optional<TokenAmount>& part) {
    return part && part->frac == 0.0 ? part->tokens : 0;
  };
  if (counted(budget.heavy) >= budget.kept.tokens)
    refuse("leaves no recent token beside --kv-heavy");
  if (counted(budget.recent) > budget.kept.tokens) refuse("is less than --kv-recent");
  if (!budget.recent && kv.num_sinks >= budget.kept.tokens) {
    throw Error(ErrorCode::kFlag, "--kv-sinks: --kv-budget must leave room for a recent token");
  }
}

// Amounts in tokens that contradict each other; shares are cut to what a row has.
void CheckKvWhole(const KvPolicy& kv) {
  if (!kv.evicts()) return;
  if (kv.layer_budgets.empty()) CheckBudget(kv.budget, kv);
  for (const KvBudget& budget : kv.layer_budgets) CheckBudget(budget, kv);
}

void CheckSearch(const Config& config) {
  for (const TokenAmount& budget : config.kv_budgets) CheckBudget({budget, {}, {}}, config.kv);
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

// What the policy file says, and over it what flags say, amount by amount.
void ResolveKv(Config& config) {
  const KvPolicy from_file = config.policy ? config.policy->kv.value_or(KvPolicy{}) : KvPolicy{};
  const KvPolicyKind kind = config.kv_policy.value_or(from_file.kind);
  CheckKvFlags(config, kind);
  const bool amounts = config.kv_budget || config.kv_heavy || config.kv_recent;
  const bool one_part =
      !config.kv_budget && config.kv_heavy.has_value() != config.kv_recent.has_value();
  if (!from_file.layer_budgets.empty() && one_part) {
    throw Error(ErrorCode::kFlag,
                "--kv-heavy, --kv-recent: the policy file has a budget for each layer; give "
                "--kv-budget or both parts to replace them");
  }
  config.kv = from_file;
  config.kv.kind = kind;
  if (config.kv_sinks) config.kv.num_sinks = *config.kv_sinks;
  if (kind != KvPolicyKind::kWindow) config.kv.num_sinks = 0;
  if (amounts) {
    config.kv.layer_budgets.clear();
    config.kv.budget = BudgetOver(
        from_file.evicts() ? from_file.budget : KvBudget{kDefaultKvBudget, {}, {}}, config);
  } else if (!from_file.evicts()) {
    config.kv.budget = {kDefaultKvBudget, {}, {}};
  }
  CheckKvWhole(config.kv);
}

// Below 16 bits K and V are codes, whatever type they would have at 16.
void CheckKvBits(const Config& config) {
  if (config.kv_bits.value_or(16) == 16) return;
  if (config.kv_dtype.value_or(DType::kF16) == DType::kF16) return;
  throw Error(ErrorCode::kFlag,
              fmt::format("--kv-dtype {}: belongs to KV of 16 bits, and --kv-bits is {}; leave one "
                          "of the two out",
                          DTypeName(*config.kv_dtype), *config.kv_bits));
}

// Rates of another arithmetic would not predict the run. What only plans takes the file's.
void CheckMachine(const Config& config) {
  if (!config.machine || PlansOnly(config.verb)) return;
  const CpuCompute of = kernels::ComputeOf(config.machine->isa);
  if (of == config.cpu_compute) return;
  const auto name_of = [](CpuCompute compute) {
    return compute == CpuCompute::kBf16 ? "bf16" : "fp32";
  };
  const std::string_view name = name_of(config.cpu_compute);
  throw Error(ErrorCode::kFlag,
              fmt::format("--cpu-compute {}: the rates of --machine are of products in {}; give "
                          "what profile --cpu-compute {} writes, or leave --machine out",
                          name, name_of(of), name));
}

void CheckGenerate(const Config& config) {
  if (config.input.empty())
    throw Error(ErrorCode::kFlag, "--input: give the file of prompts (- is standard input)");
  if (config.output.empty())
    throw Error(ErrorCode::kFlag, "--output: empty; give a file, or - for standard output");
  if (config.resume && config.overwrite)
    throw Error(ErrorCode::kFlag, "--resume and --overwrite: one keeps what the other replaces");
  if (config.resume && config.output == "-") {
    throw Error(ErrorCode::kFlag,
                "--resume: standard output is nothing to go on with; give the run's --output");
  }
  if (config.sampling.min_tokens > config.sampling.max_tokens) {
    throw Error(ErrorCode::kFlag,
                fmt::format("--min-new-tokens {} is more than --max-new-tokens {}",
                            config.sampling.min_tokens, config.sampling.max_tokens));
  }
}

bool IsStated(const Given& given, const char* name) {
  const auto found = given.find(name);
  return found != given.end() && !found->second.empty();
}

// Lines of a file, or one text in windows.
void CheckScore(const Config& config, const Given& given) {
  const bool lines = config.perplexity.empty();
  if (lines == config.input.empty()) {
    throw Error(ErrorCode::kFlag,
                lines
                    ? "--input: give the file of texts (- is standard input), or --perplexity FILE"
                    : "--perplexity: takes the place of --input; leave one of the two out");
  }
  if (lines && config.output.empty())
    throw Error(ErrorCode::kFlag, "--output: empty; give a file, or - for standard output");
  for (const char* name : {"window", "stride", "start-each-window"}) {
    if (lines && IsStated(given, name))
      throw Error(ErrorCode::kFlag, fmt::format("--{}: belongs to --perplexity", name));
  }
  for (const char* name : {"output", "overwrite"}) {
    if (!lines && IsStated(given, name))
      throw Error(ErrorCode::kFlag, fmt::format("--{}: belongs to --input", name));
  }
}

void CheckCalibrate(Config& config) {
  if (config.perplexity.empty())
    throw Error(ErrorCode::kFlag, "--text: give the file of text to calibrate on");
  if (config.kv_budget || config.kv_heavy || config.kv_recent)
    throw Error(ErrorCode::kFlag, "--kv-budget: calibrate finds the budgets; leave it out");
  if (config.policy && config.policy->kv)
    throw Error(ErrorCode::kFlag,
                "--policy: has a KV policy, and calibrate finds one; leave it out");
  if (config.kv_policy == KvPolicyKind::kFull)
    throw Error(ErrorCode::kFlag, "--kv-policy full: keeps every token; give h2o or window");
  if (!config.kv.evicts()) config.kv.kind = KvPolicyKind::kH2o;
}

// What a policy file says counts where no flag says otherwise. Shares are not taken here: six
// percents would not hold them exactly.
void TakePolicyFile(Config& config) {
  if (!config.policy) return;
  const GivenPolicy& policy = *config.policy;
  if (!config.gpu_batch_size) config.gpu_batch_size = policy.gpu_batch_size;
  if (!config.num_gpu_batches) config.num_gpu_batches = policy.num_gpu_batches;
  if (!config.prefill_chunk) config.prefill_chunk = policy.prefill_chunk;
  if (!config.cpu_attention) config.cpu_attention = policy.cpu_attention;
  if (!config.weight_bits) config.weight_bits = policy.weight_bits;
  if (!config.kv_dtype) config.kv_dtype = policy.kv_dtype;
  if (!config.kv_bits) config.kv_bits = policy.kv_bits;
}

// The lengths come from --input or from the flags, never from both.
void CheckPlan(Config& config, const Given& given) {
  for (const char* name : {"threads", "device", "cpu-compute"}) {
    if (config.machine && IsStated(given, name)) {
      throw Error(ErrorCode::kFlag,
                  fmt::format("--{}: --machine says what the machine is; leave it out", name));
    }
  }
  if (config.input.empty()) {
    config.tokenizer = "none";
    if (!IsStated(given, "max-new-tokens")) return;
    throw Error(ErrorCode::kFlag,
                "--max-new-tokens: belongs to --input; without one give --gen-len");
  }
  for (const char* name : {"prompt-len", "gen-len", "num-requests"}) {
    if (!IsStated(given, name)) continue;
    throw Error(ErrorCode::kFlag,
                fmt::format("--{}: the lengths come from --input; leave one of the two out", name));
  }
}

void CheckSweep(Config& config, const Parser& parser) {
  if (parser.positional.empty())
    throw Error(ErrorCode::kFlag, "sweep: give the TOML file that says what to run");
  if (config.output.empty() || config.output == "-")
    throw Error(ErrorCode::kFlag, "--output: give the folder for the results");
  config.grid = parser.positional;
}

// A group of NaN has no minimum.
void CheckWeightBits(const Config& config) {
  if (config.weight_bits.value_or(16) == 16) return;
  if (!config.allow_nonfinite_weights) return;
  throw Error(ErrorCode::kFlag,
              fmt::format("--allow-nonfinite-weights: NaN and infinity cannot be held in {} bits; "
                          "leave it or --weight-bits out",
                          *config.weight_bits));
}

void CheckWhole(Config& config, const Parser& parser, const Given& given) {
  switch (config.verb) {
    case Verb::kGenerate:
      return CheckGenerate(config);
    case Verb::kScore:
      return CheckScore(config, given);
    case Verb::kBench:
      return;
    case Verb::kSearch:
      CheckSearch(config);
      return CheckPlan(config, given);
    case Verb::kPlan:
    case Verb::kSimulate:
      return CheckPlan(config, given);
    case Verb::kCalibrate:
      return CheckCalibrate(config);
    case Verb::kProfile:
      return;
    case Verb::kConvert:
      if (config.output.empty() || config.output == "-")
        throw Error(ErrorCode::kFlag, "--output: give a name for the folder of the store");
      return;
    case Verb::kInspect:
      if (parser.positional.empty())
        throw Error(ErrorCode::kFlag, "inspect: give the folder or file to print");
      config.inspect_path = parser.positional;
      return;
    case Verb::kSweep:
      return CheckSweep(config, parser);
  }
}

}  // namespace

std::string_view VerbName(Verb verb) {
  return std::ranges::find(kVerbs, verb, &VerbRow::verb)->name;
}

std::optional<Verb> SweptVerb(std::string_view word) {
  for (const Verb verb : {Verb::kBench, Verb::kSimulate}) {
    if (word == VerbName(verb)) return verb;
  }
  return std::nullopt;
}

std::variant<Config, Printout> ParseConfig(int argc, const char* const* argv) {
  const std::string word = argc > 1 ? argv[1] : "--help";
  if (word == "--help" || word == "-h" || word == "help") return Printout{Overview()};
  if (word == "--version" || word == "-V") return Printout{fmt::format("spillway {}\n", kVersion)};
  const VerbRow& verb = FindVerb(word);
  const std::vector<Flag> flags = FlagsOf(verb.verb);
  Parser parser;
  Declare(parser, verb, flags);
  Given given;
  try {
    given = FromCommandLine(parser, argc - 1, argv + 1, flags);
  } catch (const CLI::CallForHelp&) {
    return Printout{parser.app.help()};
  }
  given = WithLater(std::move(given), FromEnvironment(flags));
  const char* config_from_environment = std::getenv("SPILLWAY_CONFIG");
  if (parser.config_file.empty() && config_from_environment != nullptr)
    parser.config_file = config_from_environment;
  if (!parser.config_file.empty())
    given = WithLater(std::move(given), FromFile(parser.config_file, verb, flags));
  RefuseOpposites(given);

  Config config = DefaultsOf(verb.verb);
  for (const Flag& flag : flags) {
    try {
      for (const std::string& value : given[flag.name]) flag.set(config, value);
    } catch (const Error& error) {
      throw Error(error.code(), error.what() + SourceText(flag.name, parser));
    }
  }
  TakePolicyFile(config);
  CheckWeightBits(config);
  ResolveKv(config);
  CheckKvBits(config);
  CheckMachine(config);
  CheckWhole(config, parser, given);
  return config;
}

std::filesystem::path OffloadFolder(const Config& config) {
  if (!config.offload_dir.empty()) return config.offload_dir;
  const char* named = std::getenv("TMPDIR");
  return named != nullptr && *named != '\0' ? named : "/tmp";
}

std::FILE* TerminalOf(const Config& config) {
  if (config.verbosity == Verbosity::kQuiet) return nullptr;
  const bool answers_lines =
      config.verb == Verb::kGenerate || (config.verb == Verb::kScore && config.perplexity.empty());
  return answers_lines && config.output == "-" ? stderr : stdout;
}

}  // namespace spillway
