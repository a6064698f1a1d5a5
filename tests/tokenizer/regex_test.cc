// Patterns of tokenizer files: what they match, as Oniguruma does; what is refused; the time they
// take.
#include "src/unicode/regex.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <stdexcept>
#include <string>
#include <vector>

namespace spillway {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr const char* kUpperThenLower =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}|\s+(?!\S)|\s+)";

std::vector<std::string> Matches(std::string_view pattern, std::string_view text) {
  const Regex regex(pattern);
  RegexSearch search(regex, text);
  std::vector<std::string> found;
  while (const auto match = search.Next())
    found.emplace_back(text.substr(match->begin, match->end - match->begin));
  return found;
}

TEST(RegexTest, TakesTheFirstAlternativeThatFits) {
  EXPECT_THAT(Matches("a|ab", "ab"), ElementsAre("a"));
  EXPECT_THAT(Matches("ab|a", "aab"), ElementsAre("a", "ab"));
  EXPECT_THAT(Matches("(?:a|ab)c", "abc"), ElementsAre("abc"));
}

TEST(RegexTest, RunsAreLongAndGiveBackUnlessPossessive) {
  EXPECT_THAT(Matches("a+ab", "aaab"), ElementsAre("aaab"));
  EXPECT_TRUE(Matches("a++ab", "aaab").empty());
  EXPECT_THAT(Matches(R"(\p{N}{1,3})", "12345"), ElementsAre("123", "45"));
  // Ruby's syntax knows no possessive interval: the plus repeats it.
  EXPECT_THAT(Matches(R"(\p{N}{1,3}+)", "12345"), ElementsAre("12345"));
  EXPECT_THAT(Matches("a{2}", "aaaaa"), ElementsAre("aa", "aa"));
}

TEST(RegexTest, LooksAheadAndKnowsPlaces) {
  EXPECT_THAT(Matches(R"(\s+(?!\S)|\s+)", "a   b "), ElementsAre("  ", " ", " "));
  EXPECT_THAT(Matches(R"(\A +| +\z)", "  a  b "), ElementsAre("  ", " "));
  EXPECT_THAT(Matches("^a|b$", "ab\nab"), ElementsAre("a", "b", "a", "b"));
  EXPECT_THAT(Matches("(?=ab).", "aab"), ElementsAre("a"));
}

TEST(RegexTest, IgnoresCaseAsOnigurumaDoes) {
  EXPECT_THAT(Matches("'(?i:[sdmt]|ll)", "'S'\xC5\xBF'Ll's"),
              ElementsAre("'S", "'\xC5\xBF", "'Ll", "'s"));
  EXPECT_THAT(Matches("(?i)k", "kK\xE2\x84\xAA"), ElementsAre("k", "K", "\xE2\x84\xAA"));
}

TEST(RegexTest, MatchesThePatternsOfPublishedTokenizers) {
  EXPECT_THAT(Matches(kUpperThenLower, "HTTPServer don't 12345  x"),
              ElementsAre("HTTPServer", " don't", " ", "123", "45", " ", " x"));
}

TEST(RegexTest, RefusesByName) {
  const std::pair<const char*, const char*> cases[] = {
      {"(a+)+", "\"(a+)+\""},
      {"(?<=a)b", "\"(?<=\""},
      {"a*?", "\"a*?\""},
      {R"(\p{Han})", R"(\p{Han})"},
      {R"(\w+)", R"(\w)"},
      {R"(a\b)", R"(\b)"},
      {"[a[b]]", "\"[b\""},
      {"[a&&b]", "\"&&\""},
      {"(a", "a ( without its )"},
      {"a)", "a ) without its ("},
      {"[a", "too early"},
      {"a{2,1}", "{2,1}"},
      {"a{100000}", "a count over"},
      {"a*", "an empty text"},
      {"a|", "an empty text"},
      {"(?i)stra", "\"st\" where case is ignored"},
      {R"((?i)\p{L})", "where case is ignored"},
      {"*a", "\"*\""},
  };
  for (const auto& [pattern, what] : cases) {
    SCOPED_TRACE(pattern);
    try {
      Regex{pattern};
      ADD_FAILURE() << "accepted";
    } catch (const std::invalid_argument& fault) {
      EXPECT_THAT(fault.what(), HasSubstr(what));
    }
  }
}

TEST(RegexTest, LongRunsTakeLinearTime) {
  for (const char* unit : {"a", "A", " ", "1", "\xE4\xB8\xAD", "aA", "\xCC\x81"}) {
    std::string text;
    while (text.size() < std::size_t{1} << 20) text += unit;
    const auto begin = std::chrono::steady_clock::now();
    Matches(kUpperThenLower, text);
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
    EXPECT_LT(seconds.count(), 20.0) << unit;
  }
}

// Without a memory of what failed: two to the 30th power.
TEST(RegexTest, AMatchThatFailsOftenEnds) {
  std::string pattern = "(?:b|", text(2000, 'a');
  for (int i = 0; i < 30; ++i) pattern += "a?";
  pattern += "c)";
  EXPECT_TRUE(Matches(pattern, text).empty());
}

}  // namespace
}  // namespace spillway
