// TokenBound: how few tokens a text can become, known from its bytes alone, so that a text that is
// far too long need not be encoded to be refused. Thread rule: a value; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace spillway {

struct BpeParts;

class TokenBound {
 public:
  // Proves, from the steps of the tokenizer, that no byte of a text is lost on its way and how many
  // of them one token can stand for. Nothing is known where a step takes text away (Strip, removed
  // matches, words, replacements by less), where an added token takes white space along, and where
  // a character may have no token.
  explicit TokenBound(const BpeParts& parts);

  // Tokens that `utf8` becomes at least; 0: nothing is known.
  int64_t LeastTokens(std::string_view utf8) const;

 private:
  std::size_t most_bytes_ = 0;  // of the text in a token; 0: nothing is known
  // ASCII characters alone count: composing may make one of several others, but of no two
  // ASCII characters.
  bool counts_ascii_ = false;
};

}  // namespace spillway
