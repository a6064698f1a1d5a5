// FakeTokenizer: bytes and a few longer pieces as tokens, so that tests can say exactly what each
// id stands for.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "src/tokenizer/tokenizer.h"

namespace spillway {

class FakeTokenizer : public Tokenizer {
 public:
  static constexpr TokenId kPad = 0;
  static constexpr TokenId kStart = 1;
  static constexpr TokenId kEnd = 2;
  static constexpr TokenId kFirstByte = 3;
  static constexpr TokenId kFirstPiece = kFirstByte + 256;

  explicit FakeTokenizer(std::vector<std::string> pieces = {}) : pieces_(std::move(pieces)) {}

  static TokenId Byte(char byte) { return kFirstByte + static_cast<unsigned char>(byte); }
  static TokenId Piece(std::size_t index) { return kFirstPiece + static_cast<TokenId>(index); }

  std::string_view kind() const override { return "fake"; }
  int64_t vocab_size() const override { return kFirstPiece + static_cast<int64_t>(pieces_.size()); }

  // Bytes only, never pieces; "</s>" is the end token when special text is parsed.
  std::vector<TokenId> Encode(std::string_view utf8, SpecialText special) const override {
    std::vector<TokenId> ids = EncodeBare(utf8, special);
    ids.insert(ids.begin(), kStart);
    return ids;
  }

  std::vector<TokenId> EncodeBare(std::string_view utf8, SpecialText special) const override {
    std::vector<TokenId> ids;
    for (std::size_t at = 0; at < utf8.size();) {
      const bool is_end = special == SpecialText::kParse && utf8.substr(at).starts_with("</s>");
      ids.push_back(is_end ? kEnd : Byte(utf8[at]));
      at += is_end ? 4 : 1;
    }
    return ids;
  }

  // A piece that starts with a space loses it when it opens the text, as SentencePiece's do.
  void AppendBytes(TokenId id, bool first, std::string& out) const override {
    if (id < kFirstByte || id >= vocab_size()) return;
    if (id < kFirstPiece) {
      out += static_cast<char>(id - kFirstByte);
      return;
    }
    const std::string& piece = pieces_[static_cast<std::size_t>(id - kFirstPiece)];
    out += first && piece.starts_with(' ') ? piece.substr(1) : piece;
  }

  std::string TokenText(TokenId id) const override {
    if (id == kPad) return "<pad>";
    if (id == kStart) return "<s>";
    if (id == kEnd) return "</s>";
    std::string bytes;
    AppendBytes(id, false, bytes);
    return bytes;
  }

 private:
  std::vector<std::string> pieces_;
};

// Cuts a text into the longest pieces that there are.
class PieceTokenizer : public FakeTokenizer {
 public:
  using FakeTokenizer::FakeTokenizer;

  std::vector<TokenId> EncodeBare(std::string_view utf8, SpecialText) const override {
    std::vector<TokenId> ids;
    while (!utf8.empty()) {
      TokenId longest = Byte(utf8.front());
      std::size_t size = 1;
      for (TokenId id = kFirstPiece; id < vocab_size(); ++id) {
        const std::string piece = TokenText(id);
        if (piece.size() <= size || !utf8.starts_with(piece)) continue;
        longest = id;
        size = piece.size();
      }
      ids.push_back(longest);
      utf8.remove_prefix(size);
    }
    return ids;
  }
};

}  // namespace spillway
