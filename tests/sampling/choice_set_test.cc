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

std::vector<TokenId> Next(const ChoiceSet& set, const AnswerSoFar& answer, int64_t tokens_left) {
  std::vector<TokenId> next;
  set.Next(answer, tokens_left, next);
  return next;
}
TokenId Byte(char byte) { return FakeTokenizer::Byte(byte); }
TokenId Piece(std::size_t index) { return FakeTokenizer::Piece(index); }

class ChoiceSetTest : public ::testing::Test {
 protected:
  ChoiceSet Set() const { return ChoiceSet(choices, tokenizer, kEnds); }
  AnswerSoFar Of(const std::vector<TokenId>& tokens) {
    text.clear();
    for (const TokenId token : tokens) tokenizer.AppendBytes(token, false, text);
    return {tokens, text};
  }

  PieceTokenizer tokenizer{{"neg", "negative", "pos", "ative", "no"}};
  std::vector<std::string> choices = {"negative", "positive", "no", "none"};
  std::string text;
};

TEST_F(ChoiceSetTest, ChoicesComeInTheirOwnTokens) {
  EXPECT_THAT(Next(Set(), {}, 100), ElementsAre(Piece(1), Piece(2), Piece(4)));
  EXPECT_THAT(Next(Set(), Of({Piece(2)}), 100), ElementsAre(Byte('i')));
  EXPECT_THAT(Next(Set(), Of({Piece(4)}), 100), ElementsAre(Byte('n')));
  EXPECT_THAT(Next(Set(), Of({Piece(1)}), 100), IsEmpty());
  EXPECT_THAT(Next(Set(), Of({Piece(0)}), 100), IsEmpty());
}

// "positive" is "pos" and five bytes.
TEST_F(ChoiceSetTest, NoTokenComesAfterWhichNoChoiceCanEnd) {
  EXPECT_EQ(Set().MostTokens(), 6);
  EXPECT_EQ(Set().Room(), 7);
  EXPECT_THAT(Next(Set(), {}, 6), ElementsAre(Piece(1), Piece(2), Piece(4)));
  EXPECT_THAT(Next(Set(), {}, 5), ElementsAre(Piece(1), Piece(4)));
  EXPECT_THAT(Next(Set(), Of({Piece(4)}), 1), IsEmpty());
  EXPECT_THAT(Next(Set(), {}, 0), IsEmpty());
}

TEST_F(ChoiceSetTest, ChoicesEndAndGoOnInTheirOwnTokens) {
  EXPECT_TRUE(Set().IsChoice(Of({Piece(4)})));
  EXPECT_TRUE(Set().GoesOn(Of({Piece(4)})));
  EXPECT_FALSE(Set().IsChoice(Of({Byte('n'), Byte('o')})));
  EXPECT_FALSE(Set().GoesOn(Of({Byte('n'), Byte('o')})));
  const std::vector<TokenId> none = {Piece(4), Byte('n'), Byte('e')};
  EXPECT_TRUE(Set().IsChoice(Of(none)));
  EXPECT_FALSE(Set().GoesOn(Of(none)));
}

TEST_F(ChoiceSetTest, TextsAreFound) {
  choices.emplace_back("no");
  EXPECT_EQ(Set().Find("no"), 2);
  EXPECT_EQ(Set().Find("non"), -1);
}

// Puts a space in front of a text, as SentencePiece does.
class SpaceInFront final : public PieceTokenizer {
 public:
  using PieceTokenizer::PieceTokenizer;
  std::vector<TokenId> EncodeBare(std::string_view utf8, SpecialText special) const override {
    return PieceTokenizer::EncodeBare(" " + std::string(utf8), special);
  }
};

TEST_F(ChoiceSetTest, AChoicesTokensAreThoseBehindOtherText) {
  const SpaceInFront spaces({" yes", "yes"});
  EXPECT_THAT(Next(ChoiceSet({"yes"}, spaces, kEnds), {}, 9), ElementsAre(Piece(1)));
  EXPECT_THAT(Next(ChoiceSet({" yes"}, spaces, kEnds), {}, 9), ElementsAre(Piece(0)));
}

