// Every form of tokenizer files against what the reference made of the same texts (make_golden.py).
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "src/tokenizer/tokenizer.h"

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

class GoldenTest : public testing::TestWithParam<std::string> {};

TEST_P(GoldenTest, GivesTheIdsAndTextsOfTheReference) {
  const std::string form = GetParam();
  const auto folder = form == "tales"
                          ? std::filesystem::path(SPILLWAY_SOURCE_DIR "/examples/tales-opt-8m")
                          : kGolden / form;
  const auto tokenizer = OpenTokenizer(folder, 100000);
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

}  // namespace
}  // namespace spillway
