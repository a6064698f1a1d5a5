#include "src/answers/reasoning.h"

#include <gtest/gtest.h>

namespace spillway {
namespace {

// "reasoning|content", "-" for no reasoning.
std::string Split(std::string_view text, bool is_open = false) {
  const SplitText parts = SplitReasoning(text, is_open);
  return parts.reasoning.value_or("-") + "|" + parts.content;
}

TEST(ReasoningTest, StandsInFrontOfTheAnswer) {
  EXPECT_EQ(Split("<think>\nLet me see.\n</think>\n\nYes."), "Let me see.|Yes.");
  EXPECT_EQ(Split("\n<think>a</think>b"), "a|b");
  EXPECT_EQ(Split("<think>\n\n</think>\n\nYes."), "|Yes.");
}

TEST(ReasoningTest, MayBeOpenedByThePrompt) {
  EXPECT_EQ(Split("Let me see.\n</think>\n\nYes.", true), "Let me see.|Yes.");
  EXPECT_EQ(Split("<think>a</think>b", true), "a|b");
}

TEST(ReasoningTest, ThatIsCutOffLeavesNoAnswer) {
  EXPECT_EQ(Split("<think>\nLet me"), "Let me|");
  EXPECT_EQ(Split("Let me", true), "Let me|");
}

TEST(ReasoningTest, TextWithoutAnyStaysAsItIs) {
  EXPECT_EQ(Split(" Yes.\n"), "-| Yes.\n");
  EXPECT_EQ(Split("Say <think> twice </think>"), "-|Say <think> twice </think>");
  EXPECT_EQ(Split("a </think> b"), "-|a </think> b");
  EXPECT_EQ(Split(""), "-|");
}

}  // namespace
}  // namespace spillway
