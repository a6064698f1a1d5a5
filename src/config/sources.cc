#include "src/config/sources.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <toml++/toml.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cctype>
#include <cstdlib>
#include <optional>
#include <span>
#include <string_view>
#include <utility>

#include "spillway/error.h"
#include "src/base/suggestion.h"
#include "src/base/terminal.h"
#include "src/config/flags.h"
#include "src/config/parse_value.h"
#include "src/config/toml_text.h"

namespace spillway {

std::string EnvironmentName(std::string flag) {
  std::ranges::transform(flag, flag.begin(), [](char c) {
    return c == '-' ? '_' : static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  });
  return "SPILLWAY_" + flag;
}

const char* EnvironmentValue(const std::string& flag) {
  const char* text = std::getenv(EnvironmentName(flag).c_str());
  return text != nullptr && *text != '\0' ? text : nullptr;
}

namespace {

// Flag -> the values that were stated, from the source that wins.
using Given = std::map<std::string, std::vector<std::string>>;

std::vector<std::string> Names(const std::vector<Flag>& flags) {
  std::vector<std::string> names;
  for (const Flag& flag : flags) names.push_back(flag.name);
  return names;
}

std::vector<std::string> VerbsWith(const std::string& name) {
  std::vector<std::string> verbs;
  for (const VerbRow& verb : kVerbs) {
    const std::vector<Flag> flags = FlagsOf(verb.verb);
    if (std::ranges::find(flags, name, &Flag::name) != flags.end()) verbs.emplace_back(verb.name);
  }
  return verbs;
}

// What a flag of other verbs, and of other tools (FlexGen and vLLM among them), is called where it
// is not known.
std::string UsualNameOf(const std::string& name) {
  constexpr std::array<std::pair<std::string_view, std::string_view>, 9> kOthers = {
      {{"gen-len", "max-new-tokens"},
       {"max-new-tokens", "gen-len"},
       {"prompts", "input"},
       {"batch", "gpu-batch-size"},
       {"compress-cache", "kv-bits"},
       {"compress-weight", "weight-bits"},
       {"cpu-cache-compute", "cpu-attention"},
       {"kv", "kv-policy"},
       {"quantization", "weight-bits"}}};
  const auto found = std::ranges::find(kOthers, name, &decltype(kOthers)::value_type::first);
  return found == kOthers.end() ? name : std::string(found->second);
}

[[noreturn]] void RefuseUnknown(const std::string& name, const std::vector<Flag>& flags,
                                const std::string& where) {
  const std::vector<std::string> verbs = VerbsWith(name);
  const std::string others = verbs.empty() ? ""
                                           : fmt::format("; {} {} it", fmt::join(verbs, ", "),
                                                         verbs.size() == 1 ? "has" : "have");
  std::vector<std::string> known = Names(flags);
  if (where == "--") known.insert(known.end(), {"config", "help"});  // not of a file
  throw Error(ErrorCode::kFlag, fmt::format("{}{}: unknown flag{}{}", where, Printable(name),
                                            others, Suggestion(UsualNameOf(name), known, "--")));
}

// Parser of the command line: CLI11 splits it into words; values are checked by the table's own
// setters.
struct Parser {
  CLI::App app;
  std::map<std::string, CLI::Option*> options;
  CLI::Option* config = nullptr;
  std::string positional;
  std::vector<std::string> files;  // of merge
};

// `num_words` each time that the option is given: which are too many is said here, not by CLI11.
void TakeAllWords(CLI::Option& option, int num_words) {
  option.expected(num_words)->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
}

// "-m,--model", or "--seed".
std::string SpellingsOf(const Flag& flag) {
  const std::string letter = LetterOf(flag);
  return letter.empty() ? "--" + flag.name : fmt::format("{},--{}", letter, flag.name);
}

void Declare(Parser& parser, const VerbRow& verb, const std::vector<Flag>& flags) {
  parser.app.name(fmt::format("spillway {}", verb.name));
  parser.app.description(std::string(verb.help));
  parser.app.allow_extras();
  if (verb.verb == Verb::kInspect) {
    parser.app.add_option("path", parser.positional, "what to print");
  } else if (verb.verb == Verb::kSweep) {
    parser.app.add_option("grid", parser.positional, "TOML file: what to run");
  } else if (verb.verb == Verb::kMerge) {
    parser.app.add_option("files", parser.files, "outputs of all shards");
  } else if (std::ranges::find(flags, "input", &Flag::name) != flags.end()) {
    parser.app.add_option("file", parser.positional, "same as --input");
  }
  for (const Flag& flag : flags) {
    const std::string name = SpellingsOf(flag);
    CLI::Option* option =
        flag.kind == FlagKind::kSwitch
            ? parser.app.add_flag(name, flag.help)
            : parser.app.add_option(name)->description(flag.help)->type_name(flag.placeholder);
    if (flag.kind != FlagKind::kSwitch) TakeAllWords(*option, flag.num_words);
    if (!flag.group.empty()) option->group(flag.group);
    parser.options[flag.name] = option;
  }
  parser.config = parser.app.add_option("--config");
  parser.config->description("flags from a TOML file")->type_name("FILE");
  TakeAllWords(*parser.config, 1);
  if (!verb.examples.empty()) parser.app.footer(fmt::format("Examples:\n{}", verb.examples));
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

void Split(Parser& parser, int argc, const char* const* argv, const std::vector<Flag>& flags) {
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
}

// The word without a flag is the input.
void TakeInput(Stated& stated) {
  if (stated.values.contains("input"))
    throw Error(ErrorCode::kFlag, "the input is given twice: as a word and with --input");
  stated.values["input"] = {stated.word};
}

Stated FromCommandLine(Parser& parser, int argc, const char* const* argv,
                       const std::vector<Flag>& flags) {
  Split(parser, argc, argv, flags);
  Stated stated;
  stated.word = parser.positional;
  stated.words = parser.files;
  for (const Flag& flag : flags) {
    const CLI::Option& option = *parser.options.at(flag.name);
    if (option.count() == 0) continue;
    if (flag.kind != FlagKind::kList) RefuseRepeated(flag.name, option, flag.num_words);
    stated.by_command.insert(flag.name);
    stated.values[flag.name] = option.results();
    JoinWords(flag, stated.values);
  }
  RefuseRepeated("config", *parser.config, 1);
  if (parser.config->count() > 0) stated.config_file = parser.config->results().front();
  if (parser.config->count() > 0 && stated.config_file.empty())
    throw Error(ErrorCode::kFlag, "--config: its value is empty; give one, or leave the flag out");
  if (!parser.positional.empty() && parser.options.contains("input")) TakeInput(stated);
  return stated;
}

Given FromEnvironment(const std::vector<Flag>& flags) {
  Given given;
  for (const Flag& flag : flags) {
    if (const char* text = EnvironmentValue(flag.name)) given[flag.name] = {text};
  }
  return given;
}

constexpr std::string_view kVariablePrefix = "SPILLWAY_";

// Names of the variables that any verb reads, without their prefix.
std::vector<std::string> KnownVariables() {
  std::vector<std::string> names = {"CONFIG", "ISA"};
  for (const VerbRow& verb : kVerbs) {
    for (const Flag& flag : FlagsOf(verb.verb))
      names.push_back(EnvironmentName(flag.name).substr(kVariablePrefix.size()));
  }
  std::ranges::sort(names);
  names.erase(std::unique(names.begin(), names.end()), names.end());
  return names;
}

// Warns of variables that nothing reads and that are nearly one which is read.
void WarnOfNearVariables() {
  std::vector<std::string> known;
  for (char** variable = environ; *variable != nullptr; ++variable) {
    const std::string_view text = *variable;
    const std::string_view name = text.substr(0, text.find('='));
    if (!name.starts_with(kVariablePrefix)) continue;
    if (known.empty()) known = KnownVariables();
    const std::string word(name.substr(kVariablePrefix.size()));
    if (std::ranges::binary_search(known, word)) continue;
    const std::string meant = Suggestion(word, known, kVariablePrefix);
    if (!meant.empty())
      PrintWarning(fmt::format("{}: nothing reads this variable{}", Printable(name), meant));
  }
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

// Keys at the top are for all verbs that have them; those in a verb's table are its own.
enum class TableOf { kAllVerbs, kOneVerb };

void TakeTable(const toml::table& table, TableOf of, const std::string& where,
               const std::vector<Flag>& flags, Given& given) {
  for (const auto& [key, node] : table) {
    const std::string name(key.str());
    const std::string place = where + Printable(name);
    if (node.is_table()) continue;  // a verb's table; checked by the caller
    const auto flag = std::ranges::find(flags, name, &Flag::name);
    if (flag == flags.end() && of == TableOf::kAllVerbs && !VerbsWith(name).empty()) continue;
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
    const toml::table table = ParseToml(text);
    for (const auto& [key, node] : table) {
      const bool known = std::ranges::find(kVerbs, key.str(), &VerbRow::name) != kVerbs.end();
      if (node.is_table() && !known) {
        throw Error(ErrorCode::kFlag,
                    fmt::format("{}: [{}] is no verb", Printable(path), Printable(key.str())));
      }
    }
    TakeTable(table, TableOf::kAllVerbs, Printable(path) + ": ", flags, given);
    if (const toml::table* own = table[verb.name].as_table()) {
      TakeTable(*own, TableOf::kOneVerb, fmt::format("{}: {}.", Printable(path), verb.name), flags,
                given);
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
                                   Opposites{"quiet", "verbose"}, Opposites{"resume", "no-resume"}};

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

}  // namespace

bool Stated::Has(const std::string& flag) const {
  const auto found = values.find(flag);
  return found != values.end() && !found->second.empty();
}

std::string Stated::SourceOf(const std::string& flag) const {
  if (by_command.contains(flag)) return "";
  const std::string variable = EnvironmentName(flag);
  if (std::getenv(variable.c_str()) != nullptr) return variable;
  return Printable(config_file);
}

std::variant<Stated, Printout> ReadSources(int argc, const char* const* argv, const VerbRow& verb,
                                           const std::vector<Flag>& flags) {
  Parser parser;
  Declare(parser, verb, flags);
  Stated stated;
  try {
    stated = FromCommandLine(parser, argc, argv, flags);
  } catch (const CLI::CallForHelp&) {
    return Printout{parser.app.help()};
  }
  Given& values = stated.values;
  values = WithLater(std::move(values), FromEnvironment(flags));
  WarnOfNearVariables();
  const char* config_from_environment = std::getenv("SPILLWAY_CONFIG");
  if (stated.config_file.empty() && config_from_environment != nullptr)
    stated.config_file = config_from_environment;
  if (!stated.config_file.empty())
    values = WithLater(std::move(values), FromFile(stated.config_file, verb, flags));
  RefuseOpposites(values);
  return stated;
}

}  // namespace spillway
