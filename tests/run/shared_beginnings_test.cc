#include "src/run/shared_beginnings.h"

#include <gtest/gtest.h>

#include <numeric>
#include <vector>

namespace spillway {
namespace {

// `count` tokens from `first` on.
std::vector<TokenId> Tokens(int64_t count, TokenId first) {
  std::vector<TokenId> tokens(static_cast<std::size_t>(count));
  std::iota(tokens.begin(), tokens.end(), first);
  return tokens;
}

std::vector<TokenId> Joined(std::vector<TokenId> a, const std::vector<TokenId>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

class SharedBeginningsTest : public ::testing::Test {
 protected:
  void ExpectFound(const std::vector<TokenId>& tokens, int64_t most, int64_t row, int64_t length) {
    const SharedBeginnings::Beginning found = prompts_.Find(tokens, most);
    EXPECT_EQ(found.row, row);
    EXPECT_EQ(found.num_tokens, length);
  }

  const std::vector<TokenId> header_ = Tokens(100, 0);
  const std::vector<TokenId> first_ = Joined(header_, Tokens(90, 1000));
  const std::vector<TokenId> second_ = Joined(header_, Tokens(90, 2000));
  SharedBeginnings prompts_;
};

TEST_F(SharedBeginningsTest, TheLongestBeginningInWholeStepsIsFound) {
  ExpectFound(second_, 190, -1, 0);
  prompts_.Add({4, first_});
  ExpectFound(second_, 190, 4, 96);
  ExpectFound(first_, 190, 4, 160);
  prompts_.Add({7, second_});
  ExpectFound(second_, 190, 7, 160);
  ExpectFound(Joined(header_, Tokens(5, 3000)), 105, 4, 96);  // the first of those that have it
  ExpectFound(Tokens(100, 5), 100, -1, 0);
}

TEST_F(SharedBeginningsTest, TokensWhoseLogitsAreWantedAreNotShared) {
  prompts_.Add({4, first_});
  ExpectFound(first_, 189, 4, 160);
  ExpectFound(first_, 159, 4, 128);
  ExpectFound(first_, 31, -1, 0);
  ExpectFound(Tokens(20, 0), 19, -1, 0);
}

TEST_F(SharedBeginningsTest, NothingIsLeftAfterClear) {
  prompts_.Add({4, first_});
  prompts_.Clear();
  ExpectFound(first_, 190, -1, 0);
}

}  // namespace
}  // namespace spillway
