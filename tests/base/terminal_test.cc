#include "src/base/terminal.h"

#include <gtest/gtest.h>

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

}  // namespace
}  // namespace spillway
