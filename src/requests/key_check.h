// Keys of a line that nothing knows: misspelt ones are faults, others are passed over and noted.
// Plain functions; any thread.
#pragma once

#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "src/requests/line_fault.h"

namespace spillway {

// Notes of what a line says beside its request; filled as far as the line can be read, faulty or
// not.
struct LineNotes {
  std::string custom_id;                 // empty: none
  std::vector<std::string> passed_over;  // keys that nothing knows
  MaybeFault surplus;  // of the first such key of strict rules: the line's, where it has no other
};

// A key of other programs, and the one that it stands for here.
struct OtherName {
  std::string_view name;
  std::string_view meant;
};

// Rules for a key that is not known.
struct KeyRules {
  std::string_view where;                       // it stands: " in \"body\""
  std::span<const std::string_view> known;      // keys that a misspelt one may mean
  std::span<const OtherName> other_names = {};  // faults too: their values decide the answer
  bool strict = false;                          // no key is passed over
};

// Code of a line's fault that is one with --strict only.
inline constexpr std::string_view kSurplusKey = "surplus_key";

// "unknown_key" for a key of at least four letters within two edits of a known one, and for another
// name of one. Notes any other, as a kSurplusKey where `rules` are strict.
MaybeFault JudgeUnknownKey(std::string_view key, const KeyRules& rules, LineNotes& notes);

// JudgeUnknownKey for each key of `object` that is not `is_known`, unless its value is null.
// Requires: an object.
template <typename IsKnown>
MaybeFault CheckKeys(const nlohmann::json& object, const KeyRules& rules, LineNotes& notes,
                     IsKnown is_known) {
  for (const auto& [key, value] : object.items()) {
    if (value.is_null() || is_known(key)) continue;
    if (MaybeFault fault = JudgeUnknownKey(key, rules, notes)) return fault;
  }
  return std::nullopt;
}

}  // namespace spillway
