#include "src/model/families/qwen.h"

#include <utility>

#include "src/model/families/llama_keys.h"

namespace spillway {

std::vector<std::string_view> QwenWindowKeys() {
  return {"layer_types", "max_window_layers", "sliding_window", "use_sliding_window"};
}

void ReadQwenWindows(const JsonNode& config, ModelShape& shape) {
  constexpr int64_t kUsualWindow = 4096;
  constexpr int64_t kUsualFirstLayer = 28;
  const bool used = config.Boolean("use_sliding_window", false);
  const int64_t window = used ? ReadWindow(config, kUsualWindow) : 0;
  std::vector<bool> windowed = ReadLayerTypes(config, shape.num_layers);
  if (windowed.empty()) {
    const int64_t first =
        config.Integer("max_window_layers", {0, kLayerRange.high}, kUsualFirstLayer);
    for (int64_t layer = 0; layer < shape.num_layers; ++layer)
      windowed.push_back(window != 0 && layer >= first);
  }
  SetWindows(config, window, std::move(windowed), shape);
}

}  // namespace spillway
