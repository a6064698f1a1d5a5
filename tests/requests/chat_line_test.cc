#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <string_view>

#include "spillway/error.h"
#include "src/requests/reader.h"
#include "tests/requests/fake_tokenizer.h"
#include "tests/requests/reader_options.h"
#include "tests/temporary_folder.h"

namespace spillway {
namespace {

using testing::HasSubstr;

constexpr std::string_view kTemplate =
    "{% for m in messages %}[{{ m.role }}]{{ m.content + '' }}{% endfor %}"
    "{{ tools | tojson if tools }}{{ mood }}{{ '[assistant]' if add_generation_prompt }}";

// A reader of lines beside a folder with a chat template.
class ChatLineTest : public testing::Test {
 protected:
  ChatLineTest() { Use(kTemplate); }

  void Use(std::string_view source, const std::string& system = "") {
    folder_.Write("chat_template.jinja", source);
    options_.chat = std::make_shared<const ChatReading>(folder_.path(), "", std::tm(), system);
  }

  RequestOrError Read(std::string_view line) const {
    const FakeTokenizer tokenizer;
    RequestReader reader(folder_.Write("in.jsonl", line), tokenizer, options_);
    return *reader.Next();
  }

  Request Good(std::string_view line) const {
    const RequestOrError read = Read(line);
    if (const auto* error = std::get_if<LineError>(&read)) {
      ADD_FAILURE() << error->message;
      return {};
    }
    return std::get<Request>(read);
  }

  std::string TextOf(std::string_view line) const {
    return FakeTokenizer().Decode(Good(line).prompt);
  }

  // "code: message"
  std::string FaultOf(std::string_view line) const {
    const RequestOrError read = Read(line);
    const auto* error = std::get_if<LineError>(&read);
    return error == nullptr ? "none" : error->code + ": " + error->message;
  }

  TemporaryFolder folder_;
  ReaderOptions options_ = OptionsFor(1000, FakeTokenizer::kFirstPiece);
};

TEST_F(ChatLineTest, BothFormsAreRenderedAndEncodedWithoutAStartToken) {
  const Request request = Good(R"({"messages":[{"role":"user","content":"hi</s>"}]})");
  EXPECT_EQ(request.body, AnswerBody::kMessage);
  EXPECT_EQ(request.prompt.front(), FakeTokenizer::Byte('['));
  EXPECT_EQ(request.prompt[8], FakeTokenizer::kEnd);
  EXPECT_EQ(TextOf(R"({"method":"POST","url":"/v1/chat/completions",)"
                   R"("body":{"messages":[{"role":"user","content":"hi"}]}})"),
            "[user]hi[assistant]");
}

TEST_F(ChatLineTest, TheSystemMessageStandsWhereThereIsNone) {
  Use(kTemplate, "Be brief.");
  EXPECT_EQ(TextOf(R"({"messages":[{"role":"user","content":"hi"}]})"),
            "[system]Be brief.[user]hi[assistant]");
  EXPECT_EQ(
      TextOf(R"({"messages":[{"role":"system","content":"x"},{"role":"user","content":""}]})"),
      "[system]x[user][assistant]");
}

TEST_F(ChatLineTest, PartsBecomeOneTextUnlessTheTemplateTakesThem) {
  constexpr std::string_view kLine =
      R"({"messages":[{"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]}]})";
  EXPECT_EQ(TextOf(kLine), "[user]a\nb[assistant]");
  Use("{% for m in messages %}{% if m.content is string %}{{ m.content }}{% else %}"
      "{% for p in m.content %}{{ p.text }}{% endfor %}{% endif %}{% endfor %}");
  EXPECT_EQ(TextOf(kLine), "ab");
}

