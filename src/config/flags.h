// The flags of each verb as one table: name, kind, help, and what its value sets.
// Thread rule: the table is immutable; setters change only the Config they are given.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "src/config/config.h"

namespace spillway {

enum class FlagKind { kSwitch, kValue, kList };  // kList: may be given several times

struct Flag {
  std::string name;
  FlagKind kind = FlagKind::kValue;
  std::string placeholder;  // "N", "FILE"; empty for switches
  std::string help;
  std::function<void(Config&, const std::string&)> set;  // a list's setter is called for each value
  int num_words = 1;       // of a value; its setter gets them with single spaces between
  std::string group = {};  // heading that it stands under in the help
};

// The letter that a flag which is typed most has too, as "-m"; empty: it has none.
std::string LetterOf(const Flag& flag);

// Throws: nothing; unknown verbs have no flags.
std::vector<Flag> FlagsOf(Verb verb);

}  // namespace spillway
