// Search for added tokens: which of several is found, and in how many steps.
#include "src/tokenizer/added_tokens.h"

#include <gtest/gtest.h>

#include <random>

#include "spillway/error.h"

namespace spillway {
namespace {

std::string Repeat(std::string_view unit, std::size_t count) {
  std::string text;
  for (std::size_t i = 0; i < count; ++i) text += unit;
  return text;
}

AddedTokenFinder FinderOf(const std::vector<std::string>& patterns) {
  std::vector<AddedToken> tokens;
  for (const std::string& pattern : patterns)
    tokens.push_back({.content = pattern, .id = static_cast<TokenId>(tokens.size())});
  return AddedTokenFinder(std::move(tokens), patterns);
}

// "[1]a" for the token 1 and the text "a".
std::string Segments(const AddedTokenFinder& finder, std::string_view text) {
  std::string out;
  for (const Segment& segment : finder.Split(text, SpecialText::kParse)) {
    if (segment.id >= 0) {
      out += "[" + std::to_string(segment.id) + "]";
    } else {
      out += segment.text;
    }
  }
  return out;
}

TEST(AddedTokensTest, TheLeftmostAndOfThoseTheLongestIsFound) {
  const AddedTokenFinder finder = FinderOf({"ab", "abcd", "bcx", "c", "ab"});
  EXPECT_EQ(Segments(finder, "abcd"), "[1]");
  EXPECT_EQ(Segments(finder, "abcx"), "[0][3]x");
  EXPECT_EQ(Segments(finder, "xbcx"), "x[2]");
  EXPECT_EQ(Segments(finder, "aabcdab"), "a[1][0]");
  EXPECT_EQ(Segments(finder, "b"), "b");
  EXPECT_EQ(Segments(finder, ""), "");
}

// Compares with a search at every place.
TEST(AddedTokensTest, RandomTokensAreFoundAsOneByOne) {
  std::mt19937 random(20260101);
  const auto text_of = [&](std::size_t most) {
    std::string text;
    for (std::size_t left = 1 + random() % most; left > 0; --left)
      text += static_cast<char>('a' + random() % 2);
    return text;
  };
  for (int round = 0; round < 2000; ++round) {
    std::vector<std::string> patterns;
    for (std::size_t count = 1 + random() % 6; count > 0; --count) patterns.push_back(text_of(6));
    const std::string text = text_of(30);
    std::string expected;
    for (std::size_t at = 0; at < text.size();) {
      std::size_t best = patterns.size();
      for (std::size_t i = 0; i < patterns.size(); ++i) {
        const bool longer = best == patterns.size() || patterns[i].size() > patterns[best].size();
        if (text.compare(at, patterns[i].size(), patterns[i]) == 0 && longer) best = i;
      }
      if (best == patterns.size()) {
        expected += text[at++];
      } else {
        expected += "[" + std::to_string(best) + "]";
        at += patterns[best].size();
      }
    }
    ASSERT_EQ(Segments(FinderOf(patterns), text), expected) << text;
  }
}

// Tokens of a hostile file: each place of the text begins all but the last character of one.
TEST(AddedTokensTest, TwiceTheTextTakesTwiceTheSteps) {
  const std::string half(20'000, 'a');
  for (const std::vector<std::string>& patterns : {std::vector<std::string>{half + "b"},
                                                   {"b" + half},
                                                   {half + "b" + half, "a"},
                                                   {half.substr(1) + "b", half + "c", "aa"}}) {
    const AddedTokenFinder finder = FinderOf(patterns);
    for (const std::string unit : {"a", "ab", "aaaab"}) {
      const int64_t once = finder.FindAll(Repeat(unit, 100'000)).num_steps;
      const int64_t twice = finder.FindAll(Repeat(unit, 200'000)).num_steps;
      const auto bytes = static_cast<int64_t>(unit.size());
      EXPECT_LE(once, 2 * 100'000 * bytes);
      EXPECT_LE(twice, 2 * 200'000 * bytes);
      EXPECT_LE(twice, once * 22 / 10);
    }
  }
}

TEST(AddedTokensTest, TokensOfMoreThanFourMebibytesAreRefused) {
  const std::string large(3 << 20, 'a');
  EXPECT_NO_THROW(FinderOf({large}));
  EXPECT_THROW(FinderOf({large, large + "b"}), Error);
}

}  // namespace
}  // namespace spillway