// Cuts no text into tokens that spell it, as one that changes texts first.
class Capitals final : public FakeTokenizer {
 public:
  using FakeTokenizer::FakeTokenizer;
  std::vector<TokenId> EncodeBare(std::string_view utf8, SpecialText) const override {
    return std::vector<TokenId>(utf8.size(), Byte('A'));
  }
};

class AnyTokensTest : public ::testing::Test {
 protected:
  ChoiceSet Set() const { return ChoiceSet(choices, tokenizer, kEnds); }

  Capitals tokenizer{{"neg", "negative", "pos", "ative", "no", "\xC3\xA9"}};
  std::vector<std::string> choices = {"negative", "positive", "no", "none"};
};

TEST_F(AnyTokensTest, AllTokensThatChoicesBeginWithMayCome) {
  EXPECT_THAT(Next(Set(), {}, 100),
              ElementsAre(Byte('n'), Byte('p'), Piece(0), Piece(1), Piece(2), Piece(4)));
  EXPECT_THAT(Next(Set(), {{}, "neg"}, 100), ElementsAre(Byte('a'), Piece(3)));
  EXPECT_THAT(Next(Set(), {{}, "no"}, 100), ElementsAre(Byte('n')));
  EXPECT_THAT(Next(Set(), {{}, "none"}, 100), IsEmpty());
  EXPECT_THAT(Next(Set(), {{}, "maybe"}, 100), IsEmpty());
}

// "positive" is "pos" and five bytes, six tokens at least.
TEST_F(AnyTokensTest, NoTokenComesAfterWhichNoChoiceCanEnd) {
  EXPECT_EQ(Set().MostTokens(), 6);
  EXPECT_EQ(Set().Room(), 13);
  EXPECT_THAT(Next(Set(), {}, 6), ElementsAre(Byte('n'), Piece(0), Piece(1), Piece(2), Piece(4)));
  EXPECT_THAT(Next(Set(), {}, 2), ElementsAre(Byte('n'), Piece(0), Piece(1), Piece(4)));
  EXPECT_THAT(Next(Set(), {}, 1), ElementsAre(Piece(1), Piece(4)));
  EXPECT_THAT(Next(Set(), {{}, "no"}, 1), IsEmpty());
  EXPECT_THAT(Next(Set(), {}, 0), IsEmpty());
}

TEST_F(AnyTokensTest, PartsOfCharactersAreTokensToo) {
  choices = {"\xC3\xA9t\xC3\xA9"};
  EXPECT_EQ(Set().MostTokens(), 3);
  EXPECT_THAT(Next(Set(), {}, 9), ElementsAre(Byte('\xC3'), Piece(5)));
  EXPECT_THAT(Next(Set(), {{}, "\xC3"}, 9), ElementsAre(Byte('\xA9')));
}

TEST_F(AnyTokensTest, TextsEndAndGoOn) {
  EXPECT_TRUE(Set().IsChoice({{}, "no"}));
  EXPECT_TRUE(Set().GoesOn({{}, "no"}));
  EXPECT_FALSE(Set().IsChoice({{}, "non"}));
  EXPECT_FALSE(Set().GoesOn({{}, "none"}));
}

// A tokenizer whose end token has a text, and no byte of a choice.
class FewTokens final : public FakeTokenizer {
 public:
  void AppendBytes(TokenId id, bool, std::string& out) const override {
    if (id == kEnd) out += "no";
    if (id == Byte('n')) out += 'n';
  }
};

TEST_F(AnyTokensTest, WhatNoTokensSpellIsKnown) {
  const FewTokens few;
  choices = {"no"};
  EXPECT_EQ(ChoiceSet(choices, few, kEnds).MostTokens(), -1);
  EXPECT_EQ(ChoiceSet(choices, few, {}).MostTokens(), 1);
}

}  // namespace
}  // namespace spillway
