// The choice of a backend on systems that refuse one, each in a child that is such a system.
#include "src/io/disk_backend.h"

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <iterator>

#include "tests/io/disk_test_util.h"

namespace spillway::testing {
namespace {

// Makes a call fail with `error` from here on, in all threads, as a container's profile does.
bool Refuse(unsigned call, int error) {
  sock_filter filter[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | static_cast<unsigned>(error)),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog program = {static_cast<unsigned short>(std::size(filter)), filter};
  return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         ::syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program) == 0;
}

// Limits locked memory to enough for a ring, which newer kernels count, but not for buffers.
bool RefuseLockedMemory() {
  const rlimit little = {1 << 20, 1 << 20};
  return ::setrlimit(RLIMIT_MEMLOCK, &little) == 0 && ::setuid(65534) == 0;
}

// True where the backend for `options` says `name` and `note`, and moves bytes.
bool Works(const DiskBackendOptions& options, std::string_view name, std::string_view note,
           const DiskFile& file) {
  std::unique_ptr<DiskBackend> backend = MakeDiskBackend(options);
  if (backend->name() != name) return false;
  if (backend->note().find(note) == std::string::npos) return false;
  DiskQueue queue(std::move(backend));
  const BlockMemory in(1 << 20);
  const std::span<std::byte> out = options.buffers[0].first(1 << 20);
  FillRandom(out, 1);
  MoveBytes(queue, {DiskOp::kWrite, &file, 0, out});
  MoveBytes(queue, {DiskOp::kRead, &file, 0, in.all()});
  return SameBytes(in.all(), out);
}

constexpr int kCannotTest = 77;

// The exit status of a child that runs `body`.
int InChild(const std::function<int()>& body) {
  const pid_t child = ::fork();
  if (child == 0) {
    try {
      ::_exit(body());
    } catch (const Error& error) {
      std::fprintf(stderr, "%s\n", error.what());
      ::_exit(3);
    }
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

class DiskFallbackTest : public ::testing::Test {
 protected:
  TemporaryFolder temp_{kDiskRoot};
  DiskFile file_ = DiskFile::CreateScratch(DiskFolder(temp_.path()), 1 << 20);
  BlockMemory arena_{16 << 20};
};

TEST_F(DiskFallbackTest, ThreadsWhereUringIsRefused) {
  for (const int error : {EPERM, ENOSYS, ENOMEM}) {
    const int status = InChild([&] {
      if (!Refuse(SYS_io_uring_setup, error)) return kCannotTest;
      DiskBackendOptions options;
      options.buffers = {arena_.all()};
      return Works(options, "threads", std::strerror(error), file_) ? 0 : 1;
    });
    if (status == kCannotTest) GTEST_SKIP() << "no seccomp filter here";
    EXPECT_EQ(status, 0) << std::strerror(error);
  }
}

TEST_F(DiskFallbackTest, ThreadsWhereARingMayBeMadeAndNotUsed) {
  if (!HasUring()) GTEST_SKIP() << "no io_uring here";
  for (const int error : {EPERM, EIO}) {
    const int status = InChild([&] {
      if (!Refuse(SYS_io_uring_enter, error)) return kCannotTest;
      DiskBackendOptions options;
      options.buffers = {arena_.all()};
      return Works(options, "threads", std::strerror(error), file_) ? 0 : 1;
    });
    if (status == kCannotTest) GTEST_SKIP() << "no seccomp filter here";
    EXPECT_EQ(status, 0) << std::strerror(error);
  }
}

// A write while the ring works, then a read when it no longer does.
int MoveWhileTheRingFails(int error, const DiskFile& file, std::span<std::byte> out) {
  DiskQueue queue(MakeDiskBackend({}));
  FillRandom(out, 1);
  MoveBytes(queue, {DiskOp::kWrite, &file, 0, out});
  if (!queue.backend().note().empty()) return 1;
  if (!Refuse(SYS_io_uring_enter, error)) return kCannotTest;
  const BlockMemory in(1 << 20);
  for (int repeat = 0; repeat < 3; ++repeat) {
    MoveBytes(queue, {DiskOp::kRead, &file, 0, in.all()});
    if (!SameBytes(in.all(), out)) return 2;
  }
  return queue.backend().note().find(std::strerror(error)) != std::string::npos ? 0 : 4;
}

TEST_F(DiskFallbackTest, ThreadsWhereTheRingFailsInTheRun) {
  if (!HasUring()) GTEST_SKIP() << "no io_uring here";
  for (const int error : {EPERM, EIO, EBADR, EBUSY}) {
    const int status =
        InChild([&] { return MoveWhileTheRingFails(error, file_, arena_.all().first(1 << 20)); });
    if (status == kCannotTest) GTEST_SKIP() << "no seccomp filter here";
    EXPECT_EQ(status, 0) << std::strerror(error);
  }
}

TEST_F(DiskFallbackTest, AFilesystemWithoutFallocateHoldsFilesAllTheSame) {
  const int status = InChild([&] {
    if (!Refuse(SYS_fallocate, EOPNOTSUPP)) return kCannotTest;
    const DiskFile file = DiskFile::CreateScratch(DiskFolder(temp_.path()), 1 << 20);
    const std::span<std::byte> out = arena_.all().first(1 << 20);
    const BlockMemory in(1 << 20);
    FillRandom(out, 2);
    file.WriteAt(0, out);
    file.ReadAt(0, in.all());
    return file.size() == 1 << 20 && SameBytes(in.all(), out) ? 0 : 1;
  });
  if (status == kCannotTest) GTEST_SKIP() << "no seccomp filter here";
  EXPECT_EQ(status, 0);
}

TEST_F(DiskFallbackTest, UnregisteredBuffersWhereMemoryMayNotBeLocked) {
  if (!HasUring()) GTEST_SKIP() << "no io_uring here";
  if (::geteuid() != 0) GTEST_SKIP() << "needs root, to become another user";
  const int status = InChild([&] {
    if (!RefuseLockedMemory()) return kCannotTest;
    DiskBackendOptions options;
    options.kind = DiskBackendKind::kUring;
    options.buffers = {arena_.all()};
    return Works(options, "io_uring", "not registered", file_) ? 0 : 1;
  });
  if (status == kCannotTest) GTEST_SKIP() << "cannot become another user";
  EXPECT_EQ(status, 0);
}

TEST_F(DiskFallbackTest, TooManyThreadsIsASystemLimit) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root, to become another user";
  const int status = InChild([&] {
    const rlimit none = {0, 0};
    if (::setrlimit(RLIMIT_NPROC, &none) != 0 || ::setuid(65534) != 0) return kCannotTest;
    DiskBackendOptions options;
    options.kind = DiskBackendKind::kThreads;
    try {
      MakeDiskBackend(options);
    } catch (const Error& error) {
      return error.code() == ErrorCode::kSystemLimit ? 0 : 1;
    }
    return 2;
  });
  if (status == kCannotTest) GTEST_SKIP() << "cannot become another user";
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace spillway::testing
