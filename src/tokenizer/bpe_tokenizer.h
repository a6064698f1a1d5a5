// The chain added tokens -> normalizer -> pre-tokenizer -> BPE -> start and end tokens, and its way
// back. Thread rule: immutable after construction; const methods from any thread.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "src/tokenizer/added_tokens.h"
#include "src/tokenizer/bpe_model.h"
#include "src/tokenizer/decoder.h"
#include "src/tokenizer/normalizer.h"
#include "src/tokenizer/pre_tokenizer.h"
#include "src/tokenizer/token_bound.h"
#include "src/tokenizer/tokenizer.h"

namespace spillway {

// Contents of a folder's files, checked: ids are in range and belong to one token each.
struct BpeParts {
  BpeModel model;
  std::vector<AddedToken> added_tokens;  // special ones first
  std::vector<NormalizerStep> normalizer;
  std::vector<PreTokenizerStep> pre_tokenizer;
  Decoder decoder;
  std::vector<TokenId> start;  // in front of every text
  std::vector<TokenId> end;    // behind every text
  std::string_view kind = {};  // for `inspect`; empty: by the decoder
};

class BpeTokenizer : public Tokenizer {
 public:
  explicit BpeTokenizer(BpeParts parts);

  std::string_view kind() const override;
  int64_t vocab_size() const override { return static_cast<int64_t>(entries_.size()); }
  std::vector<TokenId> Encode(std::string_view utf8, SpecialText special) const override;
  std::vector<TokenId> EncodeBare(std::string_view utf8, SpecialText special) const override;
  int64_t LeastTokens(std::string_view utf8) const override { return bound_.LeastTokens(utf8); }
  void AppendBytes(TokenId id, bool first, std::string& out) const override;
  std::string TokenText(TokenId id) const override;

 private:
  struct Entry {
    std::string text;    // as the vocabulary has it; empty for a hole
    bool silent = true;  // special or a hole
  };

  const Entry* Find(TokenId id) const;
  void EncodeText(std::string_view text, bool opens_text, std::vector<TokenId>& out) const;

  BpeParts parts_;
  TokenBound bound_;
  AddedTokenFinder raw_tokens_;         // looked for in the text as it is
  AddedTokenFinder normalized_tokens_;  // looked for after normalisation
  std::vector<Entry> entries_;          // by id
};

}  // namespace spillway
