// ChoiceSet: texts of which an answer is to be one, and how a row comes to one of them: which
// tokens may come next. A choice is answered in its own tokens: those that the tokenizer cuts it
// into behind other text, which a model knows it by. One that they do not spell (a normaliser
// changes it) may come in any tokens that do, as long as there are tokens left to end it. Rows with
// the same choices share one. Thread rule: immutable; any thread.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "src/tokenizer/token_index.h"

namespace spillway {

// What a row has answered so far.
struct AnswerSoFar {
  std::span<const TokenId> tokens;
  std::string_view text;  // their bytes
};

class ChoiceSet {
 public:
  // Tokens in `ends` end a row and spell nothing. Lifetime: the tokenizer outlives this.
  ChoiceSet(std::vector<std::string> texts, const Tokenizer& tokenizer, std::vector<TokenId> ends);

  const std::vector<std::string>& texts() const { return texts_; }

  // Tokens of the choice that takes most of them, at least; -1: no tokens spell one of them.
  int64_t MostTokens() const;
  // Tokens that an answer may take, with one that ends it: twice those that spell a choice which
  // may come in any. Requires: MostTokens() >= 0.
  int64_t Room() const;

  // Fills `next` with the tokens that lead on to a choice which so many tokens can end, themselves
  // included; each once.
  void Next(const AnswerSoFar& answer, int64_t tokens_left, std::vector<TokenId>& next) const;

  // Whether the answer is a choice, and whether a longer one may still come of it.
  bool IsChoice(const AnswerSoFar& answer) const;
  bool GoesOn(const AnswerSoFar& answer) const;

  // Place of `text` among the choices, the first of equals; -1: it is none.
  int64_t Find(std::string_view text) const;

 private:
  struct Way {
    std::vector<TokenId> tokens;  // the choice's own; empty: any that spell it
    std::vector<int32_t> least;   // [byte]: of any, that spell the rest at least; kNever: none do
  };

  bool IsEnd(TokenId token) const { return std::ranges::find(ends_, token) != ends_.end(); }
  std::vector<TokenId> OwnTokens(const std::string& choice, const Tokenizer& tokenizer) const;
  std::vector<int32_t> LeastTokens(std::string_view choice) const;
  int64_t NumTokens(const Way& way) const;
  // Whether the answer is a part of the choice, from its beginning on.
  bool Leads(std::size_t choice, const AnswerSoFar& answer) const;

  std::vector<std::string> texts_;
  const TokenIndex* index_ = nullptr;  // where some choice may come in any tokens
  std::vector<TokenId> ends_;
  std::vector<Way> ways_;  // [choice]
};

}  // namespace spillway
