#include "src/config/config.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <set>
#include <string>
#include <string_view>

#include "spillway/error.h"
#include "src/base/shell_word.h"
#include "src/base/suggestion.h"
#include "src/base/user_folders.h"
#include "src/config/flags.h"
#include "src/config/kv_flags.h"
#include "src/config/shell_help.h"
#include "src/config/sources.h"
#include "src/config/verb_checks.h"
#include "src/config/verb_table.h"
#include "src/config/version.h"

namespace spillway {
namespace {

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

// Verbs that write a line for each line of the input.
bool AnswersLines(Verb verb) {
  return verb == Verb::kGenerate || verb == Verb::kScore || verb == Verb::kTokenize;
}

// Settings of a verb where nothing is stated.
Config DefaultsOf(Verb verb) {
  Config config;
  config.verb = verb;
  if (AnswersLines(verb)) config.output = "-";
  if (verb == Verb::kBench) config.tokenizer = "none";
  return config;
}

// The command line without the words that would not go on with a run.
std::string CommandOf(int argc, const char* const* argv) {
  std::string command = "spillway";
  for (int at = 1; at < argc; ++at) {
    const std::string word = argv[at];
    if (word != "--overwrite" && word != "--no-resume") command += ' ' + ShellWord(word);
  }
  return command;
}

// A shell's variable that is not set leaves an empty word, which is no way to ask for a default.
void RefuseEmpty(const Flag& flag, const std::string& value) {
  if (flag.kind == FlagKind::kSwitch || !value.empty()) return;
  throw Error(ErrorCode::kFlag,
              fmt::format("--{}: its value is empty; give one, or leave the flag out", flag.name));
}

void SetFlags(const Stated& stated, const std::vector<Flag>& flags, Config& config) {
  for (const Flag& flag : flags) {
    if (!stated.Has(flag.name)) continue;
    try {
      for (const std::string& value : stated.values.at(flag.name)) {
        RefuseEmpty(flag, value);
        flag.set(config, value);
      }
    } catch (const Error& error) {
      const std::string source = stated.SourceOf(flag.name);
      const std::string from = source.empty() ? "" : fmt::format(" (from {})", source);
      throw Error(error.code(), error.what() + from);
    }
  }
}

// Flags that a refusal names, each once.
std::set<std::string> FlagsIn(std::string_view text) {
  constexpr std::string_view kOfNames = "abcdefghijklmnopqrstuvwxyz0123456789-";
  std::set<std::string> flags;
  for (std::size_t at = text.find("--"); at != std::string_view::npos; at = text.find("--", at)) {
    at += 2;
    const std::string_view name = text.substr(at, text.find_first_not_of(kOfNames, at) - at);
    flags.emplace(name);
  }
  return flags;
}

// Where a refused combination's flags come from that the command line does not state.
std::string SourcesOf(std::string_view refusal, const Stated& stated) {
  std::string sources;
  for (const std::string& flag : FlagsIn(refusal)) {
    const std::string source = stated.Has(flag) ? stated.SourceOf(flag) : "";
    if (!source.empty()) sources += fmt::format(" (--{} from {})", flag, source);
  }
  return sources;
}

// Takes a policy file's values where no flag states another. Shares are not taken here: six
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

// A group of NaN has no minimum.
void CheckWeightBits(const Config& config) {
  if (config.weight_bits.value_or(16) == 16) return;
  if (!config.allow_nonfinite_weights) return;
  throw Error(ErrorCode::kFlag,
              fmt::format("--allow-nonfinite-weights: NaN and infinity cannot be held in {} bits; "
                          "leave it or --weight-bits out",
                          *config.weight_bits));
}

}  // namespace

std::string_view VerbName(Verb verb) {
  return std::ranges::find(kVerbs, verb, &VerbRow::verb)->name;
}

std::optional<Verb> SweptVerb(std::string_view word) {
  for (const Verb verb : kSweptVerbs) {
    if (word == VerbName(verb)) return verb;
  }
  return std::nullopt;
}

namespace {

// What `spillway VERB --help` prints.
Printout HelpOf(const VerbRow& verb) {
  const std::string name(verb.name);
  const std::array words = {name.c_str(), "--help"};
  return std::get<Printout>(
      ReadSources(static_cast<int>(words.size()), words.data(), verb, FlagsOf(verb.verb)));
}

// A verb; or "man" or "bash", for those who install the program.
Printout HelpAbout(const std::string& word) {
  if (word == "man") return Printout{ManPage()};
  if (word == "bash") return Printout{BashCompletion()};
  return HelpOf(FindVerb(word));
}

}  // namespace

std::variant<Config, Printout> ParseConfig(int argc, const char* const* argv) {
  const std::string word = argc > 1 ? argv[1] : "--help";
  if (word == "help" && argc > 2) return HelpAbout(argv[2]);
  if (word == "--help" || word == "-h" || word == "help") return Printout{Overview()};
  if (word == "--version" || word == "-V") return Printout{fmt::format("spillway {}\n", kVersion)};
  const VerbRow& verb = FindVerb(word);
  const std::vector<Flag> flags = FlagsOf(verb.verb);
  const std::variant<Stated, Printout> read = ReadSources(argc - 1, argv + 1, verb, flags);
  if (const auto* help = std::get_if<Printout>(&read)) return *help;
  const Stated& stated = std::get<Stated>(read);
  Config config = DefaultsOf(verb.verb);
  config.command = CommandOf(argc, argv);
  SetFlags(stated, flags, config);
  for (const auto& [flag, values] : stated.values) config.stated.insert(flag);
  try {
    TakePolicyFile(config);
    CheckWeightBits(config);
    ResolveKv(config);
    CheckVerb(config, stated);
  } catch (const Error& error) {
    throw Error(error.code(), error.what() + SourcesOf(error.what(), stated));
  }
  return config;
}

std::filesystem::path OffloadFolder(const Config& config) {
  if (!config.offload_dir.empty()) return config.offload_dir;
  return UserTemporaryFolder();
}

std::filesystem::path OffloadDisk(const Config& config) {
  std::filesystem::path folder = OffloadFolder(config);
  std::error_code ignored;
  const bool is_there = !config.offload_dir.empty() || std::filesystem::exists(folder, ignored);
  return is_there ? folder : folder.parent_path();
}

std::FILE* TerminalOf(const Config& config) {
  if (config.verbosity == Verbosity::kQuiet) return nullptr;
  const bool answers_lines = AnswersLines(config.verb) && config.perplexity.empty();
  return answers_lines && config.output == "-" ? stderr : stdout;
}

std::FILE* ProgressStreamOf(const Config& config) {
  return config.progress ? TerminalOf(config) : nullptr;
}

}  // namespace spillway
