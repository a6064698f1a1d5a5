#include "src/tokenizer/folder_settings.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>

#include "spillway/error.h"
#include "src/tokenizer/class_parts.h"
#include "src/tokenizer/json_file.h"

namespace spillway {
namespace {

using nlohmann::json;

// The reference's order of adding them.
constexpr std::array<std::string_view, 7> kSpecialKeys = {
    "bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"};

// A token is written as its text or as an object with flags. `special`: what a text, or an object
// without it, means.
AddedToken ReadToken(const JsonNode& node, std::string_view key, bool special) {
  AddedToken token;
  token.special = special;
  if (node.value().is_string()) {
    token.content = node.Text();
    token.normalized = !special;
    return token;
  }
  if (!node.value().is_object())
    node.Refuse(fmt::format("\"{}\" is neither a token nor an object", key));
  token.content = node.Text("content", "");
  token.special = node.Boolean("special", special);
  token.lstrip = node.Boolean("lstrip", false);
  token.rstrip = node.Boolean("rstrip", false);
  token.single_word = node.Boolean("single_word", false);
  token.normalized = node.Boolean("normalized", !token.special);
  return token;
}

// "added_tokens_decoder": {"id": {flags}}, in the order of ids.
std::vector<AddedToken> ReadAddedTokensDecoder(const JsonNode& decoder) {
  if (!decoder.value().is_object()) decoder.Refuse("\"added_tokens_decoder\" is not an object");
  std::map<long, AddedToken> by_id;
  for (const auto& [id, value] : decoder.value().items()) {
    const bool is_number =
        !id.empty() && id.size() <= 10 && id.find_first_not_of("0123456789") == std::string::npos;
    if (!is_number)
      decoder.Refuse(fmt::format("\"added_tokens_decoder\" has the id \"{}\"", Printable(id)));
    by_id[std::stol(id)] = ReadToken({value, decoder.origin()}, "added_tokens_decoder", false);
  }
  std::vector<AddedToken> tokens;
  for (auto& [id, token] : by_id) tokens.push_back(std::move(token));
  return tokens;
}

// added_tokens.json, {"token": id}, in the order of ids: what was added before added_tokens_decoder
// existed.
std::vector<AddedToken> ReadAddedTokensFile(const JsonNode& tokens,
                                            const std::vector<AddedToken>& named) {
  std::map<TokenId, AddedToken> by_id;
  for (const auto& [content, id] : tokens.value().items()) {
    AddedToken token;
    token.content = content;
    token.special = std::any_of(named.begin(), named.end(), [&](const AddedToken& other) {
      return other.content == token.content;
    });
    token.normalized = !token.special;
    if (!by_id.emplace(JsonTokenId(id, content, tokens), token).second) {
      tokens.Refuse(fmt::format("the id of \"{}\" belongs to two tokens", Printable(content)));
    }
  }
  std::vector<AddedToken> out;
  for (auto& [id, token] : by_id) out.push_back(std::move(token));
  return out;
}

std::optional<bool> OptionalBool(const JsonNode& object, const char* key) {
  const std::optional<JsonNode> found = object.FindSet(key);
  return found ? std::optional(found->Boolean()) : std::nullopt;
}

void ReadNamedTokens(const JsonNode& config, FolderSettings& settings) {
  for (const std::string_view key : kSpecialKeys) {
    const std::optional<JsonNode> member = config.Find(key);
    AddedToken token;
    if (!member) {
      token.content = DefaultToken(settings.tokenizer_class, key);
      if (!token.content.empty()) settings.default_tokens.insert(token.content);
    } else if (!member->value().is_null()) {
      token = ReadToken(*member, key, true);
    }
    if (token.content.empty()) continue;
    token.special = true;
    if (key == "bos_token") settings.bos = token.content;
    if (key == "eos_token") settings.eos = token.content;
    settings.special_tokens.emplace(key, token.content);
    if (key == "unk_token") settings.unk = token.content;
    settings.named_tokens.push_back(std::move(token));
  }
  // A token that a file names too is no mere default.
  for (const std::string_view key : kSpecialKeys) {
    const std::optional<JsonNode> member = config.FindSet(key.data());
    if (member) settings.default_tokens.erase(ReadToken(*member, key, true).content);
  }
  // Two names of one list; releases differ.
  const char* key =
      config.Find("extra_special_tokens") ? "extra_special_tokens" : "additional_special_tokens";
  const std::optional<JsonNode> extra = config.Find(key);
  if (!extra || !extra->value().is_array()) return;
  for (const JsonNode& value : extra->Items()) {
    AddedToken token = ReadToken(value, key, true);
    token.special = true;
    settings.named_tokens.push_back(std::move(token));
  }
}

// Words of config.json about the tokenizer; empty where it has none.
struct ModelWords {
  std::string model_type;
  std::string tokenizer_class;
};

ModelWords ReadModelWords(const std::filesystem::path& file) {
  const std::optional<json> document = ReadOptionalJsonObject(file);
  if (!document) return {};
  const JsonOrigin origin = TokenizerOrigin(file);
  const JsonNode config(*document, origin);
  const std::optional<JsonNode> named = config.FindSet("tokenizer_class");
  return {config.Text("model_type", ""), named ? named->Text() : ""};
}

}  // namespace

void SplitSpecials(const FolderSettings& settings, std::vector<AddedToken>& tokens) {
  for (AddedToken& token : tokens) token.split = settings.split_special_tokens && token.special;
}

FolderSettings ReadFolderSettings(const std::filesystem::path& folder) {
  FolderSettings settings;
  settings.file = folder / "tokenizer_config.json";
  json document = ReadOptionalJsonObject(settings.file).value_or(json::object());
  const ModelWords model = ReadModelWords(folder / "config.json");
  settings.model_type = model.model_type;
  const bool has_decoder = document.contains("added_tokens_decoder");
  if (!has_decoder) {
    if (const auto map = ReadOptionalJsonObject(folder / "special_tokens_map.json")) {
      for (const auto& [key, value] : map->items()) document[key] = value;
    }
  }
  const JsonOrigin origin = TokenizerOrigin(settings.file);
  const JsonNode config(document, origin);
  if (has_decoder)
    settings.added_tokens = ReadAddedTokensDecoder(config.Member("added_tokens_decoder"));
  const std::optional<JsonNode> named = config.FindSet("tokenizer_class");
  settings.tokenizer_class =
      ClassOf(named ? named->Text() : model.tokenizer_class, settings.model_type);
  settings.add_bos = OptionalBool(config, "add_bos_token");
  settings.add_eos = OptionalBool(config, "add_eos_token");
  settings.add_prefix_space = OptionalBool(config, "add_prefix_space");
  settings.legacy = OptionalBool(config, "legacy");
  settings.split_special_tokens = OptionalBool(config, "split_special_tokens").value_or(false);
  ReadNamedTokens(config, settings);
  if (config.Find("added_tokens_decoder")) return settings;
  const std::filesystem::path added_file = folder / "added_tokens.json";
  if (const auto added = ReadOptionalJsonObject(added_file)) {
    const JsonOrigin added_origin = TokenizerOrigin(added_file);
    settings.added_tokens = ReadAddedTokensFile({*added, added_origin}, settings.named_tokens);
  }
  return settings;
}

}  // namespace spillway
