#include "src/tokenizer/sentencepiece_bpe.h"

#include <algorithm>
#include <string>
#include <tuple>
#include <utility>

#include "src/tokenizer/class_parts.h"

namespace spillway {
namespace {

using Type = SentencePiece::Type;

// A piece made of two others: BPE joins them in the order of the whole's id, then of the parts'
// lengths in characters.
struct Join {
  TokenId whole;
  std::size_t left_chars;
  std::size_t right_chars;
  BpeModel::Merge parts;
};

bool IsCharStart(char byte) { return (static_cast<unsigned char>(byte) & 0xC0) != 0x80; }

std::size_t NumChars(std::string_view text) {
  return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), IsCharStart));
}

void AddJoins(const std::string& piece, TokenId id, const StringMap<TokenId>& vocabulary,
              std::vector<Join>& out) {
  for (std::size_t cut = 1; cut < piece.size(); ++cut) {
    if (!IsCharStart(piece[cut])) continue;
    std::string left = piece.substr(0, cut), right = piece.substr(cut);
    if (!vocabulary.contains(left) || !vocabulary.contains(right)) continue;
    const std::size_t left_chars = NumChars(left), right_chars = NumChars(right);
    out.push_back({id, left_chars, right_chars, {std::move(left), std::move(right)}});
  }
}

std::vector<BpeModel::Merge> MergesOf(const SentencePieceFile& model,
                                      const StringMap<TokenId>& vocabulary) {
  std::vector<Join> joins;
  for (std::size_t id = 0; id < model.pieces.size(); ++id)
    AddJoins(model.pieces[id].text, static_cast<TokenId>(id), vocabulary, joins);
  const auto rank = [](const Join& join) {
    return std::tuple(join.whole, join.left_chars, join.right_chars);
  };
  std::ranges::stable_sort(joins, {}, rank);
  std::vector<BpeModel::Merge> merges;
  for (Join& join : joins) merges.push_back(std::move(join.parts));
  return merges;
}

}  // namespace

bool IsPlainBpe(const SentencePieceFile& model, const FolderSettings& settings) {
  if (model.model != SentencePieceFile::Model::kBpe || !model.chars_map.empty() ||
      model.remove_extra_whitespaces)
    return false;
  const ClassParts kind = PartsOf(settings.tokenizer_class);
  if (kind == ClassParts::kGemma) return true;
  return model.add_dummy_prefix && (kind == ClassParts::kLlama || !settings.legacy.value_or(true));
}

BpeParts MakePlainBpe(const SentencePieceFile& model, const FolderSettings& settings,
                      std::vector<AddedToken> added) {
  StringMap<TokenId> vocabulary;
  for (const SentencePiece& piece : model.pieces)
    vocabulary.emplace(piece.text, static_cast<TokenId>(vocabulary.size()));
  const ClassParts named = PartsOf(settings.tokenizer_class);
  const ClassParts kind = named == ClassParts::kGemma ? named : ClassParts::kLlama;
  BpeOptions options = OptionsOf(kind, settings);
  if (options.unknown && !vocabulary.contains(*options.unknown)) options.unknown.reset();
  std::vector<BpeModel::Merge> merges = MergesOf(model, vocabulary);
  BpeParts parts{BpeModel(std::move(vocabulary), merges, std::move(options)),
                 std::move(added),
                 {},
                 {},
                 {},
                 {},
                 {},
                 {}};
  ApplyClass(kind, settings, parts);
  return parts;
}

}  // namespace spillway
