#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/chat/chat_case.h"

namespace spillway {
namespace {

using testing::HasSubstr;

constexpr const char* kPlain =
    "{% for m in messages %}{{ m.role }}:{{ m.content | trim }};{% endfor %}";

std::string Outcome(nlohmann::ordered_json asked) {
  if (!asked.contains("template")) asked["template"] = kPlain;
  const nlohmann::json rendered = RenderedCase(asked.dump());
  return rendered.contains("text") ? rendered["text"].get<std::string>()
                                   : "fault: " + rendered["error"].get<std::string>();
}

nlohmann::ordered_json Messages(const std::string& last) {
  return {{{"role", "user"}, {"content", "Go"}}, {{"role", "assistant"}, {"content", last}}};
}

TEST(ChatPromptTest, AContinuedMessageEndsWithItsText) {
  EXPECT_EQ(Outcome({{"messages", Messages("well")}, {"continue_final_message", true}}),
            "user:Go;assistant:well");
}

TEST(ChatPromptTest, ATemplateThatTrimsLosesTheSpaceAtTheEnd) {
  EXPECT_EQ(Outcome({{"messages", Messages("well  ")}, {"continue_final_message", true}}),
            "user:Go;assistant:well");
}

TEST(ChatPromptTest, AMessageThatTheTemplateDropsCannotBeContinued) {
  EXPECT_THAT(Outcome({{"template", "{{ messages[0].content }}"},
                       {"messages", Messages("well")},
                       {"continue_final_message", true}}),
              HasSubstr("leaves it out"));
}

TEST(ChatPromptTest, AKeyThatTheTemplateDoesNotReadCannotBeContinued) {
  EXPECT_THAT(
      Outcome({{"messages", Messages("well")}, {"continue_final_message", "reasoning_content"}}),
      HasSubstr("no \"reasoning_content\""));
}

TEST(ChatPromptTest, NullKeysOfAMessageAreLeftOut) {
  EXPECT_EQ(Outcome({{"template", "{{ messages[0].content is defined }}"},
                     {"messages", {{{"role", "user"}, {"content", nullptr}}}}}),
            "False");
}

TEST(ChatPromptTest, VariablesBeatSpecialTokens) {
  EXPECT_EQ(Outcome({{"template", "{{ bos_token }}{{ eos_token }}{{ pad_token }}"},
                     {"messages", nlohmann::json::array()},
                     {"special_tokens", {{"bos_token", "<s>"}, {"eos_token", "</s>"}}},
                     {"variables", {{"eos_token", "<e>"}}}}),
            "<s><e>");
}

}  // namespace
}  // namespace spillway
