// The chain parts of a tokenizer.json: normalizer, pre-tokenizer, post-processor, decoder.
// Plain functions; any thread. All throw Error kTokenizer, naming the part that is not supported.
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <vector>

#include "src/tokenizer/decoder.h"
#include "src/tokenizer/normalizer.h"
#include "src/tokenizer/pre_tokenizer.h"
#include "src/tokenizer/tokenizer.h"  // TokenId

namespace spillway {

// The ids in front of and behind every text.
struct Frame {
  std::vector<TokenId> start;
  std::vector<TokenId> end;
};

std::vector<NormalizerStep> ReadNormalizer(const nlohmann::json& part,
                                           const std::filesystem::path& file);
std::vector<PreTokenizerStep> ReadPreTokenizer(const nlohmann::json& part,
                                               const std::filesystem::path& file);
Frame ReadPostProcessor(const nlohmann::json& part, const std::filesystem::path& file);
Decoder ReadDecoder(const nlohmann::json& part, const std::filesystem::path& file);

// part["type"], also for messages. Throws: when `part` is no object with a string there.
std::string PartType(const nlohmann::json& part, const char* what,
                     const std::filesystem::path& file);

}  // namespace spillway
