// Lexer: a template's text -> tokens, with white space around tags as transformers sets it:
// trim_blocks and lstrip_blocks are on, one newline at the end goes.
// Plain functions; any thread.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "src/jinja/values/value.h"

namespace spillway::jinja {

enum class TokenKind {
  kData,
  kVariableBegin,
  kVariableEnd,
  kBlockBegin,
  kBlockEnd,
  kName,
  kString,
  kInteger,
  kFloat,
  kOperator,
  kEnd
};

struct Token {
  TokenKind kind = TokenKind::kEnd;
  std::string text;  // of kData and kString: what it stands for; otherwise as written
  int line = 1;
};

// Requires: valid UTF-8. The last token is kEnd. Throws: Fault with its line.
std::vector<Token> Lex(std::string_view source);

// Token as messages show it.
std::string Described(const Token& token);

}  // namespace spillway::jinja
