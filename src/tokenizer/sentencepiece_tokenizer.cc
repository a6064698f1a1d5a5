#include "src/tokenizer/sentencepiece_tokenizer.h"

#include <fmt/format.h>
#include <sentencepiece_processor.h>

#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "spillway/error.h"
#include "src/tokenizer/added_tokens.h"
#include "src/tokenizer/chars_map.h"
#include "src/tokenizer/decoder.h"
#include "src/tokenizer/json_file.h"
#include "src/tokenizer/sentencepiece_bpe.h"
#include "src/tokenizer/sentencepiece_file.h"
#include "src/tokenizer/vocabulary.h"
#include "src/unicode/utf8.h"

namespace spillway {
namespace {

using sentencepiece::SentencePieceProcessor;
using Type = SentencePiece::Type;

// A second normalizer_spec (field 3) with add_dummy_prefix (field 3) = false: equal messages of a
// protocol buffer merge.
constexpr std::string_view kNoDummyPrefix("\x1A\x02\x18\x00", 4);

struct SentencePieceParts {
  SentencePieceFile file;
  std::vector<AddedToken> added_tokens;
  std::vector<TokenId> start;
  std::vector<TokenId> end;
  bool legacy = false;  // the space in front also behind special tokens
};

class SentencePieceTokenizer : public Tokenizer {
 public:
  SentencePieceTokenizer(SentencePieceParts parts, const std::filesystem::path& file)
      : is_unigram_(parts.file.model == SentencePieceFile::Model::kUnigram),
        start_(std::move(parts.start)),
        end_(std::move(parts.end)),
        legacy_(parts.legacy),
        added_tokens_(parts.added_tokens, Contents(parts.added_tokens)) {
    Load(parts.file.bytes, file, opening_);
    Load(parts.file.bytes + std::string(kNoDummyPrefix), file, following_);
    joined_pairs_ = JoinedPairs(parts.file.chars_map);
    decoder_.replace = ReplaceStep{"\xE2\x96\x81", " "};
    decoder_.strip = std::string(1, ' ');
    decoder_.strip_start =
        parts.file.add_dummy_prefix || parts.file.remove_extra_whitespaces ? 1 : 0;
    for (SentencePiece& piece : parts.file.pieces) pieces_.push_back(std::move(piece));
    for (const AddedToken& token : parts.added_tokens) {
      const auto at = static_cast<std::size_t>(token.id);
      if (at >= pieces_.size()) pieces_.resize(at + 1, {"", Type::kUnused});
      pieces_[at] = {token.content, token.special ? Type::kControl : Type::kUserDefined};
    }
  }

  std::string_view kind() const override {
    return is_unigram_ ? "SentencePiece unigram" : "SentencePiece BPE";
  }
  int64_t vocab_size() const override { return static_cast<int64_t>(pieces_.size()); }

  std::vector<TokenId> Encode(std::string_view utf8, SpecialText special) const override {
    std::vector<TokenId> out = start_;
    const std::vector<TokenId> bare = EncodeBare(utf8, special);
    out.insert(out.end(), bare.begin(), bare.end());
    out.insert(out.end(), end_.begin(), end_.end());
    return out;
  }

  std::vector<TokenId> EncodeBare(std::string_view utf8, SpecialText special) const override {
    std::vector<TokenId> out;
    bool opens_text = true;
    for (const Segment& segment : added_tokens_.Split(utf8, special)) {
      if (segment.id >= 0) {
        out.push_back(segment.id);
      } else {
        EncodeText(segment.text, opens_text || legacy_, out);
      }
      opens_text = false;
    }
    return out;
  }

  void AppendBytes(TokenId id, bool first, std::string& out) const override {
    const SentencePiece* piece = Find(id);
    if (piece == nullptr || piece->type == Type::kControl || piece->type == Type::kUnknown) return;
    if (piece->type == Type::kByte) {
      out += static_cast<char>(ByteOfToken(piece->text).value_or('?'));
      return;
    }
    out += first ? FirstTokenBytes(decoder_, piece->text) : TokenBytes(decoder_, piece->text);
  }

  std::string TokenText(TokenId id) const override {
    const SentencePiece* piece = Find(id);
    return piece == nullptr ? std::string() : piece->text;
  }

 private:
  static std::vector<std::string> Contents(const std::vector<AddedToken>& tokens) {
    std::vector<std::string> contents;
    for (const AddedToken& token : tokens) contents.push_back(token.content);
    return contents;
  }

  static void Load(const std::string& bytes, const std::filesystem::path& file,
                   SentencePieceProcessor& out) {
    const auto status = out.LoadFromSerializedProto(bytes);
    if (!status.ok())
      RefuseTokenizer(
          file, fmt::format("SentencePiece does not take it: {}", Printable(status.message())));
  }

  static std::vector<int> Ids(const SentencePieceProcessor& processor, std::string_view text) {
    std::vector<int> ids;
    if (!processor.Encode(text, &ids).ok()) {
      throw Error(ErrorCode::kTokenizer,
                  "SentencePiece could not encode a text; report this with the text");
    }
    return ids;
  }

  // The library joins a run of unknown characters in time that grows with its square: long texts
  // are cut within such runs, where no piece and no normalisation reaches over, and the two halves
  // of the unknown token become one again.
  void EncodeText(std::string_view text, bool with_space, std::vector<TokenId>& out) const {
    UnknownChars unknown;
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t end = CutAfter(text, at, unknown);
      const std::vector<int> ids =
          Ids(at == 0 && with_space ? opening_ : following_, text.substr(at, end - at));
      const bool continues = at > 0 && !ids.empty();
      out.insert(out.end(), ids.begin() + (continues ? 1 : 0), ids.end());
      at = end;
    }
  }

