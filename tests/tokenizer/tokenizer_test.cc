// The contract of Tokenizer: start tokens, special text, decoding, and time that grows with the
// text alone.
#include "src/tokenizer/tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "src/unicode/form.h"
#include "src/unicode/utf8.h"
#include "tests/temporary_folder.h"

namespace spillway {
namespace {

using testing::ElementsAre;

const std::filesystem::path kTales = SPILLWAY_SOURCE_DIR "/examples/tales-opt-8m";
const std::filesystem::path kGolden = SPILLWAY_SOURCE_DIR "/tests/tokenizer/golden";
constexpr std::size_t kMiB = std::size_t{1} << 20;

std::string Repeat(std::string_view text, std::size_t total_bytes) {
  std::string out;
  while (out.size() < total_bytes) out += text;
  return out;
}

TEST(TokenizerTest, OptPutsItsStartTokenInFront) {
  const auto tokenizer = OpenTokenizer(kTales, 4096);
  EXPECT_THAT(tokenizer->Encode("", SpecialText::kParse), ElementsAre(2));
  EXPECT_THAT(tokenizer->Encode("Hello world", SpecialText::kParse),
              ElementsAre(2, 43, 430, 82, 977));
  EXPECT_EQ(tokenizer->vocab_size(), 4096);
  EXPECT_EQ(tokenizer->kind(), "byte-level BPE");
}

TEST(TokenizerTest, SpecialTextIsATokenUnlessPlain) {
  const auto tokenizer = OpenTokenizer(kTales, 4096);
  EXPECT_THAT(tokenizer->Encode("</s>", SpecialText::kParse), ElementsAre(2, 2));
  const std::vector<TokenId> plain = tokenizer->Encode("</s>", SpecialText::kPlain);
  EXPECT_GT(plain.size(), 2u);
  EXPECT_EQ(tokenizer->Decode(plain), "</s>");
}

TEST(TokenizerTest, SettingsMaySplitSpecialTokensOfTexts) {
  const TemporaryFolder folder;
  for (const auto& entry : std::filesystem::directory_iterator(kTales)) {
    if (entry.path().extension() != ".safetensors")
      std::filesystem::copy(entry.path(), folder.path());
  }
  const std::filesystem::path file = folder / "tokenizer_config.json";
  nlohmann::json settings = nlohmann::json::parse(std::ifstream(file));
  settings["split_special_tokens"] = true;
  std::filesystem::permissions(file, std::filesystem::perms::owner_all);
  std::ofstream(file) << settings;
  const auto tokenizer = OpenTokenizer(folder.path(), 4096);
  EXPECT_THAT(tokenizer->Encode("a </s> b", SpecialText::kParse),
              ElementsAre(2, 68, 224, 31, 18, 86, 33, 272));
}

TEST(TokenizerTest, SpecialTokensHolesAndForeignIdsHaveNoText) {
  const auto tokenizer = OpenTokenizer(kTales, 4096);
  EXPECT_EQ(tokenizer->Decode(std::vector<TokenId>{2, -1, 4096, 2147483647, 1}), "");
  EXPECT_EQ(tokenizer->TokenText(2), "</s>");
  EXPECT_EQ(tokenizer->TokenText(4096), "");
  EXPECT_EQ(tokenizer->TokenText(-5), "");
}

TEST(TokenizerTest, ATextTornInsideACharacterDecodesToAReplacementCharacter) {
  const auto tokenizer = OpenTokenizer(kTales, 4096);
  std::vector<TokenId> ids = tokenizer->Encode("\xF0\x9F\x98\x80", SpecialText::kParse);
  EXPECT_EQ(tokenizer->Decode(ids), "\xF0\x9F\x98\x80");
  ids.pop_back();
  EXPECT_EQ(tokenizer->Decode(ids), "\xEF\xBF\xBD");
}

TEST(TokenizerTest, SentencePieceDropsTheSpaceThatItPutInFront) {
  const auto tokenizer = OpenTokenizer(kGolden / "spm_llama", 100000);
  EXPECT_EQ(tokenizer->kind(), "SentencePiece BPE");
  const std::vector<TokenId> ids = tokenizer->Encode("Once upon", SpecialText::kParse);
  EXPECT_EQ(ids.front(), 1);
  EXPECT_EQ(tokenizer->Decode(ids), "Once upon");
  std::string bytes;
  tokenizer->AppendBytes(ids[1], false, bytes);
  EXPECT_TRUE(bytes.starts_with(' ')) << bytes;
  EXPECT_THAT(tokenizer->Encode("</s>", SpecialText::kParse), ElementsAre(1, 2));
}

TEST(TokenizerTest, SentencePieceHasNoSpaceBehindASpecialToken) {
  const auto tokenizer = OpenTokenizer(kGolden / "spm_llama", 100000);
  EXPECT_EQ(tokenizer->Decode(tokenizer->Encode("x</s>y", SpecialText::kParse)), "xy");
}

// One text of each kind that made some tokenizer quadratic, or overflow its stack. The bound is
// generous: these take 0.1 to 0.4 s in a release build; quadratic work would take minutes.
class LongTextTest : public testing::TestWithParam<const char*> {};

TEST_P(LongTextTest, TakesLinearTime) {
  const auto tokenizer = OpenTokenizer(kGolden / GetParam(), 100000);
  for (const char* unit : {"a", " ", "\n", " \n", "\r\n", "'", "1", "\xE4\xB8\xAD", "\xCC\x81",
                           "</s>", "<", "</", "abcdefg", "x "}) {
    const std::string text = Repeat(unit, kMiB);
    const auto begin = std::chrono::steady_clock::now();
    const std::vector<TokenId> ids = tokenizer->Encode(text, SpecialText::kParse);
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
    EXPECT_LT(seconds.count(), 20.0) << unit;
    EXPECT_GE(ids.size(), 1u) << unit;  // a SentencePiece model may drop white space
  }
}

INSTANTIATE_TEST_SUITE_P(Forms, LongTextTest,
                         testing::Values("gpt2_files", "gpt_neox_json", "llama3_json", "flags_json",
                                         "nemo", "phi4_mini", "deepseek_v3", "gemma", "gemma_model",
                                         "llama2_byte_fallback_json", "spm_llama", "spm_bpe"));

std::string Utf8(std::u32string_view text) {
  std::string out;
  for (const char32_t c : text) AppendCodePoint(c, out);
  return out;
}

// Every expectation is what tokenizers 0.23.3 gives, whose NFC is of Unicode 9.0.
TEST(NfcTest, IsTheReferences) {
  const std::pair<std::u32string_view, std::u32string_view> cases[] = {
      {U"plain", U"plain"},
      {U"e\u0301", U"\u00E9"},
      {U"a\u0301\u0316", U"\u00E1\u0316"},  // the lower class moves in front
      {U"\u212B", U"\u00C5"},
      {U"\u0958", U"\u0915\u093C"},  // excluded from composition
      {U"\u0344", U"\u0308\u0301"},
      {U"\u1112\u1161\u11AB", U"\uD55C"},
      {U"\uAC00\u11A7", U"\uAC00\u11A7"},                  // a vowel behind an open syllable stays
      {U"\u0301\u08D3", U"\u0301\u08D3"},                  // a mark since Unicode 11: not ordered
      {U"a\u08D3\u0301", U"a\u08D3\u0301"},                // and nothing moves past it
      {U"\U00011935\U00011930", U"\U00011935\U00011930"},  // a composite since Unicode 13
  };
  for (const auto& [text, composed] : cases)
    EXPECT_EQ(ToForm(UnicodeForm::kNfc, Utf8(text)), Utf8(composed))
        << testing::PrintToString(Utf8(text));
}

// Ordering by insertion would take most of an hour.
TEST(NfcTest, OrdersALongRunOfMarksInGoodTime) {
  const std::string text = Repeat("\xCC\x81\xCC\x96", kMiB);
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_EQ(ToForm(UnicodeForm::kNfc, text),
            Repeat("\xCC\x96", kMiB / 2) + Repeat("\xCC\x81", kMiB / 2));
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
  EXPECT_LT(seconds.count(), 20.0);
}

TEST(Utf8Test, ReplacesMaximalIllFormedPartsAsPythonDoes) {
  const std::pair<std::string, std::string> cases[] = {
      {"plain", "plain"},      {"\xC3\xA9", "\xC3\xA9"},
      {"\x80", "?"},           {"\xC3", "?"},
      {"\xC0\xAF", "??"},      {"\xE0\x80\xAF", "???"},
      {"\xED\xA0\x80", "???"}, {"\xF0\x9F\x98", "?"},
      {"\xF0\x9F\x98x", "?x"}, {"\xF4\x90\x80\x80", "????"},
      {"\xF5\x80", "??"},      {"\xE2\x82\xE2\x82\xAC", "?\xE2\x82\xAC"},
      {"\xF0\x80\x80", "???"}, {"\xE1\x80\xC3\xA9\xFF", "?\xC3\xA9?"},
  };
  for (const auto& [bytes, marked] : cases) {
    std::string expected;
    for (const char c : marked) expected += c == '?' ? "\xEF\xBF\xBD" : std::string(1, c);
    EXPECT_EQ(ReplaceInvalidUtf8(bytes), expected) << testing::PrintToString(bytes);
    EXPECT_EQ(IsValidUtf8(bytes), bytes == expected) << testing::PrintToString(bytes);
    EXPECT_TRUE(IsValidUtf8(ReplaceInvalidUtf8(bytes))) << testing::PrintToString(bytes);
  }
}

}  // namespace
}  // namespace spillway
