// Every form of tokenizer files against what the reference made of the same texts (make_golden.py).
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "src/tokenizer/tokenizer.h"
#include "src/unicode/utf8.h"

namespace spillway {
namespace {

const std::filesystem::path kGolden = SPILLWAY_SOURCE_DIR "/tests/tokenizer/golden";

uint32_t Fnv1a(const std::string& bytes) {
  uint32_t value = 0x811C9DC5u;
  for (const char byte : bytes) value = (value ^ static_cast<unsigned char>(byte)) * 0x01000193u;
  return value;
}

std::string Hex(uint32_t value) {
  char text[9];
  std::snprintf(text, sizeof text, "%08x", value);
  return text;
}

std::string IdHash(const std::vector<TokenId>& ids) {
  std::string bytes;
  for (const TokenId id : ids) {
    for (int shift = 0; shift < 32; shift += 8) bytes += static_cast<char>(id >> shift & 0xFF);
  }
  return Hex(Fnv1a(bytes));
}

std::vector<std::string> Texts() {
  std::ifstream stream(kGolden / "texts.json");
  return nlohmann::json::parse(stream).get<std::vector<std::string>>();
}

void ExpectHash(const std::string& hash, const std::string& expected) {
  if (expected != "-") {
    EXPECT_EQ(hash, expected);
  }
}

std::filesystem::path FolderOf(const std::string& form) {
  return form == "tales" ? std::filesystem::path(SPILLWAY_SOURCE_DIR "/examples/tales-opt-8m")
                         : kGolden / form;
}

class GoldenTest : public testing::TestWithParam<std::string> {};

TEST_P(GoldenTest, GivesTheIdsAndTextsOfTheReference) {
  const std::string form = GetParam();
  const auto tokenizer = OpenTokenizer(FolderOf(form), 100000);
  std::ifstream expected(kGolden / form / "expected.txt");
  std::size_t num_checked = 0;
  for (const std::string& text : Texts()) {
    std::string ids_hash, plain_hash, text_hash;
    SCOPED_TRACE(testing::PrintToString(text));
    ASSERT_TRUE(expected >> ids_hash >> plain_hash >> text_hash);
    const std::vector<TokenId> ids = tokenizer->Encode(text, SpecialText::kParse);
    ExpectHash(IdHash(ids), ids_hash);
    ExpectHash(IdHash(tokenizer->Encode(text, SpecialText::kPlain)), plain_hash);
    ExpectHash(Hex(Fnv1a(tokenizer->Decode(ids))), text_hash);
    const std::vector<TokenId> bare = tokenizer->EncodeBare(text, SpecialText::kParse);
    EXPECT_LE(tokenizer->LeastTokens(text), std::ssize(bare));
    num_checked += plain_hash != "-" ? 1 : 0;
  }
  EXPECT_GE(num_checked, 500u);
}

INSTANTIATE_TEST_SUITE_P(
    Forms, GoldenTest,
    testing::Values("tales", "closed_words", "deepseek_v3", "gemma", "gemma_model",
                    "llama2_legacy_model", "mistral", "mistral_model", "nemo", "normalizer_nfkc",
                    "normalizer_spaces", "phi4_mini", "pre_tokenizer_bert",
                    "pre_tokenizer_pattern_merged_with_next_0", "r1_distill_qwen", "gpt2_files",
                    "gpt2_json", "gpt_neox_json", "llama3_json", "qwen2_json", "flags_json",
                    "digits_json", "llama2_byte_fallback_json",
                    "metaspace_first_byte_fallback_json", "unknown_fused_json",
                    "unknown_dropped_json", "spm_llama", "spm_bpe", "spm_unigram"),
    [](const auto& form) { return form.param; });

// Texts that one token covers as much of as any: the longest tokens again and again, and what forms
// compose, white space, added tokens.
TEST_P(GoldenTest, NoTextHasFewerTokensThanItsBytesTell) {
  const auto tokenizer = OpenTokenizer(FolderOf(GetParam()), 100000);
  std::vector<std::string> pieces = {
      " ",      "\n", "\t",   "e\u0301\u0302", "a\u0300", "\u1100\u1161\u11a8",
      "\ufb03", "A",  "</s>", "<|endoftext|>", "<mask>",  "\u2581",
      "  x"};
  std::vector<std::string> tokens;
  for (TokenId id = 0; id < tokenizer->vocab_size(); ++id) {
    std::string bytes;
    tokenizer->AppendBytes(id, false, bytes);
    tokens.push_back(bytes.empty() ? tokenizer->TokenText(id) : std::move(bytes));
  }
  std::ranges::sort(tokens, std::ranges::greater(), &std::string::size);
  tokens.resize(std::min<std::size_t>(tokens.size(), 60));
  std::ranges::copy_if(tokens, std::back_inserter(pieces), IsValidUtf8);
  for (const std::string& piece : pieces) {
    std::string text;
    for (int i = 0; i < 50; ++i) text += piece;
    for (const SpecialText special : {SpecialText::kParse, SpecialText::kPlain})
      EXPECT_LE(tokenizer->LeastTokens(text), std::ssize(tokenizer->EncodeBare(text, special)))
          << piece;
  }
}

// A bound is known for the forms of the families, and where a step loses text there is none.
TEST_P(GoldenTest, ABoundIsKnownWhereNothingIsLost) {
  const auto tokenizer = OpenTokenizer(FolderOf(GetParam()), 100000);
  static const std::set<std::string> kLose = {
      "flags_json", "mistral_model", "normalizer_spaces",    "pre_tokenizer_bert",
      "spm_bpe",    "spm_unigram",   "unknown_dropped_json", "unknown_fused_json"};
  EXPECT_EQ(tokenizer->LeastTokens(std::string(100000, 'a')) > 0, !kLose.contains(GetParam()));
}

}  // namespace
}  // namespace spillway
