// Holders of locks, as messages name them.
#include "src/base/lock_holder.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <unistd.h>

#include "tests/temporary_folder.h"

namespace spillway {
namespace {

TEST(LockHolderTest, NamesTheProcessThatHoldsTheLock) {
  const TemporaryFolder folder;
  const auto path = folder.Write("a", "");
  folder.Write("b", "");
  const Descriptor held(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  const Descriptor other(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  const Descriptor free(::open((folder / "b").c_str(), O_RDONLY | O_CLOEXEC));
  EXPECT_EQ(LockHolderText(other), "");
  ASSERT_EQ(::flock(held.get(), LOCK_EX | LOCK_NB), 0);
  EXPECT_EQ(LockHolderText(other), fmt::format(" (process {})", ::getpid()));
  EXPECT_EQ(LockHolderText(free), "");
  ASSERT_EQ(::flock(held.get(), LOCK_UN), 0);
  EXPECT_EQ(LockHolderText(other), "");
}

TEST(LockHolderTest, WhatIsNotOpenHasNone) { EXPECT_EQ(LockHolderText({}), ""); }

}  // namespace
}  // namespace spillway
