#include "src/sampling/choice_path.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/requests/fake_tokenizer.h"

namespace spillway {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

constexpr TokenId kEnds[] = {FakeTokenizer::kEnd};

class ChoicePathTest : public ::testing::Test {
 protected:
  ChoicePath Path() const { return ChoicePath(choices, tokenizer.Index(), kEnds); }
  static std::vector<TokenId> Next(ChoicePath path, std::string_view text, int64_t tokens_left) {
    const std::span<const TokenId> next = path.Next(text, tokens_left);
    return {next.begin(), next.end()};
  }
  static TokenId Byte(char byte) { return FakeTokenizer::Byte(byte); }
  static TokenId Piece(std::size_t index) { return FakeTokenizer::Piece(index); }

  FakeTokenizer tokenizer{{"neg", "negative", "pos", "ative", "no", "\xC3\xA9"}};
  std::vector<std::string> choices = {"negative", "positive", "no", "none"};
};

TEST_F(ChoicePathTest, AllTokensThatChoicesBeginWithMayCome) {
  EXPECT_THAT(Next(Path(), "", 100),
              ElementsAre(Byte('n'), Byte('p'), Piece(0), Piece(1), Piece(2), Piece(4)));
  EXPECT_THAT(Next(Path(), "neg", 100), ElementsAre(Byte('a'), Piece(3)));
  EXPECT_THAT(Next(Path(), "no", 100), ElementsAre(Byte('n')));
  EXPECT_THAT(Next(Path(), "none", 100), IsEmpty());
  EXPECT_THAT(Next(Path(), "maybe", 100), IsEmpty());
}

// "positive" is "pos" and five bytes, six tokens at least.
TEST_F(ChoicePathTest, NoTokenComesAfterWhichNoChoiceCanEnd) {
  EXPECT_EQ(Path().MostTokens(), 6);
  EXPECT_THAT(Next(Path(), "", 6), ElementsAre(Byte('n'), Piece(0), Piece(1), Piece(2), Piece(4)));
  EXPECT_THAT(Next(Path(), "", 2), ElementsAre(Byte('n'), Piece(0), Piece(1), Piece(4)));
  EXPECT_THAT(Next(Path(), "", 1), ElementsAre(Piece(1), Piece(4)));
  EXPECT_THAT(Next(Path(), "no", 1), IsEmpty());
  EXPECT_THAT(Next(Path(), "", 0), IsEmpty());
}

TEST_F(ChoicePathTest, PartsOfCharactersAreTokensToo) {
  choices = {"\xC3\xA9t\xC3\xA9"};
  EXPECT_EQ(Path().MostTokens(), 3);
  EXPECT_THAT(Next(Path(), "", 9), ElementsAre(Byte('\xC3'), Piece(5)));
  EXPECT_THAT(Next(Path(), "\xC3", 9), ElementsAre(Byte('\xA9')));
}

TEST_F(ChoicePathTest, TextsAreFoundAndGoOn) {
  choices.emplace_back("no");
  EXPECT_EQ(Path().Find("no"), 2);
  EXPECT_EQ(Path().Find("non"), -1);
  EXPECT_TRUE(Path().GoesOn("no"));
  EXPECT_FALSE(Path().GoesOn("none"));
}

// A tokenizer whose end token has a text, and no byte of a choice.
class FewTokens final : public FakeTokenizer {
 public:
  void AppendBytes(TokenId id, bool, std::string& out) const override {
    if (id == kEnd) out += "no";
    if (id == Byte('n')) out += 'n';
  }
};

TEST_F(ChoicePathTest, WhatNoTokensSpellIsKnown) {
  const FewTokens few;
  choices = {"no"};
  EXPECT_EQ(ChoicePath(choices, few.Index(), kEnds).MostTokens(), -1);
  EXPECT_EQ(ChoicePath(choices, few.Index(), {}).MostTokens(), 1);
}

}  // namespace
}  // namespace spillway
