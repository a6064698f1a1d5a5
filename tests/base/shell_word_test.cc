#include "src/base/shell_word.h"

#include <gtest/gtest.h>

namespace spillway {
namespace {

TEST(ShellWordTest, ReadsBackAsItsWord) {
  EXPECT_EQ(ShellWord("out/h2o-t4_1.5"), "out/h2o-t4_1.5");
  EXPECT_EQ(ShellWord("my results"), "'my results'");
  EXPECT_EQ(ShellWord("it's $HOME"), "'it'\\''s $HOME'");
  EXPECT_EQ(ShellWord("~/prompts"), "'~/prompts'");
  EXPECT_EQ(ShellWord(""), "''");
}

TEST(ShellWordTest, APathIsNoFlag) {
  EXPECT_EQ(ShellPath("-prompts.jsonl"), "./-prompts.jsonl");
  EXPECT_EQ(ShellPath("--my prompts.jsonl"), "'./--my prompts.jsonl'");
  EXPECT_EQ(ShellPath("a/-b"), "a/-b");
}

}  // namespace
}  // namespace spillway
