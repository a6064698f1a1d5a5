// Byte-level BPE from vocab.json and merges.txt: GPT-2, OPT, GPT-NeoX folders without a
// tokenizer.json. Plain functions; any thread.
#pragma once

#include <cstdint>
#include <filesystem>

#include "src/tokenizer/bpe_tokenizer.h"
#include "src/tokenizer/folder_settings.h"

namespace spillway {

// Throws: Error kTokenizer for malformed files, kModelMissing when one of the two is not there.
BpeParts ReadGpt2Files(const std::filesystem::path& folder, const FolderSettings& settings,
                       int64_t vocab_rows);

}  // namespace spillway
