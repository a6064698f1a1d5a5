#include "src/sampling/choice_set.h"

#include <utility>

namespace spillway {
namespace {

constexpr int32_t kNever = INT32_MAX;

}  // namespace

ChoiceSet::ChoiceSet(std::vector<std::string> texts, const TokenIndex& index,
                     std::vector<TokenId> ends)
    : texts_(std::move(texts)), index_(index), ends_(std::move(ends)) {
  for (const std::string& text : texts_) least_.push_back(LeastTokens(text));
}

std::vector<int32_t> ChoiceSet::LeastTokens(std::string_view choice) const {
  std::vector<int32_t> least(choice.size() + 1, kNever);
  least.back() = 0;
  for (std::size_t at = choice.size(); at-- > 0;) {
    index_.ForBeginningsOf(choice.substr(at), [&](TokenId token, std::size_t size) {
      const int32_t rest = least[at + size];
      if (rest != kNever && !IsEnd(token)) least[at] = std::min(least[at], rest + 1);
    });
  }
  return least;
}

int64_t ChoiceSet::MostTokens() const {
  int32_t most = 0;
  for (const std::vector<int32_t>& least : least_) most = std::max(most, least.front());
  return most == kNever ? -1 : most;
}

void ChoiceSet::Next(std::string_view text, int64_t tokens_left, std::vector<TokenId>& next) const {
  next.clear();
  for (std::size_t choice = 0; choice < texts_.size(); ++choice) {
    const std::string_view whole = texts_[choice];
    if (!whole.starts_with(text)) continue;
    const std::string_view rest = whole.substr(text.size());
    index_.ForBeginningsOf(rest, [&](TokenId token, std::size_t size) {
      const int32_t after = least_[choice][text.size() + size];
      if (after != kNever && after < tokens_left && !IsEnd(token)) next.push_back(token);
    });
  }
  std::ranges::sort(next);
  next.erase(std::unique(next.begin(), next.end()), next.end());
}

int64_t ChoiceSet::Find(std::string_view text) const {
  const auto found = std::ranges::find(texts_, text);
  return found == texts_.end() ? -1 : found - texts_.begin();
}

bool ChoiceSet::GoesOn(std::string_view text) const {
  return std::ranges::any_of(texts_, [&](std::string_view choice) {
    return choice.size() > text.size() && choice.starts_with(text);
  });
}

}  // namespace spillway
