// What the small files beside a vocabulary say: tokenizer_config.json, special_tokens_map.json,
// config.json. Plain values; any thread.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "src/tokenizer/added_tokens.h"

namespace spillway {

struct FolderSettings {
  std::filesystem::path file;   // tokenizer_config.json, for messages
  std::string tokenizer_class;  // without "Fast"; empty when not said
  std::string model_type;       // config.json's; empty when not said
  std::string bos;              // empty: none
  std::string eos;
  std::optional<bool> add_bos;
  std::optional<bool> add_eos;
  bool add_prefix_space = false;
  bool legacy = false;
  std::vector<AddedToken>
      added_tokens;  // in the order the reference adds them; ids are not theirs yet
};

// Absent files say nothing. Throws: Error kTokenizer for malformed ones.
FolderSettings ReadFolderSettings(const std::filesystem::path& folder);

}  // namespace spillway
