#include "src/base/suggestion.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

namespace spillway {
namespace {

// The shortest of the known words that begin with this one; empty: none, or too few letters to
// tell.
std::string_view Completion(std::string_view word, const std::vector<std::string>& known) {
  constexpr std::size_t kLeastLetters = 3;
  std::string_view shortest;
  for (const std::string& candidate : known) {
    const bool completes = word.size() >= kLeastLetters && candidate.starts_with(word);
    if (completes && (shortest.empty() || candidate.size() < shortest.size())) shortest = candidate;
  }
  return shortest;
}

// "max-tokens" in "max-new-tokens": all parts, of two at least, in their order.
bool HasPartsOf(std::string_view candidate, std::string_view word) {
  if (word.find('-') == std::string_view::npos) return false;
  while (!word.empty()) {
    const std::string_view part = word.substr(0, word.find('-'));
    const std::size_t end = candidate.find('-');
    if (candidate.substr(0, end) == part)
      word.remove_prefix(std::min(word.size(), part.size() + 1));
    else if (end == std::string_view::npos)
      return false;
    candidate.remove_prefix(end == std::string_view::npos ? candidate.size() : end + 1);
  }
  return true;
}

}  // namespace

int64_t EditDistance(std::string_view a, std::string_view b) {
  std::vector<int64_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), 0);
  for (std::size_t i = 1; i <= a.size(); ++i) {
    int64_t diagonal = row[0]++;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const int64_t substitute = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({substitute, row[j] + 1, row[j - 1] + 1});
    }
  }
  return row.back();
}

std::string Suggestion(std::string_view word, const std::vector<std::string>& known,
                       std::string_view dashes) {
  if (const std::string_view whole = Completion(word, known); !whole.empty())
    return fmt::format("; did you mean {}{}?", dashes, whole);
  for (const std::string& candidate : known) {
    if (HasPartsOf(candidate, word)) return fmt::format("; did you mean {}{}?", dashes, candidate);
  }
  const auto nearest = std::ranges::min_element(
      known, {}, [&](const std::string& k) { return EditDistance(word, k); });
  if (nearest == known.end() ||
      EditDistance(word, *nearest) > 1 + static_cast<int64_t>(word.size()) / 4)
    return "";
  return fmt::format("; did you mean {}{}?", dashes, *nearest);
}

std::vector<std::string> NearestWords(std::string_view word, std::vector<std::string> known,
                                      std::size_t most) {
  std::ranges::stable_sort(
      known, {}, [&](const std::string& candidate) { return EditDistance(word, candidate); });
  if (known.size() > most) known.resize(most);
  return known;
}

}  // namespace spillway
