#include "src/verbs/text_windows.h"

#include <gtest/gtest.h>

#include <vector>

#include "tests/trace_case.h"

namespace spillway {
namespace {

TEST(TextWindowsTest, TheLoopOfTheDocumentation) {
  using Windows = std::vector<TextWindow>;
  EXPECT_EQ(WindowsOf(10, 16, 4), (Windows{{0, 10, 1}}));
  EXPECT_EQ(WindowsOf(10, 6, 2), (Windows{{0, 6, 1}, {2, 8, 6}, {4, 10, 8}}));
  // The last window ends with the text.
  EXPECT_EQ(WindowsOf(9, 6, 2), (Windows{{0, 6, 1}, {2, 8, 6}, {4, 9, 8}}));
  // Without an overlap nothing precedes a window's first token; a last window of one token is none.
  EXPECT_EQ(WindowsOf(9, 4, 4), (Windows{{0, 4, 1}, {4, 8, 5}}));
  EXPECT_EQ(WindowsOf(2, 2, 1), (Windows{{0, 2, 1}}));
}

TEST(TextWindowsTest, EveryTokenIsScoredOnceWithAllTheContextThatTheWindowHas) {
  for (int64_t num_tokens = 2; num_tokens < 40; ++num_tokens) {
    for (int64_t window = 2; window < 14; ++window) {
      for (int64_t stride = 1; stride < window; ++stride) {
        SCOPED_TRACE(CaseOf("tokens", num_tokens, "window", window, "stride", stride));
        int64_t next = 1;
        for (const TextWindow& at : WindowsOf(num_tokens, window, stride)) {
          ASSERT_EQ(at.first, next);
          ASSERT_LE(at.end - at.begin, window);
          ASSERT_LT(at.begin, at.first);
          next = at.end;
        }
        ASSERT_EQ(next, num_tokens);
      }
    }
  }
}

}  // namespace
}  // namespace spillway
