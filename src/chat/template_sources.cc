#include "src/chat/template_sources.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "spillway/error.h"
#include "src/tokenizer/folder_settings.h"
#include "src/tokenizer/json_file.h"
#include "src/unicode/utf8.h"

namespace spillway {
namespace {

namespace fs = std::filesystem;

constexpr const char* kExtension = ".jinja";
constexpr std::size_t kMaxTemplates = 100;
constexpr const char* kGiveText =
    "give a file of the template's text, or JSON that has it as \"chat_template\"";

std::string ReadText(const fs::path& file) {
  std::string text = ReadTokenizerFile(file);
  if (!IsValidUtf8(text)) RefuseTokenizer(file, "is not valid UTF-8");
  return text;
}

// {"NAME": text}, which a store has in place of the folder of templates.
void AddStored(const fs::path& file, TemplateSources& sources) {
  const auto document = ReadOptionalJsonObject(file);
  if (!document) return;
  const JsonOrigin origin = TokenizerOrigin(file);
  for (const auto& [name, text] : document->items()) sources[name] = JsonNode(text, origin).Text();
}

TemplateSources FromFiles(const fs::path& folder) {
  TemplateSources sources;
  std::error_code ignored;
  if (fs::exists(folder / "chat_template.jinja", ignored))
    sources["default"] = ReadText(folder / "chat_template.jinja");
  for (const fs::directory_entry& entry :
       fs::directory_iterator(folder / "additional_chat_templates", ignored)) {
    if (entry.path().extension() != kExtension) continue;
    if (sources.size() == kMaxTemplates)
      RefuseTokenizer(entry.path().parent_path(), "holds too many templates");
    sources[entry.path().stem().string()] = ReadText(entry.path());
  }
  AddStored(folder / "additional_chat_templates.json", sources);
  return sources;
}

// One text, or a list of named ones.
TemplateSources FromMember(const JsonNode& member, const fs::path& file) {
  if (!member.value().is_array()) return {{"default", member.Text()}};
  TemplateSources sources;
  for (const JsonNode& named : member.Items()) {
    if (sources.size() == kMaxTemplates) RefuseTokenizer(file, "holds too many templates");
    sources[named.Member("name").Text()] = named.Member("template").Text();
  }
  return sources;
}

TemplateSources FromConfig(const fs::path& file) {
  const auto document = ReadOptionalJsonObject(file);
  if (!document) return {};
  const JsonOrigin origin = TokenizerOrigin(file);
  const std::optional<JsonNode> found = JsonNode(*document, origin).FindSet("chat_template");
  return found ? FromMember(*found, file) : TemplateSources();
}

// Tells whether the file is meant as JSON: templates of Jinja may begin as it does, and are none.
bool IsJson(const fs::path& file, const std::string& text) {
  const std::size_t first = text.find_first_not_of(" \t\r\n");
  if (first == std::string::npos) return false;
  const bool is_named = file.extension() == ".json";
  if (text[first] == '"') return is_named && nlohmann::json::accept(text);
  if (text[first] != '{' && text[first] != '[') return false;
  const std::size_t second = text.find_first_not_of(" \t\r\n", first + 1);
  const bool has_key = second != std::string::npos && text[second] == '"';
  return nlohmann::json::accept(text) || (is_named && has_key);
}

// A text, a list of named ones, or an object that has one of them.
TemplateSources FromGivenJson(const fs::path& file, const std::string& text) {
  const nlohmann::json document = nlohmann::json::parse(text, nullptr, false);
  if (document.is_discarded()) RefuseTokenizer(file, "is not valid JSON", kGiveText);
  const JsonOrigin origin = TokenizerOrigin(file);
  const JsonNode root(document, origin);
  if (!document.is_object()) return FromMember(root, file);
  if (const auto found = root.FindSet("chat_template")) return FromMember(*found, file);
  RefuseTokenizer(file, "is JSON without a \"chat_template\"", kGiveText);
}

}  // namespace

TemplateSources ReadTemplateSources(const fs::path& folder) {
  if (folder.empty()) return {};
  TemplateSources sources = FromFiles(folder);
  for (const char* config : {"tokenizer_config.json", "chat_template.json"})
    if (sources.empty()) sources = FromConfig(folder / config);
  return sources;
}

TemplateSources ReadGivenTemplates(const fs::path& file) {
  constexpr std::string_view kMark = "\xEF\xBB\xBF";
  std::string text = ReadText(file);
  if (text.starts_with(kMark)) text.erase(0, kMark.size());
  TemplateSources sources = IsJson(file, text) ? FromGivenJson(file, text)
                                               : TemplateSources{{"default", std::move(text)}};
  for (const auto& [name, source] : sources)
    if (source.empty()) RefuseTokenizer(file, "has an empty template", kGiveText);
  return sources;
}

jinja::DictPtr ReadTemplateTokens(const fs::path& folder) {
  auto tokens = std::make_shared<jinja::Dict>();
  if (folder.empty()) return tokens;
  const FolderSettings settings = ReadFolderSettings(folder);
  for (const auto& [name, text] : settings.special_tokens)
    tokens->Set(jinja::Value(name), jinja::Value(text));
  return tokens;
}

}  // namespace spillway
