// Companions: the small files of a model folder that a store keeps copies of, so that it needs no
// other folder. Thread rule: plain functions; any thread.
#pragma once

#include <array>
#include <filesystem>
#include <string>
#include <vector>

namespace spillway {

inline constexpr std::array<const char*, 12> kCompanionNames = {"config.json",
                                                                "generation_config.json",
                                                                "tokenizer.json",
                                                                "vocab.json",
                                                                "merges.txt",
                                                                "tokenizer.model",
                                                                "added_tokens.json",
                                                                "special_tokens_map.json",
                                                                "tokenizer_config.json",
                                                                "chat_template.jinja",
                                                                "chat_template.json",
                                                                "additional_chat_templates.json"};

struct CompanionFile {
  std::string name;  // one of kCompanionNames
  std::string content;
};

// config.json and generation_config.json of `model`, the others of `tokenizer`; a model folder
// without a config.json (FlexGen's) takes that of its tokenizer. An empty path has no files. Files
// that are absent or empty are left out. additional_chat_templates/NAME.jinja become one file,
// {"NAME": text}.
// Throws: Error kModelMissing, kSystemLimit, kIo, kCorrupt.
std::vector<CompanionFile> ReadCompanions(const std::filesystem::path& model,
                                          const std::filesystem::path& tokenizer);

// Names, sizes and contents, for a hash of all of them.
std::string CompanionText(const std::vector<CompanionFile>& files);

}  // namespace spillway
