#include "src/requests/key_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>

#include "spillway/error.h"
#include "src/base/suggestion.h"

namespace spillway {
namespace {

LineFault Unknown(std::string_view code, std::string_view key, const KeyRules& rules,
                  std::string_view advice) {
  return {std::string(code),
          fmt::format("unknown key \"{}\"{}{}", Printable(key), rules.where, advice)};
}

// Empty: none is near.
std::string_view NearestKey(std::string_view key, const KeyRules& rules) {
  constexpr std::size_t kLeastLetters = 4;
  constexpr int64_t kMostEdits = 2;
  std::string_view nearest;
  int64_t least = kMostEdits + 1;
  for (const std::string_view known : rules.known) {
    const auto longer = std::max(key.size(), known.size()) - std::min(key.size(), known.size());
    if (key.size() < kLeastLetters || longer > kMostEdits) continue;
    if (const int64_t edits = EditDistance(key, known); edits < least) {
      least = edits;
      nearest = known;
    }
  }
  return nearest;
}

}  // namespace

MaybeFault JudgeUnknownKey(std::string_view key, const KeyRules& rules, LineNotes& notes) {
  const auto other = std::ranges::find(rules.other_names, key, &OtherName::name);
  const std::string_view meant =
      other != rules.other_names.end() ? other->meant : NearestKey(key, rules);
  if (!meant.empty())
    return Unknown("unknown_key", key, rules, fmt::format("; did you mean \"{}\"?", meant));
  if (!rules.strict) {
    notes.passed_over.emplace_back(key);
  } else if (!notes.surplus) {
    notes.surplus = Unknown(kSurplusKey, key, rules, "; --strict takes no unknown keys");
  }
  return std::nullopt;
}

}  // namespace spillway
