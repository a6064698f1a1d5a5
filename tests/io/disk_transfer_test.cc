#include "src/io/disk_transfer.h"

#include <cerrno>

#include "tests/io/disk_test_util.h"

namespace spillway::testing {
namespace {

using Step = DiskTransfer::Step;

constexpr int64_t kBytes = 4 * kDiskBlockBytes;

struct Case {
  const char* name;
  DiskOp op;
  bool direct;
  std::vector<int64_t> results;
  Step last;          // the steps before are kAgain
  int64_t next = -1;  // offset of the next attempt, when there is one
  int error = 0;
};

class DiskTransferTest : public ::testing::TestWithParam<Case> {};

TEST_P(DiskTransferTest, Steps) {
  const Case& test = GetParam();
  const TemporaryFolder folder(kDiskRoot);
  const DiskFolder open(folder.path());
  const DiskFile file =
      DiskFile::CreateScratch(open, kBytes, test.direct ? DiskMode::kDirect : DiskMode::kBuffered);
  if (file.direct() != test.direct) GTEST_SKIP() << file.buffered_reason();
  const BlockMemory memory(kBytes);
  DiskTransfer transfer({test.op, &file, 0, memory.all()});
  for (std::size_t at = 0; at + 1 < test.results.size(); ++at) {
    EXPECT_EQ(transfer.Advance(test.results[at]), Step::kAgain) << "attempt " << at;
  }
  EXPECT_EQ(transfer.Advance(test.results.back()), test.last);
  if (test.next >= 0) {
    EXPECT_EQ(transfer.Remaining().offset, test.next);
  }
  if (test.last == Step::kFailed) {
    EXPECT_EQ(transfer.failure().error, test.error);
  }
}

constexpr auto kRead = DiskOp::kRead;
constexpr auto kWrite = DiskOp::kWrite;

INSTANTIATE_TEST_SUITE_P(
    All, DiskTransferTest,
    ::testing::Values(
        Case{"Whole", kRead, true, {kBytes}, Step::kFinished},
        Case{"ShortAligned", kRead, true, {4096}, Step::kAgain, 4096},
        Case{"ShortUnalignedDirect", kRead, true, {4096, 100}, Step::kAgain, 0},
        Case{"ShortUnalignedBuffered", kRead, false, {4096, 100}, Step::kAgain, 4196},
        Case{"ShortUnalignedThreeTimes", kRead, true, {100, 100, 100}, Step::kFailed, -1, 0},
        Case{"RecoversFromUnaligned", kRead, true, {100, 100, kBytes}, Step::kFinished},
        Case{"OneByte", kWrite, false, {1, 1, 1, 1, 1}, Step::kAgain, 5},
        Case{"ZeroThreeTimes", kRead, false, {0, 0, 0}, Step::kFailed, -1, 0},
        Case{"ZeroTwiceThenProgress", kRead, false, {0, 0, 4096, 0, 0}, Step::kAgain, 4096},
        Case{"Interrupted", kRead, true, {-EINTR, 4096}, Step::kAgain, 4096},
        Case{"TryAgain", kWrite, true, {-EAGAIN}, Step::kPause, 0},
        Case{"ReadErrorOnce", kRead, true, {-EIO, kBytes}, Step::kFinished},
        Case{"ReadErrorTwice", kRead, true, {-EIO, -EIO}, Step::kFailed, -1, EIO},
        Case{"WriteError", kWrite, true, {-EIO}, Step::kFailed, -1, EIO},
        Case{"NoSpace", kWrite, true, {-ENOSPC}, Step::kFailed, -1, ENOSPC},
        Case{"Alignment", kRead, true, {-EINVAL, kBytes}, Step::kFinished},
        Case{"AlignmentTwice", kRead, true, {-EINVAL, -EINVAL}, Step::kFailed, -1, EINVAL},
        Case{"Stale", kRead, true, {-ESTALE}, Step::kFailed, -1, ESTALE}),
    [](const auto& info) { return info.param.name; });

TEST(DiskTransfer, RefusedAlignmentMakesTheFileBuffered) {
  const TemporaryFolder folder(kDiskRoot);
  const DiskFile file = DiskFile::CreateScratch(DiskFolder(folder.path()), kBytes);
  if (!file.direct()) GTEST_SKIP() << file.buffered_reason();
  const BlockMemory memory(kBytes);
  DiskTransfer transfer({kRead, &file, 0, memory.all()});
  EXPECT_EQ(transfer.Advance(-EINVAL), Step::kAgain);
  EXPECT_FALSE(file.direct());
  EXPECT_EQ(file.buffered_reason(), "the filesystem refused a direct request");
}

TEST(DiskTransfer, EndlessInterruptionsEnd) {
  const TemporaryFolder folder(kDiskRoot);
  const DiskFile file = DiskFile::CreateScratch(DiskFolder(folder.path()), kBytes);
  const BlockMemory memory(kBytes);
  DiskTransfer transfer({kRead, &file, 0, memory.all()});
  int attempts = 0;
  while (transfer.Advance(-EINTR) == Step::kAgain) ++attempts;
  EXPECT_EQ(attempts, 10'000);
  EXPECT_EQ(transfer.failure().error, EINTR);
}

TEST(DiskTransfer, FailuresSayWhere) {
  const TemporaryFolder folder(kDiskRoot);
  const DiskFile file = DiskFile::CreateScratch(DiskFolder(folder.path()), kBytes);
  const BlockMemory memory(kBytes);
  const DiskRequest request = {kWrite, &file, 4096, memory.Part(0, 8192)};
  ExpectError(ErrorCode::kIo, "scratch file: writing 8192 bytes at 4096: Input/output error", [&] {
    ThrowDiskFailure({request, EIO});
  });
  ExpectError(ErrorCode::kIo, "no progress", [&] { ThrowDiskFailure({request, 0}); });
  for (const int error : {ENOSPC, EDQUOT, EFBIG}) {
    const char* advice = error == EFBIG ? "raise the limit on file sizes (ulimit -f) or give"
                                        : "free some space or give";
    ExpectError(ErrorCode::kDiskSpace, advice, [&] { ThrowDiskFailure({request, error}); });
  }
}

}  // namespace
}  // namespace spillway::testing
