#include "src/tokenizer/gpt2_files.h"

#include <fmt/format.h>

#include <stdexcept>

#include "spillway/error.h"
#include "src/tokenizer/class_parts.h"
#include "src/tokenizer/json_file.h"
#include "src/tokenizer/vocabulary.h"
#include "src/unicode/utf8.h"

namespace spillway {
namespace {

constexpr std::size_t kMaxMerges = 4'000'000;

// "left right" in each line; "#version" lines and empty lines at the end do not count.
std::vector<BpeModel::Merge> ReadMerges(const std::filesystem::path& file) {
  const std::string bytes = ReadTokenizerFile(file);
  if (!IsValidUtf8(bytes)) RefuseTokenizer(file, "is not valid UTF-8");
  std::vector<BpeModel::Merge> merges;
  std::size_t line_number = 0;
  const std::string_view text =
      std::string_view(bytes).substr(0, bytes.find_last_not_of("\r\n") + 1);
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    std::string_view line = text.substr(at, end - at);
    at = end + 1;
    ++line_number;
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.starts_with("#version")) continue;
    const std::size_t space = line.find(' ');
    if (space == 0 || space == std::string_view::npos || space + 1 == line.size() ||
        line.find(' ', space + 1) != std::string_view::npos) {
      RefuseTokenizer(file, fmt::format("line {} is \"{}\", not two tokens with a space between",
                                        line_number, Printable(line)));
    }
    if (merges.size() == kMaxMerges)
      RefuseTokenizer(file, fmt::format("has more than {} merges", kMaxMerges));
    merges.emplace_back(line.substr(0, space), line.substr(space + 1));
  }
  return merges;
}

BpeModel MakeModel(StringMap<TokenId> vocabulary, const std::filesystem::path& merges_file) {
  try {
    return BpeModel(std::move(vocabulary), ReadMerges(merges_file), {});
  } catch (const std::invalid_argument& fault) {
    RefuseTokenizer(merges_file, fault.what());
  }
}

// An OPT folder that names no start token still has OPT's own.
FolderSettings WithOptDefaults(FolderSettings settings, const StringMap<TokenId>& vocabulary) {
  if (settings.model_type != "opt" || vocabulary.contains(settings.bos) ||
      !vocabulary.contains("</s>"))
    return settings;
  AddedToken token;
  token.content = settings.bos = "</s>";
  token.special = true;
  settings.named_tokens.insert(settings.named_tokens.begin(), token);
  if (!settings.add_bos) settings.add_bos = true;
  return settings;
}

}  // namespace

BpeParts ReadGpt2Files(const std::filesystem::path& folder, const FolderSettings& given,
                       int64_t vocab_rows) {
  const std::filesystem::path vocab_file = folder / "vocab.json";
  const nlohmann::json document = ReadJsonObject(vocab_file);
  const JsonOrigin origin = TokenizerOrigin(vocab_file);
  StringMap<TokenId> vocabulary = ReadVocabulary({document, origin}, vocab_rows, vocab_file);
  const FolderSettings settings = WithOptDefaults(given, vocabulary);
  std::vector<AddedToken> added = PlaceAddedTokens(settings.added_tokens, settings.named_tokens,
                                                   vocabulary, vocab_rows, settings.file);
  SplitSpecials(settings, added);
  BpeParts parts{MakeModel(std::move(vocabulary), folder / "merges.txt"),
                 std::move(added),
                 {},
                 {},
                 {},
                 {},
                 {},
                 {}};
  const ClassParts named = PartsOf(settings.tokenizer_class);
  const bool is_byte_level = named == ClassParts::kGptNeoX || named == ClassParts::kQwen2;
  ApplyClass(is_byte_level ? named : ClassParts::kGpt2, settings, parts);
  if (settings.add_bos.value_or(false) && !settings.bos.empty()) {
    parts.start.push_back(IdOfAdded(parts.added_tokens, settings.bos, settings.file));
  }
  if (settings.add_eos.value_or(false) && !settings.eos.empty()) {
    parts.end.push_back(IdOfAdded(parts.added_tokens, settings.eos, settings.file));
  }
  return parts;
}

}  // namespace spillway
