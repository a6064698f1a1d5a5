#include "src/store/companions.h"

#include <string_view>

#include "src/checkpoint/model_folder.h"

namespace spillway {
namespace {

bool Has(const std::filesystem::path& folder, const char* name) {
  return !folder.empty() && ModelFolder(folder).Has(name);
}

bool IsOfModel(std::string_view name) {
  return name == "config.json" || name == "generation_config.json";
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
  return files;
}

}  // namespace spillway
