#include "src/base/terminal.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <string>

namespace spillway {
namespace {

TEST(Terminal, AFullStreamSwallowsTheText) {
  std::FILE* full = std::fopen("/dev/full", "w");
  ASSERT_NE(full, nullptr);
  PrintTo(full, "lost\n");
  PrintTo(full, "lost again\n");
  std::fclose(full);
  PrintTo(nullptr, "for nobody\n");
}

TEST(Terminal, NoTextMovesTheCursor) {
  std::FILE* file = std::tmpfile();
  ASSERT_NE(file, nullptr);
  PrintTo(file,
          "model \x1b[2J\xe2\x80\xae"
          "evil\r, layers\n  12\n");
  std::rewind(file);
  std::string text(100, '\0');
  text.resize(std::fread(text.data(), 1, text.size(), file));
  std::fclose(file);
  EXPECT_EQ(text, "model \\x1b[2J\\xe2\\x80\\xaeevil\\x0d, layers\n  12\n");
}

}  // namespace
}  // namespace spillway
