// The chain parts of a tokenizer.json: normalizer, pre-tokenizer, post-processor, decoder.
// Plain functions; any thread. All throw Error kTokenizer, naming the part that is not supported.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "src/base/json_node.h"
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

std::vector<NormalizerStep> ReadNormalizer(const JsonNode& part);
std::vector<PreTokenizerStep> ReadPreTokenizer(const JsonNode& part);
Frame ReadPostProcessor(const JsonNode& part);
Decoder ReadDecoder(const JsonNode& part);

}  // namespace spillway
