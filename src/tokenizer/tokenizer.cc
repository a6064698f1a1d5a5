#include "src/tokenizer/tokenizer.h"

#include <fmt/format.h>

#include "spillway/error.h"
#include "src/tokenizer/bpe_tokenizer.h"
#include "src/tokenizer/folder_settings.h"
#include "src/tokenizer/gpt2_files.h"
#include "src/tokenizer/sentencepiece_tokenizer.h"
#include "src/tokenizer/token_index.h"
#include "src/tokenizer/tokenizer_json.h"
#include "src/unicode/utf8.h"

namespace spillway {

Tokenizer::Tokenizer() = default;
Tokenizer::~Tokenizer() = default;

const TokenIndex& Tokenizer::Index() const {
  std::call_once(indexed_, [&] { index_ = std::make_unique<const TokenIndex>(*this); });
  return *index_;
}

std::string Tokenizer::Decode(std::span<const TokenId> ids) const {
  std::string bytes;
  bool first = true;
  for (const TokenId id : ids) {
    const std::size_t before = bytes.size();
    AppendBytes(id, false, bytes);
    if (!first || bytes.size() == before) continue;
    // Only now is it known that the token has a text and opens it.
    bytes.resize(before);
    AppendBytes(id, true, bytes);
    first = false;
  }
  return ReplaceInvalidUtf8(bytes);
}

std::unique_ptr<Tokenizer> OpenTokenizer(const std::filesystem::path& folder, int64_t vocab_rows) {
  std::error_code ignored;
  const auto has = [&](const char* name) {
    return std::filesystem::exists(std::filesystem::symlink_status(folder / name, ignored));
  };
  if (has("tokenizer.json")) {
    return std::make_unique<BpeTokenizer>(
        ReadTokenizerJson(folder / "tokenizer.json", ReadFolderSettings(folder), vocab_rows));
  }
  if (has("vocab.json") || has("merges.txt")) {
    return std::make_unique<BpeTokenizer>(
        ReadGpt2Files(folder, ReadFolderSettings(folder), vocab_rows));
  }
  if (has("tokenizer.model")) {
    return OpenSentencePiece(folder / "tokenizer.model", ReadFolderSettings(folder), vocab_rows);
  }
  throw Error(
      ErrorCode::kModelMissing,
      fmt::format(
          "{}: has no tokenizer.json, no vocab.json with merges.txt and no tokenizer.model; "
          "put the model's beside config.json, give --tokenizer DIR, or --tokenizer none for "
          "prompts of token_ids",
          Printable(folder.string())));
}

}  // namespace spillway
