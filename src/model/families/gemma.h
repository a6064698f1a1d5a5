// Common parts of the Gemma families: Llama's block with norms that multiply by 1 + weight, scaled
// embeddings and a GELU gate. Plain functions; any thread.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "src/model/families/llama_keys.h"

namespace spillway {

// Keys of Llama's block and of all Gemmas. Throws: as ReadLlamaKeys.
ModelShape ReadGemmaKeys(const JsonNode& config, const LlamaDefaults& defaults,
                         std::vector<std::string_view> own);

// Parts that only Gemma 2 and 3 have: norms behind attention and MLP, "query_pre_attn_scalar".
// Throws: Error kModelInconsistent.
void ReadGemmaParts(const JsonNode& config, ModelShape& shape);

// A soft cap: `fallback` where there is no such key, 0 where it is null.
// Throws: Error kModelInconsistent.
double ReadSoftCap(const JsonNode& config, std::string_view key, double fallback);

// A published size, with embeddings scaled as in bf16.
ModelShape WithGemmaSize(const ModelShape& shape, const LlamaSize& of);

// Gemma's block without sizes.
ModelShape GemmaBlock(int64_t vocab_size, int64_t max_positions, double theta);

}  // namespace spillway
