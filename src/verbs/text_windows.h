// A text cut into overlapping windows, for perplexity. Pure functions of values; any thread.
#pragma once

#include <cstdint>
#include <vector>

namespace spillway {

// Tokens [begin, end) of a text; the model sees no others while it scores those from `first` on.
struct TextWindow {
  int64_t begin = 0;
  int64_t end = 0;
  int64_t first = 0;  // begin < first < end

  bool operator==(const TextWindow&) const = default;
};

// The sliding windows of transformers' documentation: one begins every `stride` tokens and is
// `window` long, or ends with the text; each token is scored in the first window that holds it,
// unless it is that window's own first token, which nothing precedes there. Windows without
// anything to score are left out. Requires: 1 <= stride <= window.
std::vector<TextWindow> WindowsOf(int64_t num_tokens, int64_t window, int64_t stride);

}  // namespace spillway
