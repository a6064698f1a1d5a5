// Rendered chats, against what transformers rendered (make_golden.py).
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "tests/chat/chat_case.h"

namespace spillway {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

const fs::path kFolder = fs::path(SPILLWAY_SOURCE_DIR) / "tests/chat";

std::vector<Json> Lines(const std::string& name) {
  std::ifstream file(kFolder / "golden" / (name + ".jsonl"));
  std::vector<Json> lines;
  for (std::string line; std::getline(file, line);) lines.push_back(Json::parse(line));
  return lines;
}

std::string Source(const std::string& name) {
  std::ifstream file(kFolder / "templates" / (name + ".jinja"));
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

void ExpectOutcome(const Json& asked, const Json& expected) {
  const nlohmann::json rendered = RenderedCase(asked.dump());
  if (expected.contains("error")) {
    EXPECT_TRUE(rendered.contains("error")) << rendered.dump();
  } else {
    EXPECT_EQ(rendered.value("text", rendered.dump()), expected.at("text").get<std::string>());
  }
}

class ChatGoldenTest : public testing::TestWithParam<const char*> {};

TEST_P(ChatGoldenTest, RendersAsTransformersDoes) {
  const std::vector<Json> cases = Lines("cases");
  const std::vector<Json> expected = Lines(GetParam());
  ASSERT_GE(cases.size(), 40U);
  ASSERT_EQ(cases.size(), expected.size());
  int num_texts = 0;
  for (std::size_t at = 0; at < cases.size(); ++at) {
    SCOPED_TRACE(cases[at].at("case"));
    ASSERT_EQ(cases[at].at("case"), expected[at].at("case"));
    Json asked = cases[at];
    asked["template"] = Source(GetParam());
    ExpectOutcome(asked, expected[at]);
    num_texts += expected[at].contains("text") ? 1 : 0;
  }
  EXPECT_GE(num_texts, 20);
}

// A conversation of 1 MB in so many messages, the last one the user's.
Json LongConversation(int num_messages) {
  Json messages = Json::array();
  const std::string words = "A fair text\nof many <words>, and of letters \u00e4. ";
  const auto bytes = static_cast<std::size_t>((1 << 20) / num_messages);
  std::string text;
  while (text.size() < bytes) text += words;
  for (int i = num_messages; i > 0; --i)
    messages.push_back({{"role", i % 2 == 0 ? "assistant" : "user"}, {"content", text}});
  return {{"messages", messages},
          {"add_generation_prompt", true},
          {"special_tokens", {{"bos_token", "<s>"}, {"eos_token", "</s>"}}}};
}

TEST_P(ChatGoldenTest, RendersALongConversation) {
  const bool writes_messages = std::string_view(GetParam()) != "tool_schema";
  for (const int num_messages : {1, 3, 2001}) {
    Json asked = LongConversation(num_messages);
    asked["template"] = Source(GetParam());
    const nlohmann::json rendered = RenderedCase(asked.dump());
    ASSERT_TRUE(rendered.contains("text")) << num_messages << " " << rendered.dump().substr(0, 300);
    EXPECT_GT(rendered.at("text").get<std::string>().size(), writes_messages ? 300'000U : 10U);
  }
}

INSTANTIATE_TEST_SUITE_P(Families, ChatGoldenTest,
                         testing::Values("chatml", "deepseek_r1", "gemma", "gptoss", "granite",
                                         "llama2", "llama3", "mistral", "phi3", "phi4", "qwen25",
                                         "qwen3", "smollm2", "smollm3", "tool_schema", "zephyr"),
                         [](const auto& info) { return std::string(info.param); });

TEST(ChatSnippetTest, RendersAsTransformersDoes) {
  const std::vector<Json> snippets = Lines("snippets");
  ASSERT_GE(snippets.size(), 100U);
  for (const Json& snippet : snippets) {
    SCOPED_TRACE(snippet.at("template"));
    ExpectOutcome(snippet, snippet);
  }
}

}  // namespace
}  // namespace spillway
