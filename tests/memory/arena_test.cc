#include "src/memory/arena.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cstdio>
#include <cstdlib>

#include "spillway/error.h"

namespace spillway {
namespace {

// Runs in a process of its own, which alone has little address space.
TEST(HostArenaDeathTest, TheLimitOnAddressSpaceIsNamed) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "the sanitizer needs address space itself";
#endif
  const auto reserve = [] {
    const rlimit limit{256 << 20, 256 << 20};
    ::setrlimit(RLIMIT_AS, &limit);
    try {
      const HostArena arena(int64_t{1} << 30);
    } catch (const Error& error) {
      std::fprintf(stderr, "%s\n", error.what());
      std::_Exit(ExitStatus(error.code()));
    }
    std::_Exit(0);
  };
  EXPECT_EXIT(reserve(), testing::ExitedWithCode(33), "1073741824 bytes of memory.*ulimit -v");
}

// More than any processor can address.
TEST(HostArena, MemoryThatIsNotThereIsNoSystemLimit) {
  rlimit limit{};
  ASSERT_EQ(::getrlimit(RLIMIT_AS, &limit), 0);
  if (limit.rlim_cur != RLIM_INFINITY) GTEST_SKIP() << "address space is limited here";
  try {
    const HostArena arena(int64_t{1} << 60);
    FAIL() << "2^60 bytes were reserved";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kCpuMemory);
  }
}

}  // namespace
}  // namespace spillway