TEST_F(ChatLineTest, VariablesToolsAndPromptsReachTheTemplate) {
  EXPECT_EQ(TextOf(R"({"messages":[{"role":"user","content":"x"}],"tools":[{"b":1,"a":2}],)"
                   R"("chat_template_kwargs":{"mood":"!"},"add_generation_prompt":false})"),
            R"([user]x[{"b": 1, "a": 2}]!)");
  EXPECT_EQ(TextOf(R"({"messages":[{"role":"user","content":"x"}],"tools":[]})"),
            "[user]x[assistant]");
  EXPECT_EQ(TextOf(R"({"messages":[{"role":"user","content":"x"}],"tools":[{}],)"
                   R"("tool_choice":"none"})"),
            "[user]x[assistant]");
  EXPECT_EQ(TextOf(R"({"messages":[{"role":"assistant","content":"so "}],)"
                   R"("continue_final_message":true})"),
            "[assistant]so ");
}

TEST_F(ChatLineTest, ArgumentsOfCallsAreReadFromTheirJson) {
  Use("{{ messages[0].tool_calls[0].function.arguments | tojson }}");
  EXPECT_EQ(TextOf(R"({"messages":[{"role":"assistant","tool_calls":[{"function":)"
                   R"({"name":"f","arguments":"{\"x\": [1]}"}}]}]})"),
            R"({"x": [1]})");
}

TEST_F(ChatLineTest, LogprobsHaveTheFormOfChats) {
  constexpr std::string_view kHead = R"({"messages":[{"role":"user","content":"x"}],)";
  const auto number = [&](const std::string& keys) {
    return Good(std::string(kHead) + keys + "}").sampling.num_logprobs;
  };
  EXPECT_EQ(number(R"("logprobs":true)"), 0);
  EXPECT_EQ(number(R"("logprobs":true,"top_logprobs":5)"), 5);
  EXPECT_EQ(number(R"("logprobs":false)"), -1);
  EXPECT_EQ(number(R"("logprobs":null,"top_logprobs":0)"), -1);
  EXPECT_THAT(FaultOf(std::string(kHead) + R"("top_logprobs":5})"), HasSubstr("needs"));
  EXPECT_THAT(FaultOf(std::string(kHead) + R"("logprobs":2})"), HasSubstr("true or false"));
}

TEST_F(ChatLineTest, MaxTokensHasTwoNames) {
  const Request request =
      Good(R"({"messages":[{"role":"user","content":"x"}],"max_completion_tokens":7})");
  EXPECT_EQ(request.sampling.max_tokens, 7);
  EXPECT_EQ(Good(R"({"prompt":"x","max_tokens":7,"max_completion_tokens":7})").sampling.max_tokens,
            7);
  EXPECT_THAT(FaultOf(R"({"prompt":"x","max_tokens":7,"max_completion_tokens":8})"),
              HasSubstr("differ"));
}

TEST_F(ChatLineTest, ALimitOfTheModelsSettingsGivesWayToItsPositions) {
  options_.defaults.max_tokens = 5000;
  EXPECT_THAT(FaultOf(R"({"prompt":"x"})"), HasSubstr("context_length_exceeded"));
  options_.max_tokens_yield = true;
  EXPECT_EQ(Good(R"({"prompt":"x"})").sampling.max_tokens, 998);
  EXPECT_THAT(FaultOf(R"({"prompt":"x","max_tokens":5000})"), HasSubstr("context_length_exceeded"));
  EXPECT_EQ(Good(R"({"prompt":"x","max_tokens":3})").sampling.max_tokens, 3);
}

TEST_F(ChatLineTest, NullsAndNeutralValuesNeverFailALine) {
  EXPECT_EQ(
      TextOf(R"({"messages":[{"role":"user","content":"x"}],"tools":null,"tool_choice":null,)"
             R"("documents":null,"chat_template_kwargs":null,"add_generation_prompt":null,)"
             R"("continue_final_message":null,"prompt":null,"response_format":{"type":"text"},)"
             R"("n":1,"stream":false,"store":false,"parallel_tool_calls":true})"),
      "[user]x[assistant]");
  // Dumps of OpenAI's and vLLM's clients, which carry every field.
  EXPECT_EQ(
      TextOf(R"({"messages":[{"role":"user","content":"x"}],"reasoning_effort":"medium",)"
             R"("verbosity":"medium","modalities":["text"],"service_tier":"auto","audio":null,)"
             R"("prediction":null,"web_search_options":null,"functions":null,"tool_choice":"auto",)"
             R"("function_call":null,"safety_identifier":"a","prompt_cache_key":"b",)"
             R"("include_reasoning":true,"add_special_tokens":false,"echo":false,"priority":0,)"
             R"("mm_processor_kwargs":null,"chat_template":null,"request_id":"c","logprobs":false,)"
             R"("top_logprobs":0,"max_completion_tokens":3.0,"max_tokens":null})"),
      "[user]x[assistant]");
  EXPECT_EQ(Good(R"({"prompt":"x","messages":null})").body, AnswerBody::kText);
}

