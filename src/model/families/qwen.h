// Parts that Qwen 2 and 3 have in common, those with experts too. Plain functions; any thread.
#pragma once

#include <string_view>
#include <vector>

#include "src/model/family.h"

namespace spillway {

// Family::text_defaults of both.
inline constexpr std::string_view kQwenTextDefaults =
    R"({"hidden_size":4096,"intermediate_size":22016,"num_hidden_layers":32,"num_attention_heads":32,"num_key_value_heads":32,"vocab_size":151936})";

// Keys of experts: "num_experts", "moe_intermediate_size", "norm_topk_prob" and those that say
// which layers have them.
std::vector<std::string_view> QwenExpertKeys();

// Throws: Error kModelInconsistent.
void ReadQwenExperts(const JsonNode& config, ModelShape& shape);

// Windows: "use_sliding_window" turns them on, "layer_types" or "max_window_layers" say for which
// layers.
std::vector<std::string_view> QwenWindowKeys();

// Throws: Error kModelInconsistent, kModelUnsupported.
void ReadQwenWindows(const JsonNode& config, ModelShape& shape);

}  // namespace spillway
