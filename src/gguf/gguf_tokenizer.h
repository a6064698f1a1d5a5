// GgufTokenizer: the tokenizer of a GGUF file's metadata as tokenizer.json and
// tokenizer_config.json have it. Plain functions; any thread.
#pragma once

#include <nlohmann/json.hpp>

#include "src/gguf/gguf_value.h"

namespace spillway {

// True where there is a vocabulary at all.
bool HasGgufTokenizer(const GgufMetadata& metadata);

// The content of tokenizer.json: byte-level BPE ("gpt2") or SentencePiece BPE ("llama"). Requires:
// HasGgufTokenizer. Throws: Error kModelMalformed, kTokenizer (a kind or a split of texts that is
// not read, by name).
nlohmann::json GgufTokenizerJson(const GgufMetadata& metadata);

// The content of tokenizer_config.json, with the chat template.
nlohmann::json GgufTokenizerSettings(const GgufMetadata& metadata);

}  // namespace spillway
