#include "src/chat/chat_templates.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/expect_error.h"
#include "tests/temporary_folder.h"

namespace spillway {
namespace {

using spillway::testing::ExpectError;

class ChatTemplatesTest : public ::testing::Test {
 protected:
  std::string Source(const std::string& given = "", bool has_tools = false) const {
    const ChatTemplates templates(folder_.path(), given, {});
    const ChatTemplate* chat = templates.For(has_tools);
    return chat == nullptr ? "none" : chat->source;
  }

  TemporaryFolder folder_;
};

TEST_F(ChatTemplatesTest, AFolderWithoutOneHasNone) {
  EXPECT_EQ(Source(), "none");
  folder_.Write("tokenizer_config.json", R"({"chat_template":null})");
  EXPECT_EQ(Source(), "none");
}

TEST_F(ChatTemplatesTest, TheFileBeatsTheConfig) {
  folder_.Write("tokenizer_config.json", R"({"chat_template":"config"})");
  EXPECT_EQ(Source(), "config");
  folder_.Write("chat_template.jinja", "file");
  EXPECT_EQ(Source(), "file");
}

TEST_F(ChatTemplatesTest, ToolsTakeTheirOwnOfSeveral) {
  folder_.Write("tokenizer_config.json",
                R"({"chat_template":[{"name":"default","template":"a"},)"
                R"({"name":"tool_use","template":"b"},{"name":"rag","template":"c"}]})");
  EXPECT_EQ(Source(), "a");
  EXPECT_EQ(Source("", true), "b");
  EXPECT_EQ(Source("rag"), "c");
  EXPECT_EQ(Source("rag", true), "c");
  std::filesystem::create_directory(folder_.path() / "additional_chat_templates");
  folder_.Write("chat_template.jinja", "d");
  folder_.Write("additional_chat_templates/tool_use.jinja", "e");
  EXPECT_EQ(Source(), "d");
  EXPECT_EQ(Source("", true), "e");
}

TEST_F(ChatTemplatesTest, AFileMayBeGiven) {
  folder_.Write("chat_template.jinja", "model's");
  const std::string file = folder_.Write("mine.jinja", "mine");
  EXPECT_EQ(Source(file), "mine");
  ExpectError(ErrorCode::kFlag, "the name of one of the model's templates (default)",
              [&] { Source("nothing"); });
}

TEST_F(ChatTemplatesTest, AProcessorsFileCountsWhereNoOtherDoes) {
  folder_.Write("chat_template.json", R"({"chat_template":"processor"})");
  EXPECT_EQ(Source(), "processor");
  folder_.Write("tokenizer_config.json", R"({"chat_template":null})");
  EXPECT_EQ(Source(), "processor");
  folder_.Write("tokenizer_config.json", R"({"chat_template":"config"})");
  EXPECT_EQ(Source(), "config");
}

TEST_F(ChatTemplatesTest, AGivenFileOfJsonIsReadAsTheModelsIs) {
  const auto source = [&](const char* name, const char* text, bool has_tools = false) {
    return Source(folder_.Write(name, text), has_tools);
  };
  EXPECT_EQ(source("a.json", R"({"chat_template":"one"})"), "one");
  EXPECT_EQ(source("a.txt", " {\"x\":1,\n\"chat_template\":\"one\"}"), "one");
  const char* list = R"({"chat_template":[{"name":"default","template":"a"},)"
                     R"({"name":"tool_use","template":"b"}]})";
  EXPECT_EQ(source("b.json", list), "a");
  EXPECT_EQ(source("b.json", list, true), "b");
  EXPECT_EQ(source("c.json", R"("a\n")"), "a\n");
  for (const char* text :
       {R"({"messages":{{ x }}})", "{{ x }}", "{% if x %}{% endif %}", "\"{{ x }}\"", "[INST]"})
    EXPECT_EQ(source("d.jinja", text), text);
}

TEST_F(ChatTemplatesTest, AListOfNamedTemplatesMayStandByItself) {
  const std::string list = R"([{"name":"default","template":"one"}])";
  EXPECT_EQ(Source(folder_.Write("a.json", list)), "one");
  EXPECT_EQ(Source(folder_.Write("b.json", "\xEF\xBB\xBF{\"chat_template\":\"two\"}")), "two");
}

TEST_F(ChatTemplatesTest, JsonThatHasNoTemplateIsRefused) {
  for (const char* text : {R"({"a":1})", R"({"chat_template":null})", "{}"}) {
    const std::string file = folder_.Write("a.json", text);
    ExpectError(ErrorCode::kTokenizer, "a.json: is JSON without a \"chat_template\"; give a file",
                [&] { Source(file); });
  }
  const std::string broken = folder_.Write("b.json", R"({"chat_template":"one",})");
  ExpectError(ErrorCode::kTokenizer,
              "b.json: is not valid JSON; give a file of the template's text",
              [&] { Source(broken); });
  for (const char* text : {R"({"chat_template":""})", R"([{"name":"default","template":""}])"}) {
    const std::string file = folder_.Write("d.json", text);
    ExpectError(ErrorCode::kTokenizer, "d.json: has an empty template", [&] { Source(file); });
  }
  const std::string named =
      folder_.Write("c.json", R"({"chat_template":[{"name":"rag","template":"c"}]})");
  ExpectError(ErrorCode::kFlag, "has the templates rag, and none is \"default\"",
              [&] { Source(named); });
}

TEST_F(ChatTemplatesTest, AGivenFileIsReadAtOnceAndTheModelsWhenItIsNeeded) {
  folder_.Write("chat_template.jinja", "{{ x | urlize }}");
  EXPECT_NO_THROW(ChatTemplates(folder_.path(), "", {}));
  ExpectError(ErrorCode::kTokenizer, "chat template, line 1: the filter 'urlize'",
              [&] { Source(); });
  const std::string file = folder_.Write("mine.jinja", "\n{% include 'x' %}");
  ExpectError(ErrorCode::kTokenizer, "line 2: the statement 'include'",
              [&] { ChatTemplates(folder_.path(), file, {}); });
}

TEST_F(ChatTemplatesTest, IdentityAndTimeAreOfTheTemplatesThatCount) {
  folder_.Write("chat_template.jinja", "a");
  const std::string a = ChatTemplates(folder_.path(), "", {}).Identity();
  EXPECT_FALSE(ChatTemplates(folder_.path(), "", {}).TellsTime());
  folder_.Write("chat_template.jinja", "{{ strftime_now('%Y') }}");
  EXPECT_NE(ChatTemplates(folder_.path(), "", {}).Identity(), a);
  EXPECT_TRUE(ChatTemplates(folder_.path(), "", {}).TellsTime());
}

TEST_F(ChatTemplatesTest, SpecialTokensAreVariables) {
  folder_.Write("tokenizer_config.json",
                R"({"bos_token":"<s>","eos_token":{"content":"</s>"},"pad_token":null,)"
                R"("chat_template":"{{ bos_token }}{{ eos_token }}{{ pad_token }}"})");
  const ChatTemplates templates(folder_.path(), "", {});
  Conversation conversation;
  conversation.messages = jinja::MakeList({});
  EXPECT_EQ(RenderChat(*templates.For(false), conversation), "<s></s>");
}

}  // namespace
}  // namespace spillway
