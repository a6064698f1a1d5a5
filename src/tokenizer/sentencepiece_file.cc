#include "src/tokenizer/sentencepiece_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <unordered_set>

#include "spillway/error.h"
#include "src/tokenizer/decoder.h"  // ByteOfToken
#include "src/tokenizer/json_file.h"
#include "src/tokenizer/protobuf_reader.h"
#include "src/tokenizer/utf8.h"

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

// The library's arrays for what a lookup finds.
constexpr int kMaxCharsMapResults = 32;
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
    if (field->number == kCharsMap && !field->bytes.empty() && !IsSoundCharsMap(field->bytes)) {
      RefuseTokenizer(file, "has a damaged normalisation table");
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

// One unit of the library's double array: a node, or a leaf's value (bit 31).
class Unit {
 public:
  explicit Unit(uint32_t bits) : bits_(bits) {}
  bool has_leaf() const { return (bits_ >> 8 & 1) != 0; }
  uint32_t value() const { return bits_ & 0x7FFFFFFFu; }
  uint32_t label() const { return bits_ & 0x800000FFu; }
  uint32_t offset() const { return (bits_ >> 10) << ((bits_ & 0x200u) >> 6); }

 private:
  uint32_t bits_;
};

uint32_t LoadU32(std::string_view bytes, std::size_t at) {
  uint32_t value = 0;
  std::memcpy(&value, bytes.data() + at, sizeof value);
  return value;
}

// Walks every path of a double array, which is a graph without circles: equal ends of keys are
// shared.
class CharsMapWalk {
 public:
  CharsMapWalk(std::string_view trie, std::size_t num_text_bytes)
      : trie_(trie),
        num_units_(trie.size() / 4),
        num_text_bytes_(num_text_bytes),
        results_(num_units_, kUnseen) {}

  // True when every step and every leaf stays inside, and no path has more leaves than the library
  // has room for.
  bool IsSound() {
    if (num_units_ == 0 || !Enter(0)) return false;
    while (!path_.empty()) {
      Step& step = path_.back();
      if (step.byte == 256) {
        Leave();
        continue;
      }
      const std::size_t child = step.children ^ step.byte;
      if (UnitAt(child).label() != step.byte++) continue;
      if (results_[child] == kOnPath) return false;
      if (results_[child] == kUnseen && !Enter(child)) return false;
      if (results_[child] >= 0) step.num_leaves = std::max(step.num_leaves, results_[child]);
    }
    return results_[0] <= kMaxCharsMapResults;
  }

 private:
  static constexpr int kUnseen = -2;
  static constexpr int kOnPath = -1;

  struct Step {
    std::size_t node;
    std::size_t children;  // the child for a byte is at children ^ byte
    std::size_t byte;      // the next one to look at; 0 is the leaf
    int num_leaves;        // the most on any path below
  };

  Unit UnitAt(std::size_t at) const { return Unit(LoadU32(trie_, at * 4)); }

  bool Enter(std::size_t node) {
    const std::size_t children = node ^ UnitAt(node).offset();
    if ((children | 0xFF) >= num_units_) return false;
    if (UnitAt(node).has_leaf() && UnitAt(children).value() >= num_text_bytes_) return false;
    results_[node] = kOnPath;
    path_.push_back({node, children, 1, 0});
    return true;
  }

  void Leave() {
    const Step step = path_.back();
    path_.pop_back();
    results_[step.node] = step.num_leaves + (UnitAt(step.node).has_leaf() ? 1 : 0);
    if (!path_.empty())
      path_.back().num_leaves = std::max(path_.back().num_leaves, results_[step.node]);
  }

  std::string_view trie_;
  std::size_t num_units_;
  std::size_t num_text_bytes_;
  std::vector<int> results_;  // by node: the most leaves on any path from it on
  std::vector<Step> path_;    // from the root
};

}  // namespace

bool IsSoundCharsMap(std::string_view table) {
  if (table.size() < 4) return false;
  const std::size_t trie_bytes = LoadU32(table, 0);
  if (trie_bytes % 4 != 0 || trie_bytes >= table.size() - 4 || table.back() != '\0') return false;
  return CharsMapWalk(table.substr(4, trie_bytes), table.size() - 4 - trie_bytes).IsSound();
}

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