TEST_F(ChatLineTest, StopTokensMustBeTheModels) {
  const Request request = Good(R"({"prompt":"x","stop_token_ids":[5,7]})");
  EXPECT_THAT(request.sampling.stop_token_ids, testing::ElementsAre(5, 7));
  EXPECT_THAT(FaultOf(R"({"prompt":"x","stop_token_ids":[999]})"), HasSubstr("token_out_of_range"));
  EXPECT_THAT(FaultOf(R"({"prompt":"x","stop_token_ids":5})"), HasSubstr("invalid_value"));
  EXPECT_THAT(FaultOf(R"({"prompt":"x","stop_token_ids":[-1]})"), HasSubstr("invalid_value"));
}

TEST_F(ChatLineTest, WhatIsWrongIsNamed) {
  const auto of_messages = [&](const std::string& messages) {
    return FaultOf(R"({"messages":)" + messages + "}");
  };
  EXPECT_THAT(of_messages("[]"), HasSubstr("at least one message"));
  EXPECT_THAT(of_messages("\"x\""), HasSubstr("at least one message"));
  EXPECT_THAT(of_messages("[5]"), HasSubstr("messages[0] must be an object"));
  EXPECT_THAT(of_messages(R"([{"content":"x"}])"), HasSubstr("\"role\""));
  EXPECT_THAT(of_messages(R"([{"role":"user","content":5}])"), HasSubstr("\"content\""));
  EXPECT_THAT(of_messages(R"([{"role":"user","content":[{"type":"image_url"}]}])"),
              HasSubstr("unsupported_content: line 1: messages[0]: a part of type \"image_url\""));
  EXPECT_THAT(FaultOf(R"({"messages":[{"role":"user","content":"x"}],"tool_choice":"required"})"),
              HasSubstr("unsupported_value"));
  EXPECT_THAT(FaultOf(R"({"messages":[{"role":"user","content":"x"}],"tools":[5]})"),
              HasSubstr("list of objects"));
  EXPECT_THAT(FaultOf(R"({"messages":[{"role":"user","content":"x"}],"chat_template":"y"})"),
              HasSubstr("--chat-template"));
  EXPECT_THAT(FaultOf(R"({"messages":[{"role":"user","content":"x"}],)"
                      R"("chat_template_kwargs":{"tools":[]}})"),
              HasSubstr("stands beside"));
  EXPECT_THAT(FaultOf(R"({"messages":[{"role":"user","content":"x"}],)"
                      R"("add_generation_prompt":true,"continue_final_message":true})"),
              HasSubstr("exclude each other"));
  EXPECT_THAT(FaultOf(R"({"messages":[{"role":"user"}]})"),
              HasSubstr("chat_template: line 1: chat template, line 1: 'dict object' has no"));
  options_.special_text = SpecialText::kPlain;
  EXPECT_THAT(of_messages(R"([{"role":"user","content":"x"}])"), HasSubstr("--no-parse-special"));
}

TEST_F(ChatLineTest, ATemplateThatOpensTheReasoningIsNoted) {
  Use("{{ messages[0].content }}<think>\n");
  EXPECT_TRUE(Good(R"({"messages":[{"role":"user","content":"x"}]})").opens_reasoning);
}

TEST_F(ChatLineTest, ATemplateThatCannotBeReadEndsTheRun) {
  Use("{{ x | urlize }}");
  EXPECT_THROW(Read(R"({"messages":[{"role":"user","content":"x"}]})"), Error);
  EXPECT_EQ(Good(R"({"prompt":"x"})").body, AnswerBody::kText);
}

}  // namespace
}  // namespace spillway
