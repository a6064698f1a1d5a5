#include "src/checkpoint/generation_config.h"

#include <gtest/gtest.h>

#include "tests/expect_error.h"
#include "tests/temporary_folder.h"

namespace spillway {
namespace {

using spillway::testing::ExpectError;

GenerationConfig Read(std::string_view text) {
  const TemporaryFolder folder;
  folder.Write("generation_config.json", text);
  return ReadGenerationConfig(ReadGenerationDocument(folder.path()));
}

TEST(GenerationConfigTest, AFolderWithoutOneSaysNothing) {
  const TemporaryFolder folder;
  EXPECT_FALSE(ReadGenerationConfig(ReadGenerationDocument(folder.path())).do_sample);
  EXPECT_FALSE(ReadGenerationConfig(nullptr).temperature);
}

TEST(GenerationConfigTest, ReadsWhatIsSaid) {
  const GenerationConfig config = Read(
      R"({"do_sample":true,"temperature":0.6,"top_p":0.9,"top_k":20,"repetition_penalty":1.05,)"
      R"("max_new_tokens":2048,"min_new_tokens":1,"stop_strings":"END","eos_token_id":[1,2],)"
      R"("max_length":4096,"transformers_version":"4.51.0"})");
  EXPECT_TRUE(config.do_sample);
  EXPECT_EQ(config.temperature, 0.6);
  EXPECT_EQ(config.top_p, 0.9);
  EXPECT_EQ(config.top_k, 20);
  EXPECT_EQ(config.repetition_penalty, 1.05);
  EXPECT_EQ(config.max_new_tokens, 2048);
  EXPECT_EQ(config.min_new_tokens, 1);
  EXPECT_EQ(config.stop_strings, std::vector<std::string>{"END"});
}

TEST(GenerationConfigTest, NumbersOfSamplingMustBeFiniteWhereItSamples) {
  EXPECT_FALSE(Read(R"({"temperature":NaN,"top_p":Infinity,"mask":-Infinity})").temperature);
  ExpectError(ErrorCode::kModelInconsistent, "\"temperature\" is nan",
              [] { Read(R"({"temperature":NaN,"do_sample":true})"); });
  ExpectError(ErrorCode::kModelInconsistent, "\"repetition_penalty\" is nan",
              [] { Read(R"({"repetition_penalty":NaN})"); });
}

TEST(GenerationConfigTest, AFileOfNothingSaysNothing) {
  EXPECT_FALSE(Read("").temperature);
  EXPECT_FALSE(Read(" \r\n\t").temperature);
}

TEST(GenerationConfigTest, EmptyStopStringsAreLeftOut) {
  EXPECT_TRUE(Read(R"({"stop_strings":["",""]})").stop_strings.empty());
}

TEST(GenerationConfigTest, NeutralValuesOfUnsupportedSettingsAreFine) {
  EXPECT_NO_THROW(Read(R"({"num_beams":1,"min_p":null,"typical_p":1.0,"no_repeat_ngram_size":0,)"
                       R"("suppress_tokens":[],"guidance_scale":1,"penalty_alpha":0})"));
  EXPECT_NO_THROW(Read(R"({"min_p":0.1})"));  // greedy does not ask for it
}

TEST(GenerationConfigTest, UnsupportedSettingsAreRefusedByName) {
  for (const char* setting : {"\"num_beams\":4", "\"no_repeat_ngram_size\":3",
                              "\"suppress_tokens\":[1]", "\"do_sample\":true,\"min_p\":0.1"}) {
    ExpectError(ErrorCode::kModelUnsupported, "--ignore-generation-config",
                [&] { Read(std::string("{") + setting + "}"); });
  }
}

TEST(GenerationConfigTest, ValuesOutOfRangeAreRefused) {
  for (const char* setting :
       {"\"temperature\":-1", "\"top_p\":2", "\"top_k\":1.5", "\"do_sample\":1",
        "\"max_new_tokens\":0", "\"repetition_penalty\":0", "\"stop_strings\":5"}) {
    ExpectError(ErrorCode::kModelInconsistent, "generation_config.json",
                [&] { Read(std::string("{") + setting + "}"); });
  }
}

}  // namespace
}  // namespace spillway
