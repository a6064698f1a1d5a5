#include "src/tokenizer/folder_settings.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>

#include "spillway/error.h"
#include "src/tokenizer/json_file.h"

namespace spillway {
namespace {

using nlohmann::json;

// The reference's order of adding them.
constexpr std::array<std::string_view, 7> kSpecialKeys = {
    "bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"};

// A token is written as its text or as an object with flags. `special`: what a text, or an object
// without it, means.
AddedToken ReadToken(const json& value, std::string_view key, bool special,
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

// added_tokens.json, {"token": id}, in the order of ids: what was added before added_tokens_decoder
// existed.
std::vector<AddedToken> ReadAddedTokensFile(const json& tokens,
                                            const std::vector<AddedToken>& named,
                                            const std::filesystem::path& file) {
  std::map<TokenId, AddedToken> by_id;
  for (const auto& [content, id] : tokens.items()) {
    AddedToken token;
    token.content = content;
    token.special = std::any_of(named.begin(), named.end(),
                                [&](const AddedToken& other) { return other.content == content; });
    token.normalized = !token.special;
    if (!by_id.emplace(JsonTokenId(id, content, file), token).second) {
      RefuseTokenizer(file,
                      fmt::format("the id of \"{}\" belongs to two tokens", Printable(content)));
    }
  }
  std::vector<AddedToken> out;
  for (auto& [id, token] : by_id) out.push_back(std::move(token));
  return out;
}

std::optional<bool> OptionalBool(const json& object, const char* key,
                                 const std::filesystem::path& file) {
  if (!object.contains(key) || object[key].is_null()) return std::nullopt;
  return JsonBool(object, key, false, file);
}

// What transformers' classes take for a token that no file names; empty for none.
std::string_view DefaultToken(std::string_view tokenizer_class, std::string_view key) {
  const bool is_llama = tokenizer_class == "LlamaTokenizer";
  const bool is_neox = tokenizer_class == "GPTNeoXTokenizer";
  if (!is_llama && !is_neox && tokenizer_class != "GPT2Tokenizer") return "";
  if (key == "bos_token") return is_llama ? "<s>" : "<|endoftext|>";
  if (key == "eos_token") return is_llama ? "</s>" : "<|endoftext|>";
  if (key == "unk_token") return is_llama ? "<unk>" : "<|endoftext|>";
  return key == "pad_token" && is_neox ? "<|padding|>" : "";
}

void ReadNamedTokens(const json& config, FolderSettings& settings) {
  for (const std::string_view key : kSpecialKeys) {
    const auto member = config.find(key);
    AddedToken token;
    if (member == config.end()) {
      token.content = DefaultToken(settings.tokenizer_class, key);
    } else if (!member->is_null()) {
      token = ReadToken(*member, key, true, settings.file);
    }
    if (token.content.empty()) continue;
    token.special = true;
    if (key == "bos_token") settings.bos = token.content;
    if (key == "eos_token") settings.eos = token.content;
    settings.named_tokens.push_back(std::move(token));
  }
  // Two names of one list; releases differ.
  const char* key = config.contains("extra_special_tokens") ? "extra_special_tokens"
                                                            : "additional_special_tokens";
  const auto extra = config.find(key);
  if (extra == config.end() || !extra->is_array()) return;
  for (const json& value : *extra) {
    AddedToken token = ReadToken(value, key, true, settings.file);
    token.special = true;
    settings.named_tokens.push_back(std::move(token));
  }
}

// The class that transformers' AutoTokenizer opens the folder with.
std::string ClassOf(std::string named, std::string_view model_type) {
  if (named.ends_with("Fast")) named.resize(named.size() - 4);
  if (!named.empty()) return named;
  if (model_type == "opt" || model_type == "gpt2") return "GPT2Tokenizer";
  return model_type == "gpt_neox" ? "GPTNeoXTokenizer" : "";
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
  settings.tokenizer_class =
      ClassOf(JsonString(config, "tokenizer_class", "", settings.file), settings.model_type);
  settings.add_bos = OptionalBool(config, "add_bos_token", settings.file);
  settings.add_eos = OptionalBool(config, "add_eos_token", settings.file);
  settings.add_prefix_space = OptionalBool(config, "add_prefix_space", settings.file);
  settings.legacy = JsonBool(config, "legacy", false, settings.file);
  ReadNamedTokens(config, settings);
  const std::filesystem::path added_file = folder / "added_tokens.json";
  if (config.contains("added_tokens_decoder")) return settings;
  if (const auto added = ReadOptionalJsonObject(added_file)) {
    settings.added_tokens = ReadAddedTokensFile(*added, settings.named_tokens, added_file);
  }
  return settings;
}

}  // namespace spillway
