#include "src/sampling/choice_path.h"

namespace spillway {
namespace {

constexpr int64_t kNever = INT64_MAX;

}  // namespace

ChoicePath::ChoicePath(std::span<const std::string> choices, const TokenIndex& index,
                       std::span<const TokenId> ends)
    : choices_(choices), index_(index), ends_(ends) {
  for (const std::string& choice : choices) least_.push_back(LeastTokens(choice));
}

std::vector<int64_t> ChoicePath::LeastTokens(std::string_view choice) const {
  std::vector<int64_t> least(choice.size() + 1, kNever);
  least.back() = 0;
  for (std::size_t at = choice.size(); at-- > 0;) {
    index_.ForBeginningsOf(choice.substr(at), [&](TokenId token, std::size_t size) {
      const int64_t rest = least[at + size];
      if (rest != kNever && !IsEnd(token)) least[at] = std::min(least[at], rest + 1);
    });
  }
  return least;
}

int64_t ChoicePath::MostTokens() const {
  int64_t most = 0;
  for (const std::vector<int64_t>& least : least_) most = std::max(most, least.front());
  return most == kNever ? -1 : most;
}

std::span<const TokenId> ChoicePath::Next(std::string_view text, int64_t tokens_left) {
  next_.clear();
  for (std::size_t choice = 0; choice < choices_.size(); ++choice) {
    const std::string_view whole = choices_[choice];
    if (!whole.starts_with(text)) continue;
    const std::string_view rest = whole.substr(text.size());
    index_.ForBeginningsOf(rest, [&](TokenId token, std::size_t size) {
      const bool ends_in_time = least_[choice][text.size() + size] < tokens_left;
      if (ends_in_time && !IsEnd(token)) next_.push_back(token);
    });
  }
  std::ranges::sort(next_);
  const auto repeated = std::ranges::unique(next_);
  next_.erase(repeated.begin(), repeated.end());
  return next_;
}

int64_t ChoicePath::Find(std::string_view text) const {
  const auto found = std::ranges::find(choices_, text);
  return found == choices_.end() ? -1 : found - choices_.begin();
}

bool ChoicePath::GoesOn(std::string_view text) const {
  return std::ranges::any_of(choices_, [&](std::string_view choice) {
    return choice.size() > text.size() && choice.starts_with(text);
  });
}

}  // namespace spillway
