// ChoicePath: how a row comes to one of the texts that it may choose from: which tokens may come
// next, whatever the tokens that a choice is cut into, as long as there are tokens left to end one.
// Thread rule: one thread.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "src/tokenizer/token_index.h"

namespace spillway {

class ChoicePath {
 public:
  // Tokens in `ends` end a row and spell nothing. Lifetime: choices, index and ends outlive this.
  ChoicePath(std::span<const std::string> choices, const TokenIndex& index,
             std::span<const TokenId> ends);

  // Tokens that spell the choice that takes most of them, at least; -1: no tokens spell one of
  // them.
  int64_t MostTokens() const;

  // Tokens that lead from `text` on to a choice which so many tokens can end, itself included; each
  // once. Lifetime: until the next call.
  std::span<const TokenId> Next(std::string_view text, int64_t tokens_left);

  // Place of `text` among the choices, the first of equals; -1: it is none.
  int64_t Find(std::string_view text) const;

  // Whether some choice begins with `text` and goes on.
  bool GoesOn(std::string_view text) const;

 private:
  bool IsEnd(TokenId token) const { return std::ranges::find(ends_, token) != ends_.end(); }
  // [byte]: tokens that spell the choice from there on, at least; kNever: none do.
  std::vector<int64_t> LeastTokens(std::string_view choice) const;

  std::span<const std::string> choices_;
  const TokenIndex& index_;
  std::span<const TokenId> ends_;
  std::vector<std::vector<int64_t>> least_;  // [choice][byte]
  std::vector<TokenId> next_;
};

}  // namespace spillway
