#include "src/compute/expert_lists.h"

#include <gtest/gtest.h>

#include <vector>

namespace spillway {
namespace {

// Two of five experts, and a shared one, for each of three tokens, behind one of their states.
const ExpertShape kShape = {.num = 5, .top_k = 2, .ffn_size = 8, .shared_ffn = 8};

class ExpertListsTest : public testing::Test {
 protected:
  void Sort(std::size_t num_tokens, const ExpertLists::Range& range) {
    lists.Sort(std::span(tokens).first(num_tokens), range);
  }
  std::vector<int64_t> TokensOf(int64_t expert) const {
    std::vector<int64_t> numbers;
    for (const float* state : lists.Of(expert, lists.All()).states)
      numbers.push_back((state - rows.data()) / 7);
    return numbers;
  }

  std::vector<float> rows = {-1, 4, 1, 5, .6F, .4F, .1F,  //
                             -1, 1, 0, 5, .7F, .3F, .2F,  //
                             -1, 0, 4, 5, .8F, .2F, .3F};
  std::vector<GatheredToken> tokens = {
      {&rows[0], &rows[1]}, {&rows[7], &rows[8]}, {&rows[14], &rows[15]}};
  ExpertLists lists{kShape, 3};
};

std::vector<float> WeightsOf(const ExpertLists& lists, int64_t expert) {
  const ExpertTokens of = lists.Of(expert, lists.All());
  return {of.weights.begin(), of.weights.end()};
}

TEST_F(ExpertListsTest, EachExpertHasItsTokensInTheirOrder) {
  Sort(3, {0, 3});
  EXPECT_EQ(TokensOf(0), (std::vector<int64_t>{1, 2}));
  EXPECT_EQ(TokensOf(1), (std::vector<int64_t>{0, 1}));
  EXPECT_TRUE(TokensOf(2).empty());
  EXPECT_EQ(WeightsOf(lists, 0), (std::vector<float>{.3F, .8F}));
  EXPECT_EQ(WeightsOf(lists, 1), (std::vector<float>{.4F, .7F}));
}

TEST_F(ExpertListsTest, RangesMayBeginAnywhere) {
  Sort(3, {3, 2});
  EXPECT_TRUE(TokensOf(0).empty());
  EXPECT_EQ(TokensOf(1), (std::vector<int64_t>{0, 2}));
  Sort(2, {3, 2});
  EXPECT_EQ(TokensOf(1), (std::vector<int64_t>{0}));
}

TEST_F(ExpertListsTest, TheSharedExpertHasAllTokens) {
  Sort(3, {5, 1});
  EXPECT_EQ(TokensOf(0), (std::vector<int64_t>{0, 1, 2}));
  EXPECT_EQ(WeightsOf(lists, 0), (std::vector<float>{.1F, .2F, .3F}));
}

}  // namespace
}  // namespace spillway
