// Answers in the form of a chat completion.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "src/answers/output_line.h"
#include "tests/answers/writer_values.h"

namespace spillway {
namespace {

using nlohmann::json;

json BodyOf(Request request, const Completion& completion, bool splits_reasoning = false) {
  request.body = AnswerBody::kMessage;
  WriterOptions options = TestWriterOptions();
  options.splits_reasoning = splits_reasoning;
  const json line = json::parse(CompletionLine(request, completion, WriterTokens(), options));
  return line.at("response").at("body");
}

TEST(ChatAnswerTest, IsAChatCompletionWithTokenIdsBesideTheMessage) {
  const json body = BodyOf(RequestOfLine(3), Answer("Hi \"you\"\n", {5, 6}));
  EXPECT_EQ(body.at("object"), "chat.completion");
  EXPECT_EQ(body.at("id"), "chatcmpl-000000000000abcd_3");
  EXPECT_EQ(body.at("created"), 0);
  EXPECT_EQ(body.at("model"), "tales");
  const json& choice = body.at("choices").at(0);
  EXPECT_EQ(choice.at("message"),
            (json{{"role", "assistant"}, {"content", "Hi \"you\"\n"}, {"refusal", nullptr}}));
  EXPECT_EQ(choice.at("token_ids"), json::array({5, 6}));
  EXPECT_EQ(choice.at("finish_reason"), "length");
  EXPECT_TRUE(choice.at("logprobs").is_null());
  EXPECT_EQ(body.at("usage").at("total_tokens"), 7);
}

TEST(ChatAnswerTest, LogprobsHaveOneEntryATokenWithItsBytes) {
  Request request = RequestOfLine(1);
  request.sampling.num_logprobs = 1;
  const TokenId euro = FakeTokenizer::Piece(3);  // half a character
  Completion completion = Answer("", {euro, FakeTokenizer::kEnd});
  completion.logprobs = {{-0.5F, {{FakeTokenizer::Byte('a'), -0.25F}}},
                         {-1.0F, {{FakeTokenizer::kEnd, -1.0F}}}};
  const json content = BodyOf(request, completion).at("choices").at(0).at("logprobs").at("content");
  ASSERT_EQ(content.size(), 2U);
  EXPECT_EQ(content[0].at("token"), "bytes:\\xe2\\x82");
  EXPECT_EQ(content[0].at("logprob"), -0.5);
  EXPECT_EQ(content[0].at("bytes"), json::array({0xe2, 0x82}));
  EXPECT_EQ(content[0].at("top_logprobs"),
            json::array({{{"token", "a"}, {"logprob", -0.25}, {"bytes", {97}}}}));
  EXPECT_TRUE(content[1].at("bytes").is_null());
}

TEST(ChatAnswerTest, ReasoningIsApartWhereThatIsAskedFor) {
  const Completion completion = Answer("<think>\nhm\n</think>\n\nYes", {5});
  const auto message = [&](bool splits) {
    return BodyOf(RequestOfLine(1), completion, splits).at("choices").at(0).at("message");
  };
  EXPECT_EQ(message(false).at("content"), "<think>\nhm\n</think>\n\nYes");
  EXPECT_FALSE(message(false).contains("reasoning_content"));
  EXPECT_EQ(message(true).at("content"), "Yes");
  EXPECT_EQ(message(true).at("reasoning_content"), "hm");
}

}  // namespace
}  // namespace spillway
