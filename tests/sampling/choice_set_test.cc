#include "src/sampling/choice_set.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/requests/fake_tokenizer.h"

namespace spillway {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

const std::vector<TokenId> kEnds = {FakeTokenizer::kEnd};

class ChoiceSetTest : public ::testing::Test {
 protected:
  ChoiceSet Set() const { return ChoiceSet(choices, tokenizer.Index(), kEnds); }
  static std::vector<TokenId> Next(const ChoiceSet& set, std::string_view text,
                                   int64_t tokens_left) {
    std::vector<TokenId> next;
    set.Next(text, tokens_left, next);
    return next;
  }
  static TokenId Byte(char byte) { return FakeTokenizer::Byte(byte); }
  static TokenId Piece(std::size_t index) { return FakeTokenizer::Piece(index); }

  FakeTokenizer tokenizer{{"neg", "negative", "pos", "ative", "no", "\xC3\xA9"}};
  std::vector<std::string> choices = {"negative", "positive", "no", "none"};
};

TEST_F(ChoiceSetTest, AllTokensThatChoicesBeginWithMayCome) {
  EXPECT_THAT(Next(Set(), "", 100),
              ElementsAre(Byte('n'), Byte('p'), Piece(0), Piece(1), Piece(2), Piece(4)));
  EXPECT_THAT(Next(Set(), "neg", 100), ElementsAre(Byte('a'), Piece(3)));
  EXPECT_THAT(Next(Set(), "no", 100), ElementsAre(Byte('n')));
  EXPECT_THAT(Next(Set(), "none", 100), IsEmpty());
  EXPECT_THAT(Next(Set(), "maybe", 100), IsEmpty());
}

// "positive" is "pos" and five bytes, six tokens at least.
TEST_F(ChoiceSetTest, NoTokenComesAfterWhichNoChoiceCanEnd) {
  EXPECT_EQ(Set().MostTokens(), 6);
  EXPECT_THAT(Next(Set(), "", 6), ElementsAre(Byte('n'), Piece(0), Piece(1), Piece(2), Piece(4)));
  EXPECT_THAT(Next(Set(), "", 2), ElementsAre(Byte('n'), Piece(0), Piece(1), Piece(4)));
  EXPECT_THAT(Next(Set(), "", 1), ElementsAre(Piece(1), Piece(4)));
  EXPECT_THAT(Next(Set(), "no", 1), IsEmpty());
  EXPECT_THAT(Next(Set(), "", 0), IsEmpty());
}

TEST_F(ChoiceSetTest, PartsOfCharactersAreTokensToo) {
  choices = {"\xC3\xA9t\xC3\xA9"};
  EXPECT_EQ(Set().MostTokens(), 3);
  EXPECT_THAT(Next(Set(), "", 9), ElementsAre(Byte('\xC3'), Piece(5)));
  EXPECT_THAT(Next(Set(), "\xC3", 9), ElementsAre(Byte('\xA9')));
}

TEST_F(ChoiceSetTest, TextsAreFoundAndGoOn) {
  choices.emplace_back("no");
  EXPECT_EQ(Set().Find("no"), 2);
  EXPECT_EQ(Set().Find("non"), -1);
  EXPECT_TRUE(Set().GoesOn("no"));
  EXPECT_FALSE(Set().GoesOn("none"));
}

// A tokenizer whose end token has a text, and no byte of a choice.
class FewTokens final : public FakeTokenizer {
 public:
  void AppendBytes(TokenId id, bool, std::string& out) const override {
    if (id == kEnd) out += "no";
    if (id == Byte('n')) out += 'n';
  }
};

TEST_F(ChoiceSetTest, WhatNoTokensSpellIsKnown) {
  const FewTokens few;
  choices = {"no"};
  EXPECT_EQ(ChoiceSet(choices, few.Index(), kEnds).MostTokens(), -1);
  EXPECT_EQ(ChoiceSet(choices, few.Index(), {}).MostTokens(), 1);
}

}  // namespace
}  // namespace spillway
