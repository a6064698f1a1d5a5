// NoTokenizer: for models that come without one (dummy weights): prompts are token_ids, completions
// have no text. Thread rule: immutable.
#pragma once

#include "src/tokenizer/tokenizer.h"

namespace spillway {

class NoTokenizer final : public Tokenizer {
 public:
  explicit NoTokenizer(int64_t vocab_size) : vocab_size_(vocab_size) {}

  std::string_view kind() const override { return "none"; }
  int64_t vocab_size() const override { return vocab_size_; }

  bool encodes_text() const override { return false; }
  std::vector<TokenId> Encode(std::string_view, SpecialText) const override { return {}; }
  std::vector<TokenId> EncodeBare(std::string_view, SpecialText) const override { return {}; }
  void AppendBytes(TokenId, bool, std::string&) const override {}
  std::string TokenText(TokenId id) const override { return "token_id:" + std::to_string(id); }

 private:
  int64_t vocab_size_;
};

}  // namespace spillway
