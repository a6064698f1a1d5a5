#include "src/store/companions.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "src/base/json_text.h"
#include "src/checkpoint/model_folder.h"

namespace spillway {
namespace {

bool Has(const std::filesystem::path& folder, const char* name) {
  return !folder.empty() && ModelFolder(folder).Has(name);
}

bool IsOfModel(std::string_view name) {
  return name == "config.json" || name == "generation_config.json";
}

// The texts of additional_chat_templates/*.jinja as one object; empty where there are none.
std::string AdditionalTemplates(const std::filesystem::path& folder) {
  nlohmann::json texts = nlohmann::json::object();
  std::error_code ignored;
  for (const std::filesystem::directory_entry& entry :
       std::filesystem::directory_iterator(folder / "additional_chat_templates", ignored)) {
    const std::filesystem::path& path = entry.path();
    if (path.extension() != ".jinja") continue;
    const ModelFile file = ModelFolder(path.parent_path()).Open(path.filename());
    texts[path.stem()] = file.ReadStart(file.size());
  }
  return texts.empty() ? "" : JsonText(texts);
}

}  // namespace

std::vector<CompanionFile> ReadCompanions(const std::filesystem::path& model,
                                          const std::filesystem::path& tokenizer) {
  std::vector<CompanionFile> files;
  const std::filesystem::path& config =
      !model.empty() && !Has(model, kCompanionNames[0]) ? tokenizer : model;
  for (const char* name : kCompanionNames) {
    const std::filesystem::path& folder = IsOfModel(name) ? config : tokenizer;
    if (!Has(folder, name)) continue;
    const ModelFile file = ModelFolder(folder).Open(name);
    if (file.size() > 0) files.push_back({name, file.ReadStart(file.size())});
  }
  if (tokenizer.empty()) return files;
  std::string additional = AdditionalTemplates(tokenizer);
  if (!additional.empty()) files.push_back({kCompanionNames.back(), std::move(additional)});
  return files;
}

std::string CompanionText(const std::vector<CompanionFile>& files) {
  std::string text;
  for (const CompanionFile& file : files)
    text += fmt::format("{} {}\n{}\n", file.name, file.content.size(), file.content);
  return text;
}

}  // namespace spillway
