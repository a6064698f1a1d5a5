// BPE from a tokenizer.json: every part of the file becomes a part of the chain or is refused by
// name. Plain functions; any thread.
#pragma once

#include <cstdint>
#include <filesystem>

#include "src/tokenizer/bpe_tokenizer.h"
#include "src/tokenizer/folder_settings.h"

namespace spillway {

// Throws: Error kTokenizer for a malformed file, an unsupported part or ids that the model has no
// row for.
BpeParts ReadTokenizerJson(const std::filesystem::path& file, const FolderSettings& settings,
                           int64_t vocab_rows);

}  // namespace spillway
