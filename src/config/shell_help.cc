#include "src/config/shell_help.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <vector>

#include "src/config/flags.h"
#include "src/config/verb_table.h"
#include "src/config/version.h"

namespace spillway {
namespace {

// Text of a page: a backslash or a leading dot would be a request, and a plain - a hyphen.
std::string Roff(std::string_view text) {
  std::string escaped;
  for (const char c : text) {
    const bool begins_line = escaped.empty() || escaped.back() == '\n';
    if (c == '\\') {
      escaped += "\\e";
    } else if (c == '-') {
      escaped += "\\-";
    } else {
      if (begins_line && (c == '.' || c == '\'')) escaped += "\\&";
      escaped += c;
    }
  }
  return escaped;
}

std::string FlagEntry(const Flag& flag) {
  std::string letter = LetterOf(flag);
  if (!letter.empty()) letter = fmt::format("\\fB{}\\fR, ", Roff(letter));
  return fmt::format(".TP\n{}\\fB\\-\\-{}\\fR{}\n{}\n", letter, Roff(flag.name),
                     flag.placeholder.empty() ? "" : " \\fI" + Roff(flag.placeholder) + "\\fR",
                     Roff(flag.help));
}

std::string VerbSection(const VerbRow& verb) {
  std::string text = fmt::format(".SS {}\n{}\n", Roff(verb.name), Roff(verb.help));
  std::string group;
  for (const Flag& flag : FlagsOf(verb.verb)) {
    if (flag.group != group) text += fmt::format(".PP\n.B {}\n", Roff(flag.group));
    group = flag.group;
    text += FlagEntry(flag);
  }
  if (!verb.examples.empty())
    text += fmt::format(".PP\nExamples:\n.PP\n.nf\n{}.fi\n", Roff(verb.examples));
  return text;
}

// The words of "a|b|c"; none of a placeholder that stands for others, as "FILE|auto" does.
std::string WordsOf(const Flag& flag) {
  constexpr std::string_view kOfWords = "abcdefghijklmnopqrstuvwxyz0123456789-|";
  if (flag.placeholder.find('|') == std::string::npos) return "";
  if (flag.placeholder.find_first_not_of(kOfWords) != std::string::npos) return "";
  std::string words = flag.placeholder;
  std::ranges::replace(words, '|', ' ');
  return words;
}

std::string CaseOfVerb(const VerbRow& verb) {
  std::string names = "--help --config";
  std::string choices;
  for (const Flag& flag : FlagsOf(verb.verb)) {
    names += " --" + flag.name;
    if (const std::string letter = LetterOf(flag); !letter.empty()) names += " " + letter;
    if (const std::string words = WordsOf(flag); !words.empty())
      choices += fmt::format("        --{}) words=\"{}\" ;;\n", flag.name, words);
  }
  std::string text = fmt::format("    {})\n      flags=\"{}\"\n", verb.name, names);
  if (!choices.empty()) text += fmt::format("      case $before in\n{}      esac\n", choices);
  return text + "      ;;\n";
}

}  // namespace

std::string ManPage() {
  std::string text = fmt::format(
      ".TH SPILLWAY 1 \"\" \"spillway {}\" \"\"\n"
      ".SH NAME\nspillway \\- generate text for files of prompts with models larger than the GPU\n"
      ".SH SYNOPSIS\n.B spillway\n.I VERB\n[\\fIflags\\fR]\n"
      ".SH DESCRIPTION\n"
      "Weights, KV cache and activations spill over GPU, CPU and disk; each layer's weights are "
      "read "
      "once for a whole block of batches. Every flag is also a key of the TOML file of "
      "\\fB\\-\\-config\\fR and an environment variable, SPILLWAY_MAX_NEW_TOKENS for "
      "\\fB\\-\\-max\\-new\\-tokens\\fR; the command line wins over the variable, and that over "
      "the "
      "file.\n.SH VERBS\n",
      kVersion);
  for (const VerbRow& verb : kVerbs) text += VerbSection(verb);
  text +=
      ".SH EXIT STATUS\n0 where all went well; 21 where some lines carry errors, which say why in "
      "the "
      "output; 75 where a signal stopped the run, which the same command goes on with; 2 and 3 for "
      "flags and files of flags; others, with one line on standard error, as docs/formats.md lists "
      "them.\n"
      ".SH ENVIRONMENT\n\\fBSPILLWAY_\\fIFLAG\\fR, \\fBSPILLWAY_CONFIG\\fR; \\fBTMPDIR\\fR for "
      "what is offloaded.\n";
  return text;
}

std::string BashCompletion() {
  std::string verbs;
  std::string cases;
  for (const VerbRow& verb : kVerbs) {
    verbs += fmt::format("{} ", verb.name);
    cases += CaseOfVerb(verb);
  }
  cases += fmt::format("    help) words=\"{}man bash\" ;;\n", verbs);
  return fmt::format(R"(# bash completion of spillway; made by `spillway help bash`.
_spillway() {{
  local word=${{COMP_WORDS[COMP_CWORD]}} before=${{COMP_WORDS[COMP_CWORD - 1]}} flags= words=
  if [ "$COMP_CWORD" -eq 1 ]; then
    mapfile -t COMPREPLY < <(compgen -W "{}help --help --version" -- "$word")
    return
  fi
  case ${{COMP_WORDS[1]}} in
{}  esac
  if [ -n "$words" ]; then
    mapfile -t COMPREPLY < <(compgen -W "$words" -- "$word")
  elif [ "${{word:0:1}}" = - ]; then
    mapfile -t COMPREPLY < <(compgen -W "$flags" -- "$word")
  else
    mapfile -t COMPREPLY < <(compgen -f -- "$word")
  fi
}}
complete -o filenames -F _spillway spillway
)",
                     verbs, cases);
}

}  // namespace spillway
