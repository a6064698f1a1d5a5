// TokenStream: the tokens of a template in order, with what parsers ask of them.
// Thread rule: one thread.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "src/jinja/lexer.h"

namespace spillway::jinja {

class TokenStream {
 public:
  explicit TokenStream(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

  const Token& now() const { return tokens_[at_]; }
  const Token& next() const { return tokens_[at_ + 1 < tokens_.size() ? at_ + 1 : at_]; }
  int line() const { return now().line; }

  bool Is(TokenKind kind) const { return now().kind == kind; }
  bool IsName(std::string_view name) const { return IsWord(now(), TokenKind::kName, name); }
  bool IsNextName(std::string_view name) const { return IsWord(next(), TokenKind::kName, name); }
  bool IsOperator(std::string_view text) const { return IsWord(now(), TokenKind::kOperator, text); }
  bool IsNextOperator(std::string_view text) const {
    return IsWord(next(), TokenKind::kOperator, text);
  }

  // The token, which is passed.
  Token Take();
  // Passes the token where it is that one; false: it is another.
  bool SkipName(std::string_view name);
  bool SkipOperator(std::string_view text);
  // Throws: Fault where the token is another.
  std::string ExpectName();
  void ExpectName(std::string_view name);
  void ExpectOperator(std::string_view text);
  void Expect(TokenKind kind, std::string_view called);

 private:
  static bool IsWord(const Token& token, TokenKind kind, std::string_view text) {
    return token.kind == kind && token.text == text;
  }
  [[noreturn]] void FailExpecting(std::string_view what) const;

  std::vector<Token> tokens_;
  std::size_t at_ = 0;
};

}  // namespace spillway::jinja
