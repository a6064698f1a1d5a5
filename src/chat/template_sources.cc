#include "src/chat/template_sources.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <optional>
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

TemplateSources FromConfig(const fs::path& file) {
  const auto document = ReadOptionalJsonObject(file);
  if (!document) return {};
  const JsonOrigin origin = TokenizerOrigin(file);
  const std::optional<JsonNode> found = JsonNode(*document, origin).FindSet("chat_template");
  if (!found) return {};
  if (!found->value().is_array()) return {{"default", found->Text()}};
  TemplateSources sources;
  for (const JsonNode& named : found->Items()) {
    if (sources.size() == kMaxTemplates) RefuseTokenizer(file, "holds too many templates");
    sources[named.Member("name").Text()] = named.Member("template").Text();
  }
  return sources;
}

}  // namespace

TemplateSources ReadTemplateSources(const fs::path& folder) {
  if (folder.empty()) return {};
  TemplateSources sources = FromFiles(folder);
  return sources.empty() ? FromConfig(folder / "tokenizer_config.json") : sources;
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
