#include "src/tokenizer/bpe_tokenizer.h"

#include <algorithm>
#include <utility>

namespace spillway {
namespace {

// The token as it is looked for in a text, which is also what the reference decodes it to.
std::string TextOf(const AddedToken& token, const BpeParts& parts) {
  return token.normalized ? Normalize(parts.normalizer, token.content) : token.content;
}

AddedTokenFinder MakeFinder(const BpeParts& parts, bool normalized) {
  std::vector<AddedToken> tokens;
  std::vector<std::string> patterns;
  for (const AddedToken& token : parts.added_tokens) {
    if (token.normalized != normalized) continue;
    tokens.push_back(token);
    patterns.push_back(TextOf(token, parts));
  }
  return AddedTokenFinder(std::move(tokens), patterns);
}

}  // namespace

BpeTokenizer::BpeTokenizer(BpeParts parts)
    : parts_(std::move(parts)),
      bound_(parts_),
      raw_tokens_(MakeFinder(parts_, false)),
      normalized_tokens_(MakeFinder(parts_, true)) {
  const auto entry = [&](TokenId id) -> Entry& {
    const auto at = static_cast<std::size_t>(id);
    if (at >= entries_.size()) entries_.resize(at + 1);
    return entries_[at];
  };
  for (const auto& [text, id] : parts_.model.vocabulary()) entry(id) = {text, false};
  for (const AddedToken& token : parts_.added_tokens)
    entry(token.id) = {TextOf(token, parts_), token.special};
}

std::string_view BpeTokenizer::kind() const {
  if (!parts_.kind.empty()) return parts_.kind;
  return parts_.decoder.byte_level ? "byte-level BPE" : "BPE";
}

std::vector<TokenId> BpeTokenizer::Encode(std::string_view utf8, SpecialText special) const {
  std::vector<TokenId> out = parts_.start;
  const std::vector<TokenId> bare = EncodeBare(utf8, special);
  out.insert(out.end(), bare.begin(), bare.end());
  out.insert(out.end(), parts_.end.begin(), parts_.end.end());
  return out;
}

std::vector<TokenId> BpeTokenizer::EncodeBare(std::string_view utf8, SpecialText special) const {
  std::vector<TokenId> out;
  bool opens_text = true;
  for (const Segment& segment : raw_tokens_.Split(utf8, special)) {
    if (segment.id >= 0) {
      out.push_back(segment.id);
      opens_text = false;
      continue;
    }
    const std::string normalized = Normalize(parts_.normalizer, segment.text);
    for (const Segment& inner : normalized_tokens_.Split(normalized, special)) {
      if (inner.id >= 0) {
        out.push_back(inner.id);
      } else {
        EncodeText(inner.text, opens_text, out);
      }
      opens_text = false;
    }
  }
  return out;
}

void BpeTokenizer::EncodeText(std::string_view text, bool opens_text,
                              std::vector<TokenId>& out) const {
  const Pieces pieces = PreTokenize(parts_.pre_tokenizer, text, opens_text);
  for (std::size_t i = 0; i < pieces.ends.size(); ++i) parts_.model.Encode(pieces.Piece(i), out);
}

const BpeTokenizer::Entry* BpeTokenizer::Find(TokenId id) const {
  const auto at = static_cast<std::size_t>(id);
  return id >= 0 && at < entries_.size() ? &entries_[at] : nullptr;
}

void BpeTokenizer::AppendBytes(TokenId id, bool first, std::string& out) const {
  const Entry* entry = Find(id);
  if (entry == nullptr || entry->silent) return;
  out += first ? FirstTokenBytes(parts_.decoder, entry->text)
               : TokenBytes(parts_.decoder, entry->text);
}

std::string BpeTokenizer::TokenText(TokenId id) const {
  const Entry* entry = Find(id);
  return entry == nullptr ? std::string() : entry->text;
}

}  // namespace spillway
