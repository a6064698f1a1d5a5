// FolderSettings: contents of the small files beside a vocabulary: tokenizer_config.json,
// special_tokens_map.json, config.json. Plain values; any thread.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "src/tokenizer/added_tokens.h"

namespace spillway {

struct FolderSettings {
  std::filesystem::path file;  // tokenizer_config.json, for messages
  // Class that transformers picks, without "Fast"; empty: what tokenizer.json says.
  std::string tokenizer_class;
  std::string model_type;  // config.json's; empty when not said
  std::string bos;         // empty: none
  std::string eos;
  std::string unk;
  std::optional<bool> add_bos;
  std::optional<bool> add_eos;
  std::optional<bool> add_prefix_space;
  bool split_special_tokens = false;  // special tokens that a text has are plain text
  std::map<std::string, std::string> special_tokens;  // those by name: "bos_token", ...
  // LLaMA: a space in front of every part between special tokens.
  std::optional<bool> legacy;
  std::vector<AddedToken> added_tokens;  // added_tokens_decoder or added_tokens.json, by id
  std::vector<AddedToken> named_tokens;  // bos_token, eos_token, ...; all special
  // Contents of those of them that no file names: the class's own.
  std::set<std::string, std::less<>> default_tokens;
};

// Marks the special ones where the settings say that texts have none.
void SplitSpecials(const FolderSettings& settings, std::vector<AddedToken>& tokens);

// Absent files say nothing. Throws: Error kTokenizer for malformed ones.
FolderSettings ReadFolderSettings(const std::filesystem::path& folder);

}  // namespace spillway