  using UnknownChars = std::unordered_map<char32_t, bool>;

  bool IsUnknown(char32_t c, UnknownChars& known) const {
    const auto [entry, added] = known.try_emplace(c, false);
    if (added) {
      std::string text;
      AppendCodePoint(c, text);
      const std::vector<int> ids = Ids(following_, text);
      entry->second = ids.size() == 1 && ids[0] == following_.unk_id();
    }
    return entry->second;
  }

  // The first place to cut that is kMinPart bytes or more behind `at`, or the end.
  std::size_t CutAfter(std::string_view text, std::size_t at, UnknownChars& unknown) const {
    constexpr std::size_t kMinPart = 4096;
    if (text.size() - at <= 2 * kMinPart || joined_pairs_.size() >= kMaxJoinedPairs)
      return text.size();
    std::size_t cut = at + kMinPart;
    while ((static_cast<unsigned char>(text[cut]) & 0xC0) == 0x80) ++cut;
    CodePoint before = CodePointBefore(text, cut);
    while (cut < text.size()) {
      const CodePoint next = CodePointAt(text, cut);
      const bool joined = joined_pairs_.contains(CharPair(before.value, next.value));
      if (!joined && IsUnknown(before.value, unknown) && IsUnknown(next.value, unknown)) return cut;
      before = next;
      cut += next.bytes;
    }
    return cut;
  }

  const SentencePiece* Find(TokenId id) const {
    const auto at = static_cast<std::size_t>(id);
    return id >= 0 && at < pieces_.size() ? &pieces_[at] : nullptr;
  }

  bool is_unigram_;
  std::vector<TokenId> start_;
  std::vector<TokenId> end_;
  bool legacy_;
  AddedTokenFinder added_tokens_;
  SentencePieceProcessor opening_;    // with the space in front, if the model has one
  SentencePieceProcessor following_;  // without
  std::unordered_set<uint64_t> joined_pairs_;
  Decoder decoder_;
  std::vector<SentencePiece> pieces_;  // by id
};

// Control pieces and the unknown piece are special tokens; user-defined ones the library finds
// itself.
std::vector<AddedToken> SpecialPieces(const SentencePieceFile& model) {
  std::vector<AddedToken> tokens;
  for (const SentencePiece& piece : model.pieces) {
    if (piece.type != Type::kControl && piece.type != Type::kUnknown) continue;
    AddedToken token;
    token.content = piece.text;
    token.special = true;
    tokens.push_back(std::move(token));
  }
  return tokens;
}

// A plain BPE tokenizer finds user-defined pieces before it takes the text apart.
void AddUserDefined(const SentencePieceFile& model, std::vector<AddedToken>& tokens) {
  for (const SentencePiece& piece : model.pieces) {
    if (piece.type != Type::kUserDefined) continue;
    AddedToken token;
    token.content = piece.text;
    tokens.push_back(std::move(token));
  }
}

// The token for the start or end: the named one, else the file's first form of it, else none.
std::vector<TokenId> FrameToken(bool wanted, const std::string& named, const char* usual,
                                const SentencePieceParts& parts,
                                const std::filesystem::path& file) {
  if (!wanted) return {};
  if (!named.empty()) return {IdOfAdded(parts.added_tokens, named, file)};
  for (const AddedToken& token : parts.added_tokens) {
    if (token.content == usual) return {token.id};
  }
  return {};
}

}  // namespace

std::unique_ptr<Tokenizer> OpenSentencePiece(const std::filesystem::path& file,
                                             const FolderSettings& settings, int64_t vocab_rows) {
  SentencePieceParts parts;
  parts.file = ReadSentencePieceFile(file);
  StringMap<TokenId> vocabulary;
  for (const SentencePiece& piece : parts.file.pieces) {
    const auto id = static_cast<TokenId>(vocabulary.size());
    CheckRow(id, piece.text, vocab_rows, file);
    vocabulary.emplace(piece.text, id);
  }
  std::vector<AddedToken> required = SpecialPieces(parts.file);
  if (IsPlainBpe(parts.file, settings)) AddUserDefined(parts.file, required);
  required.insert(required.end(), settings.added_tokens.begin(), settings.added_tokens.end());
  parts.added_tokens =
      PlaceAddedTokens(required, settings.named_tokens, vocabulary, vocab_rows, file);
  SplitSpecials(settings, parts.added_tokens);
  // LLaMA's tokenizer puts its start token in front unless told otherwise.
  parts.start = FrameToken(settings.add_bos.value_or(true), settings.bos, "<s>", parts, file);
  parts.end = FrameToken(settings.add_eos.value_or(false), settings.eos, "</s>", parts, file);
  if (IsPlainBpe(parts.file, settings)) {
    BpeParts plain = MakePlainBpe(parts.file, settings, std::move(parts.added_tokens));
    plain.start = std::move(parts.start);
    plain.end = std::move(parts.end);
    plain.kind = "SentencePiece BPE";
    return std::make_unique<BpeTokenizer>(std::move(plain));
  }
  // Without a class of its own, transformers takes the older way for the default.
  parts.legacy = settings.legacy.value_or(settings.tokenizer_class.empty());
  return std::make_unique<SentencePieceTokenizer>(std::move(parts), file);
}

}  // namespace spillway
