#include "src/verbs/text_windows.h"

#include <algorithm>

#include "spillway/error.h"

namespace spillway {

std::vector<TextWindow> WindowsOf(int64_t num_tokens, int64_t window, int64_t stride) {
  SPILLWAY_CHECK(1 <= stride && stride <= window);
  std::vector<TextWindow> windows;
  int64_t scored_to = 0;
  for (int64_t begin = 0; scored_to < num_tokens; begin += stride) {
    const int64_t end = std::min(begin + window, num_tokens);
    const int64_t first = std::max(begin + 1, scored_to);
    if (first < end) windows.push_back({begin, end, first});
    scored_to = end;
  }
  return windows;
}

}  // namespace spillway
