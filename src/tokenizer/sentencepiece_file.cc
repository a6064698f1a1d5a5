#include "src/tokenizer/sentencepiece_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <unordered_set>

#include "spillway/error.h"
#include "src/tokenizer/chars_map.h"
#include "src/tokenizer/decoder.h"  // ByteOfToken
#include "src/tokenizer/json_file.h"
#include "src/tokenizer/protobuf_reader.h"
#include "src/unicode/utf8.h"

namespace spillway {
namespace {

using Path = std::filesystem::path;
using Type = SentencePiece::Type;

// Field numbers of sentencepiece_model.proto.
constexpr uint64_t kPieces = 1, kTrainerSpec = 2, kNormalizerSpec = 3, kDenormalizerSpec = 5;
constexpr uint64_t kPieceText = 1, kPieceScore = 2, kPieceType = 3;
constexpr uint64_t kModelType = 3, kWhitespaceAsSuffix = 24;
constexpr uint64_t kCharsMap = 2, kAddDummyPrefix = 3, kRemoveExtraWhitespaces = 4,
                   kEscapeWhitespaces = 5;

// The library's array for what a lookup finds.
constexpr std::size_t kMaxUserDefinedResults = 64;

SentencePiece ReadPiece(std::string_view message, const Path& file) {
  SentencePiece piece;
  ProtobufReader reader(message);
  while (const auto field = reader.Next()) {
    if (field->number == kPieceText) piece.text = field->bytes;
    if (field->number == kPieceType) {
      if (field->value < 1 || field->value > 6)
        RefuseTokenizer(file, fmt::format("a piece has the type {}", field->value));
      piece.type = static_cast<Type>(field->value);
    }
    if (field->number == kPieceScore) {
      float score = 0;
      if (field->bytes.size() != sizeof score)
        RefuseTokenizer(file, "a piece's score is not a float");
      std::memcpy(&score, field->bytes.data(), sizeof score);
      if (!std::isfinite(score)) RefuseTokenizer(file, "a piece's score is not a finite number");
    }
  }
  if (!reader.ok()) RefuseTokenizer(file, "is not a SentencePiece model, or damaged");
  return piece;
}

void ReadTrainerSpec(std::string_view message, const Path& file, SentencePieceFile& out) {
  ProtobufReader reader(message);
  while (const auto field = reader.Next()) {
    if (field->number == kModelType) {
      if (field->value != 1 && field->value != 2)
        RefuseTokenizer(file,
                        "is a SentencePiece model of words or characters, which is not supported",
                        "use a unigram or BPE model");
      out.model = static_cast<SentencePieceFile::Model>(field->value);
    }
    if (field->number == kWhitespaceAsSuffix && field->value != 0) {
      RefuseTokenizer(file, "puts spaces at the end of pieces, which is not supported",
                      "use a model with spaces in front");
    }
  }
  if (!reader.ok()) RefuseTokenizer(file, "is not a SentencePiece model, or damaged");
}

void ReadNormalizerSpec(std::string_view message, const Path& file, SentencePieceFile& out) {
  ProtobufReader reader(message);
  while (const auto field = reader.Next()) {
    if (field->number == kCharsMap && !field->bytes.empty()) {
      if (!IsSoundCharsMap(field->bytes))
        RefuseTokenizer(file, "has a damaged normalisation table");
      out.chars_map = field->bytes;
    }
    if (field->number == kAddDummyPrefix) out.add_dummy_prefix = field->value != 0;
    if (field->number == kRemoveExtraWhitespaces) out.remove_extra_whitespaces = field->value != 0;
    if (field->number == kEscapeWhitespaces && field->value == 0) {
      RefuseTokenizer(file, "leaves spaces as they are, which is not supported",
                      "use a model that writes them as U+2581");
    }
  }
  if (!reader.ok()) RefuseTokenizer(file, "is not a SentencePiece model, or damaged");
}

void CheckPieces(const std::vector<SentencePiece>& pieces, const Path& file) {
  if (pieces.empty()) RefuseTokenizer(file, "is not a SentencePiece model: it has no pieces");
  std::unordered_set<std::string_view> seen;
  std::size_t num_unknown = 0;
  for (const SentencePiece& piece : pieces) {
    if (piece.text.empty()) RefuseTokenizer(file, "has an empty piece");
    if (!IsValidUtf8(piece.text))
      RefuseTokenizer(file,
                      fmt::format("the piece \"{}\" is not valid UTF-8", Printable(piece.text)));
    if (!seen.insert(piece.text).second)
      RefuseTokenizer(file, fmt::format("the piece \"{}\" occurs twice", Printable(piece.text)));
    if (piece.type == Type::kByte && !ByteOfToken(piece.text)) {
      RefuseTokenizer(
          file, fmt::format("the byte token \"{}\" does not name a byte", Printable(piece.text)));
    }
    if (piece.type == Type::kUnknown) ++num_unknown;
  }
  if (num_unknown != 1)
    RefuseTokenizer(file, fmt::format("has {} pieces for unknown text, not one", num_unknown));
}

void CheckUserDefined(const std::vector<SentencePiece>& pieces, const Path& file) {
  std::vector<std::string_view> sorted;
  for (const SentencePiece& piece : pieces) {
    if (piece.type == Type::kUserDefined) sorted.push_back(piece.text);
  }
  std::sort(sorted.begin(), sorted.end());
  std::vector<std::string_view> prefixes;  // of the current one, each a prefix of the next
  for (const std::string_view text : sorted) {
    while (!prefixes.empty() && !text.starts_with(prefixes.back())) prefixes.pop_back();
    prefixes.push_back(text);
    if (prefixes.size() > kMaxUserDefinedResults) {
      RefuseTokenizer(file, fmt::format("more than {} user-defined pieces begin with one another",
                                        kMaxUserDefinedResults));
    }
  }
}

}  // namespace

SentencePieceFile ReadSentencePieceFile(const Path& file) {
  SentencePieceFile out;
  out.bytes = ReadTokenizerFile(file);
  ProtobufReader reader(out.bytes);
  while (const auto field = reader.Next()) {
    if (field->number == kPieces) out.pieces.push_back(ReadPiece(field->bytes, file));
    if (field->number == kTrainerSpec) ReadTrainerSpec(field->bytes, file, out);
    if (field->number == kNormalizerSpec) ReadNormalizerSpec(field->bytes, file, out);
    if (field->number == kDenormalizerSpec) {
      SentencePieceFile unused;
      ReadNormalizerSpec(field->bytes, file, unused);
    }
  }
  if (!reader.ok()) RefuseTokenizer(file, "is not a SentencePiece model, or damaged");
  CheckPieces(out.pieces, file);
  CheckUserDefined(out.pieces, file);
  return out;
}

}  // namespace spillway
