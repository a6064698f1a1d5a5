#include "src/tokenizer/folder_settings.h"

#include <fmt/format.h>

#include <array>
#include <map>

#include "spillway/error.h"
#include "src/tokenizer/json_file.h"

namespace spillway {
namespace {

using nlohmann::json;

// The reference's order of adding them.
constexpr std::array kSpecialKeys = {"bos_token", "eos_token", "unk_token", "sep_token",
                                     "pad_token", "cls_token", "mask_token"};

// A token is written as its text or as an object with flags. `special`: what a text, or an object
// without it, means.
AddedToken ReadToken(const json& value, const char* key, bool special,
                     const std::filesystem::path& file) {
  AddedToken token;
  token.special = special;
  if (value.is_string()) {
    token.content = value.get<std::string>();
    token.normalized = !special;
    return token;
  }
  if (!value.is_object())
    RefuseTokenizer(file, fmt::format("\"{}\" is neither a token nor an object", key));
  token.content = JsonString(value, "content", "", file);
  token.special = JsonBool(value, "special", special, file);
  token.lstrip = JsonBool(value, "lstrip", false, file);
  token.rstrip = JsonBool(value, "rstrip", false, file);
  token.single_word = JsonBool(value, "single_word", false, file);
  token.normalized = JsonBool(value, "normalized", !token.special, file);
  return token;
}

// "added_tokens_decoder": {"id": {flags}}, in the order of ids.
std::vector<AddedToken> ReadAddedTokensDecoder(const json& decoder,
                                               const std::filesystem::path& file) {
  if (!decoder.is_object()) RefuseTokenizer(file, "\"added_tokens_decoder\" is not an object");
  std::map<long, AddedToken> by_id;
  for (const auto& [id, value] : decoder.items()) {
    const bool is_number =
        !id.empty() && id.size() <= 10 && id.find_first_not_of("0123456789") == std::string::npos;
    if (!is_number)
      RefuseTokenizer(file,
                      fmt::format("\"added_tokens_decoder\" has the id \"{}\"", Printable(id)));
    by_id[std::stol(id)] = ReadToken(value, "added_tokens_decoder", false, file);
  }
  std::vector<AddedToken> tokens;
  for (auto& [id, token] : by_id) tokens.push_back(std::move(token));
  return tokens;
}

std::optional<bool> OptionalBool(const json& object, const char* key,
                                 const std::filesystem::path& file) {
  if (!object.contains(key) || object[key].is_null()) return std::nullopt;
  return JsonBool(object, key, false, file);
}

void ReadSpecialTokens(const json& config, FolderSettings& settings) {
  for (const char* key : kSpecialKeys) {
    if (!config.contains(key) || config[key].is_null()) continue;
    AddedToken token = ReadToken(config[key], key, true, settings.file);
    if (token.content.empty()) continue;
    token.special = true;
    if (key == std::string_view("bos_token")) settings.bos = token.content;
    if (key == std::string_view("eos_token")) settings.eos = token.content;
    settings.added_tokens.push_back(std::move(token));
  }
}

std::string WithoutFast(std::string name) {
  if (name.ends_with("Fast")) name.resize(name.size() - 4);
  return name;
}

}  // namespace

FolderSettings ReadFolderSettings(const std::filesystem::path& folder) {
  FolderSettings settings;
  settings.file = folder / "tokenizer_config.json";
  json config = ReadOptionalJsonObject(settings.file).value_or(json::object());
  if (const auto model = ReadOptionalJsonObject(folder / "config.json")) {
    settings.model_type = JsonString(*model, "model_type", "", folder / "config.json");
  }
  if (config.contains("added_tokens_decoder")) {
    settings.added_tokens = ReadAddedTokensDecoder(config["added_tokens_decoder"], settings.file);
  } else if (const auto map = ReadOptionalJsonObject(folder / "special_tokens_map.json")) {
    for (const auto& [key, value] : map->items()) config[key] = value;
  }
  settings.tokenizer_class = WithoutFast(JsonString(config, "tokenizer_class", "", settings.file));
  settings.add_bos = OptionalBool(config, "add_bos_token", settings.file);
  settings.add_eos = OptionalBool(config, "add_eos_token", settings.file);
  settings.add_prefix_space = JsonBool(config, "add_prefix_space", false, settings.file);
  settings.legacy = JsonBool(config, "legacy", false, settings.file);
  ReadSpecialTokens(config, settings);
  return settings;
}

}  // namespace spillway
