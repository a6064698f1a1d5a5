// Text <-> token ids, the same ids as the Hugging Face tokenizer of the folder.
// Thread rule: immutable after opening; const methods from any thread.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "spillway/model.h"  // TokenId
#include "spillway/special_text.h"

namespace spillway {

class TokenIndex;

class Tokenizer {
 public:
  Tokenizer();
  virtual ~Tokenizer();

  // "byte-level BPE", "SentencePiece ..."; for `inspect`.
  virtual std::string_view kind() const = 0;

  // One more than the largest id that can come out of Encode.
  virtual int64_t vocab_size() const = 0;

  // Whether Encode can be used; false where a model comes without a tokenizer and prompts must be
  // token ids.
  virtual bool encodes_text() const { return true; }

  // The ids of `utf8`, with the start token in front where the family's tokenizer adds one.
  // Requires: valid UTF-8. Linear in the length; no recursion.
  virtual std::vector<TokenId> Encode(std::string_view utf8, SpecialText special) const = 0;

  // The ids of `utf8` alone, as where add_special_tokens is false: a text that has its special
  // tokens written in it.
  virtual std::vector<TokenId> EncodeBare(std::string_view utf8, SpecialText special) const = 0;

  // Tokens that EncodeBare makes of `utf8` at least, as far as its bytes alone tell; 0: nothing is
  // known. Takes a pass over the text, where encoding takes a hundred times that.
  virtual int64_t LeastTokens(std::string_view /*utf8*/) const { return 0; }

  // The bytes that `id` stands for, appended to `out`: special tokens, holes and ids out of range
  // append nothing. A token may hold a part of a UTF-8 character; `first` says that it opens the
  // text (SentencePiece drops a space).
  virtual void AppendBytes(TokenId id, bool first, std::string& out) const = 0;

  // The piece as the vocabulary spells it in UTF-8 (special tokens too), as logprobs print it.
  virtual std::string TokenText(TokenId id) const = 0;

  // The text of `ids`: AppendBytes of each; bytes that are no UTF-8 become U+FFFD as Python's
  // errors="replace" does.
  std::string Decode(std::span<const TokenId> ids) const;

  // The tokens by their bytes; made at the first call, which takes a pass over the vocabulary.
  const TokenIndex& Index() const;

 private:
  mutable std::once_flag indexed_;
  mutable std::unique_ptr<const TokenIndex> index_;
};

// Opens folder/tokenizer.json, else vocab.json + merges.txt, else tokenizer.model. `vocab_rows` is
// the number of rows of the embedding: an id that the model has no row for is refused here. Throws:
// Error kTokenizer (malformed, unsupported part by name, ids out of range), kModelMissing (no
// tokenizer file).
std::unique_ptr<Tokenizer> OpenTokenizer(const std::filesystem::path& folder, int64_t vocab_rows);

}  // namespace spillway
