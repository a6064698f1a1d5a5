// ChoiceSet: texts of which an answer is to be one, and how a row comes to one of them: which
// tokens may come next, whatever the tokens that a choice is cut into, as long as there are tokens
// left to end one. Rows with the same choices share one. Thread rule: immutable; any thread.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "src/tokenizer/token_index.h"

namespace spillway {

class ChoiceSet {
 public:
  // Tokens in `ends` end a row and spell nothing. Lifetime: the index outlives this.
  ChoiceSet(std::vector<std::string> texts, const TokenIndex& index, std::vector<TokenId> ends);

  const std::vector<std::string>& texts() const { return texts_; }

  // Tokens that spell the choice that takes most of them, at least; -1: no tokens spell one of
  // them.
  int64_t MostTokens() const;

  // Fills `next` with the tokens that lead from `text` on to a choice which so many tokens can end,
  // itself included; each once.
  void Next(std::string_view text, int64_t tokens_left, std::vector<TokenId>& next) const;

  // Place of `text` among the choices, the first of equals; -1: it is none.
  int64_t Find(std::string_view text) const;

  // Whether some choice begins with `text` and goes on.
  bool GoesOn(std::string_view text) const;

 private:
  bool IsEnd(TokenId token) const { return std::ranges::find(ends_, token) != ends_.end(); }
  // [byte]: tokens that spell the choice from there on, at least; kNever: none do.
  std::vector<int32_t> LeastTokens(std::string_view choice) const;

  std::vector<std::string> texts_;
  const TokenIndex& index_;
  std::vector<TokenId> ends_;
  std::vector<std::vector<int32_t>> least_;  // [choice][byte]
};

}  // namespace spillway
