// SentencePiece `.model` files through the library; LLaMA's first form of tokenizer.
// Plain functions; any thread.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>

#include "src/tokenizer/folder_settings.h"
#include "src/tokenizer/tokenizer.h"

namespace spillway {

// Throws: Error kTokenizer for a malformed file or ids that the model has no row for.
std::unique_ptr<Tokenizer> OpenSentencePiece(const std::filesystem::path& file,
                                             const FolderSettings& settings, int64_t vocab_rows);

}  // namespace spillway
