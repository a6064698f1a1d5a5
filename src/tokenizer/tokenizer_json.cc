#include "src/tokenizer/tokenizer_json.h"

#include <fmt/format.h>

#include <optional>
#include <stdexcept>
#include <unordered_set>

#include "spillway/error.h"
#include "src/tokenizer/class_parts.h"
#include "src/tokenizer/json_file.h"
#include "src/tokenizer/json_parts.h"
#include "src/tokenizer/vocabulary.h"

namespace spillway {
namespace {

using nlohmann::json;
using Path = std::filesystem::path;

constexpr std::size_t kMaxMerges = 4'000'000;

// The member, or null when absent, as the reference reads optional parts.
JsonNode OptionalMember(const JsonNode& object, const char* key) {
  static const json null;
  return object.Find(key).value_or(JsonNode(null, object.origin()));
}

void CheckModelType(const JsonNode& model) {
  if (!model.value().is_object()) model.Refuse("has no \"model\"");
  // Files of the first releases do not name the type; only BPE has merges.
  const std::string type = model.Text("type", model.value().contains("merges") ? "BPE" : "(none)");
  const auto refuse = [&](const std::string& what) {
    model.Refuse(fmt::format("{} is not supported", what),
                 "convert the model's tokenizer to byte-level BPE or SentencePiece");
  };
  if (type != "BPE") refuse(fmt::format("the model \"{}\"", Printable(type)));
  for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    if (!model.Text(key, "").empty()) refuse(fmt::format("a BPE model with \"{}\"", key));
  }
  const std::optional<JsonNode> dropout = model.FindSet("dropout");
  if (dropout && !(dropout->value().is_number() && dropout->value().get<double>() == 0.0))
    refuse("a BPE model with \"dropout\"");
}

BpeOptions ReadOptions(const JsonNode& model) {
  BpeOptions options;
  if (const std::optional<JsonNode> unknown = model.FindSet("unk_token"))
    options.unknown = unknown->Text();
  options.fuse_unknown = model.Boolean("fuse_unk", false);
  options.byte_fallback = model.Boolean("byte_fallback", false);
  options.ignore_merges = model.Boolean("ignore_merges", false);
  return options;
}

// "left right" or ["left", "right"].
BpeModel::Merge ReadMerge(const json& merge, std::size_t number, const JsonNode& list) {
  if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string()) {
    return {merge[0].get<std::string>(), merge[1].get<std::string>()};
  }
  if (merge.is_string()) {
    const std::string& text = merge.get_ref<const std::string&>();
    const std::size_t space = text.find(' ');
    if (space != std::string::npos && text.find(' ', space + 1) == std::string::npos)
      return {text.substr(0, space), text.substr(space + 1)};
  }
  list.Refuse(fmt::format("merge {} is neither \"left right\" nor a pair of tokens", number));
}

std::vector<BpeModel::Merge> ReadMerges(const JsonNode& list) {
  if (!list.value().is_array()) list.Refuse("\"merges\" is not a list");
  if (list.value().size() > kMaxMerges)
    list.Refuse(fmt::format("has more than {} merges", kMaxMerges));
  std::vector<BpeModel::Merge> merges;
  merges.reserve(list.value().size());
  for (const json& merge : list.value()) {
    const bool is_version =
        merge.is_string() && merge.get_ref<const std::string&>().starts_with("#version");
    if (!is_version) merges.push_back(ReadMerge(merge, merges.size() + 1, list));
  }
  return merges;
}

// Refuses tokens that look like a byte's and are none, for byte fallback: "<0xZZ>" would turn up in
// the output as it is.
void CheckByteTokens(const StringMap<TokenId>& vocabulary, const JsonNode& model) {
  for (const auto& [token, id] : vocabulary) {
    if (!token.starts_with("<0x") || !token.ends_with('>') || token.size() > 8) continue;
    if (!ByteOfToken(token))
      model.Refuse(fmt::format("the byte token \"{}\" does not name a byte", Printable(token)));
  }
}

