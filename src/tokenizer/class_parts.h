// Parts that transformers' tokenizer classes have of their own: a folder that names one of them
// gets only vocabulary, merges, added tokens and post-processor from its files. Plain functions;
// any thread.
#pragma once

#include <string>
#include <string_view>

#include "src/tokenizer/bpe_tokenizer.h"
#include "src/tokenizer/folder_settings.h"

namespace spillway {

enum class ClassParts { kAsInFile, kGpt2, kGptNeoX, kLlama, kQwen2, kGemma };

// The class that transformers' AutoTokenizer opens a folder with: `named` by its files or chosen by
// `model_type`; without "Fast"; empty where everything is as in the files.
std::string ClassOf(std::string named, std::string_view model_type);

// A token that the class has where no file names it ("bos_token"); empty for none.
std::string_view DefaultToken(std::string_view tokenizer_class, std::string_view key);

ClassParts PartsOf(std::string_view tokenizer_class);

// Options of the class's model. Requires: not kAsInFile.
BpeOptions OptionsOf(ClassParts parts, const FolderSettings& settings);

// Puts the class's normalizer, pre-tokenizer and decoder in place of the file's.
void ApplyClass(ClassParts kind, const FolderSettings& settings, BpeParts& parts);

}  // namespace spillway
