#include "src/sampling/choice_set.h"

#include <utility>

namespace spillway {
namespace {

constexpr int32_t kNever = INT32_MAX;

bool StartsWith(std::span<const TokenId> tokens, std::span<const TokenId> head) {
  return tokens.size() >= head.size() && std::ranges::equal(tokens.first(head.size()), head);
}

std::string TextBehindOthers(std::span<const TokenId> tokens, const Tokenizer& tokenizer) {
  std::string text;
  for (const TokenId token : tokens) tokenizer.AppendBytes(token, /*first=*/false, text);
  return text;
}

}  // namespace

ChoiceSet::ChoiceSet(std::vector<std::string> texts, const Tokenizer& tokenizer,
                     std::vector<TokenId> ends)
    : texts_(std::move(texts)), ends_(std::move(ends)) {
  for (const std::string& text : texts_) {
    Way& way = ways_.emplace_back();
    way.tokens = OwnTokens(text, tokenizer);
    if (!way.tokens.empty()) continue;
    index_ = &tokenizer.Index();
    way.least = LeastTokens(text);
  }
}

// Encodes behind a line break where a text alone gets a space in front.
std::vector<TokenId> ChoiceSet::OwnTokens(const std::string& choice,
                                          const Tokenizer& tokenizer) const {
  for (const std::string before : {"", "\n"}) {
    const std::vector<TokenId> head = tokenizer.EncodeBare(before, SpecialText::kPlain);
    std::vector<TokenId> tokens = tokenizer.EncodeBare(before + choice, SpecialText::kPlain);
    if (!StartsWith(tokens, head)) continue;
    tokens.erase(tokens.begin(), tokens.begin() + std::ssize(head));
    const bool spells = TextBehindOthers(tokens, tokenizer) == choice;
    if (spells && std::ranges::none_of(tokens, [&](TokenId token) { return IsEnd(token); }))
      return tokens;
  }
  return {};
}

std::vector<int32_t> ChoiceSet::LeastTokens(std::string_view choice) const {
  std::vector<int32_t> least(choice.size() + 1, kNever);
  least.back() = 0;
  for (std::size_t at = choice.size(); at-- > 0;) {
    index_->ForBeginningsOf(choice.substr(at), [&](TokenId token, std::size_t size) {
      const int32_t rest = least[at + size];
      if (rest != kNever && !IsEnd(token)) least[at] = std::min(least[at], rest + 1);
    });
  }
  return least;
}

int64_t ChoiceSet::NumTokens(const Way& way) const {
  return way.tokens.empty() ? way.least.front() : std::ssize(way.tokens);
}

int64_t ChoiceSet::MostTokens() const {
  int64_t most = 0;
  for (const Way& way : ways_) most = std::max(most, NumTokens(way));
  return most == kNever ? -1 : most;
}

int64_t ChoiceSet::Room() const {
  int64_t room = 0;
  for (const Way& way : ways_)
    room = std::max(room, (way.tokens.empty() ? 2 : 1) * NumTokens(way) + 1);
  return room;
}

bool ChoiceSet::Leads(std::size_t choice, const AnswerSoFar& answer) const {
  const Way& way = ways_[choice];
  return way.tokens.empty() ? texts_[choice].starts_with(answer.text)
                            : StartsWith(way.tokens, answer.tokens);
}

void ChoiceSet::Next(const AnswerSoFar& answer, int64_t tokens_left,
                     std::vector<TokenId>& next) const {
  next.clear();
  for (std::size_t choice = 0; choice < texts_.size(); ++choice) {
    if (!Leads(choice, answer)) continue;
    const Way& way = ways_[choice];
    if (const std::vector<TokenId>& own = way.tokens; !own.empty()) {
      const auto num_left = std::ssize(own) - std::ssize(answer.tokens);
      if (num_left > 0 && num_left <= tokens_left) next.push_back(own[answer.tokens.size()]);
      continue;
    }
    const std::string_view rest = std::string_view(texts_[choice]).substr(answer.text.size());
    index_->ForBeginningsOf(rest, [&](TokenId token, std::size_t size) {
      const int32_t after = way.least[answer.text.size() + size];
      if (after != kNever && after < tokens_left && !IsEnd(token)) next.push_back(token);
    });
  }
  std::ranges::sort(next);
  next.erase(std::unique(next.begin(), next.end()), next.end());
}

bool ChoiceSet::IsChoice(const AnswerSoFar& answer) const {
  for (std::size_t choice = 0; choice < texts_.size(); ++choice) {
    if (Leads(choice, answer) && texts_[choice].size() == answer.text.size()) return true;
  }
  return false;
}

bool ChoiceSet::GoesOn(const AnswerSoFar& answer) const {
  for (std::size_t choice = 0; choice < texts_.size(); ++choice) {
    if (Leads(choice, answer) && texts_[choice].size() > answer.text.size()) return true;
  }
  return false;
}

int64_t ChoiceSet::Find(std::string_view text) const {
  const auto found = std::ranges::find(texts_, text);
  return found == texts_.end() ? -1 : found - texts_.begin();
}

}  // namespace spillway
