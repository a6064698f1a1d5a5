// Windows of Qwen 2 and 3: "use_sliding_window" turns them on, "layer_types" or
// "max_window_layers" say for which layers. Plain functions; any thread.
#pragma once

#include <string_view>
#include <vector>

#include "src/model/family.h"

namespace spillway {

std::vector<std::string_view> QwenWindowKeys();

// Throws: Error kModelInconsistent, kModelUnsupported.
void ReadQwenWindows(const JsonNode& config, ModelShape& shape);

}  // namespace spillway