std::vector<AddedToken> ReadAddedTokens(const JsonNode& list) {
  std::vector<AddedToken> tokens;
  if (list.value().is_null()) return tokens;
  StringMap<bool> contents;
  std::unordered_set<TokenId> ids;
  for (const JsonNode& entry : list.Items()) {
    if (!entry.value().is_object()) entry.Refuse("an added token is not an object");
    AddedToken token;
    token.content = entry.Text("content", "");
    token.id = JsonTokenId(OptionalMember(entry, "id").value(), token.content, entry);
    token.special = entry.Boolean("special", false);
    token.single_word = entry.Boolean("single_word", false);
    token.lstrip = entry.Boolean("lstrip", false);
    token.rstrip = entry.Boolean("rstrip", false);
    token.normalized = entry.Boolean("normalized", !token.special);
    if (!contents.try_emplace(token.content, true).second)
      entry.Refuse(fmt::format("the added token \"{}\" occurs twice", Printable(token.content)));
    if (!ids.insert(token.id).second)
      entry.Refuse(fmt::format("the id {} belongs to two added tokens", token.id));
    tokens.push_back(std::move(token));
  }
  return tokens;
}

BpeModel ReadModel(const JsonNode& model, BpeOptions options, const Path& file,
                   int64_t vocab_rows) {
  StringMap<TokenId> vocabulary = ReadVocabulary(OptionalMember(model, "vocab"), vocab_rows, file);
  if (options.byte_fallback) CheckByteTokens(vocabulary, model);
  try {
    return BpeModel(std::move(vocabulary), ReadMerges(OptionalMember(model, "merges")),
                    std::move(options));
  } catch (const std::invalid_argument& fault) {
    RefuseTokenizer(file, fault.what());
  }
}

// A byte-level file whose folder names LLaMA's class is LLaMA-3's, and taken as it is.
bool IsFilesOwn(ClassParts kind, const Decoder& decoder) {
  return kind == ClassParts::kAsInFile || (kind == ClassParts::kLlama && decoder.byte_level);
}

// OPT was trained with its start token in front of every text, so a file that forgot it does not
// get its way.
void RestoreOptStart(const FolderSettings& settings, BpeParts& parts) {
  if (settings.model_type != "opt" || !settings.add_bos.value_or(false) || settings.bos.empty() ||
      !parts.start.empty())
    return;
  parts.start.push_back(IdOfAdded(parts.added_tokens, settings.bos, settings.file));
}

// Tokens that the small files name and tokenizer.json does not list; `kind`: of the class that
// counts.
std::vector<AddedToken> SettingsTokens(const FolderSettings& settings, ClassParts kind) {
  std::vector<AddedToken> tokens = settings.added_tokens;
  tokens.insert(tokens.end(), settings.named_tokens.begin(), settings.named_tokens.end());
  if (kind == ClassParts::kAsInFile) {
    std::erase_if(tokens, [&](const AddedToken& token) {
      return settings.default_tokens.contains(token.content);
    });
  }
  return tokens;
}

}  // namespace

BpeParts ReadTokenizerJson(const Path& file, const FolderSettings& settings, int64_t vocab_rows) {
  const json text = ReadJsonObject(file);
  const JsonOrigin origin = TokenizerOrigin(file);
  const JsonNode document(text, origin);
  const JsonNode model_part = OptionalMember(document, "model");
  CheckModelType(model_part);
  Decoder decoder = ReadDecoder(OptionalMember(document, "decoder"));
  ClassParts kind = PartsOf(settings.tokenizer_class);
  if (IsFilesOwn(kind, decoder)) kind = ClassParts::kAsInFile;
  BpeOptions options =
      kind == ClassParts::kAsInFile ? ReadOptions(model_part) : OptionsOf(kind, settings);
  BpeModel model = ReadModel(model_part, std::move(options), file, vocab_rows);
  std::vector<AddedToken> added =
      PlaceAddedTokens(ReadAddedTokens(OptionalMember(document, "added_tokens")),
                       SettingsTokens(settings, kind), model.vocabulary(), vocab_rows, file);
  SplitSpecials(settings, added);
  Frame frame = ReadPostProcessor(OptionalMember(document, "post_processor"));
  for (const TokenId id : frame.start) CheckRow(id, "start of the template", vocab_rows, file);
  for (const TokenId id : frame.end) CheckRow(id, "end of the template", vocab_rows, file);
  BpeParts parts{std::move(model),
                 std::move(added),
                 ReadNormalizer(OptionalMember(document, "normalizer")),
                 ReadPreTokenizer(OptionalMember(document, "pre_tokenizer")),
                 std::move(decoder),
                 std::move(frame.start),
                 std::move(frame.end),
                 {}};
  ApplyClass(kind, settings, parts);
  RestoreOptStart(settings, parts);
  return parts;
}

}  // namespace spillway
