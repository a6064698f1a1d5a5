// Faults that a queue cannot get over: an Error for the waiter, never silence, never a hang.
#include <cerrno>
#include <thread>

#include "src/io/disk_queue.h"
#include "tests/io/disk_test_util.h"
#include "tests/trace_case.h"

namespace spillway::testing {
namespace {

constexpr int64_t kFileBytes = 1 << 20;
constexpr int64_t kPiece = 64 << 10;

class DiskFaultTest : public ::testing::TestWithParam<DiskBackendKind> {
 protected:
  void SetUp() override {
    if (GetParam() == DiskBackendKind::kUring && !HasUring()) GTEST_SKIP() << "no io_uring here";
  }

  std::unique_ptr<DiskQueue> Queue(const std::string& faults, int num_tickets = 16) {
    DiskQueueOptions options;
    options.transfer_bytes = kPiece;
    options.num_tickets = num_tickets;
    return std::make_unique<DiskQueue>(MakeBackend(GetParam(), {}, faults), options);
  }
  DiskRequest All(DiskOp op) const { return {op, &file_, 0, memory_.all()}; }

  TemporaryFolder temp_{kDiskRoot};
  DiskFile file_ = DiskFile::CreateScratch(DiskFolder(temp_.path()), kFileBytes);
  BlockMemory memory_{kFileBytes};
};

TEST_P(DiskFaultTest, PersistentReadErrorNamesFileAndOffset) {
  auto queue = Queue("read:error=5@3/1");
  ExpectError(ErrorCode::kIo, "scratch file: reading 65536 bytes at ",
              [&] { MoveBytes(*queue, All(DiskOp::kRead)); });
}

TEST_P(DiskFaultTest, WriteErrorIsNotTriedAgain) {
  auto queue = Queue("write:error=5@3");
  ExpectError(ErrorCode::kIo, "Input/output error",
              [&] { MoveBytes(*queue, All(DiskOp::kWrite)); });
}

TEST_P(DiskFaultTest, NoSpace) {
  for (const int error : {ENOSPC, EDQUOT, EFBIG}) {
    auto queue = Queue("write:error=" + std::to_string(error) + "@2");
    ExpectError(ErrorCode::kDiskSpace, "writing 65536 bytes at ",
                [&] { MoveBytes(*queue, All(DiskOp::kWrite)); });
  }
}

TEST_P(DiskFaultTest, NoProgress) {
  auto queue = Queue("read:short=0@0/1");
  ExpectError(ErrorCode::kIo, "no progress", [&] { MoveBytes(*queue, All(DiskOp::kRead)); });
}

TEST_P(DiskFaultTest, TruncatedFile) {
  auto queue = Queue("");
  ASSERT_EQ(::ftruncate(file_.fd(), kFileBytes / 2), 0);
  ExpectError(ErrorCode::kIo, "no progress", [&] { MoveBytes(*queue, All(DiskOp::kRead)); });
  EXPECT_TRUE(file_.Changed());
}

TEST_P(DiskFaultTest, OneByteAtATime) {
  const DiskFile file =
      DiskFile::CreateScratch(DiskFolder(temp_.path()), 4096, DiskMode::kBuffered);
  auto queue = Queue("read:short=1@0/1,write:short=1@0/1");
  const BlockMemory in(4096);
  FillRandom(memory_.Part(0, 4096), 3);
  MoveBytes(*queue, {DiskOp::kWrite, &file, 0, memory_.Part(0, 4096)});
  MoveBytes(*queue, {DiskOp::kRead, &file, 0, in.all()});
  EXPECT_TRUE(SameBytes(in.all(), memory_.Part(0, 4096)));
  EXPECT_EQ(queue->totals(DiskOp::kRead).attempts, 4096);
}

TEST_P(DiskFaultTest, RefusedAlignmentFallsBack) {
  if (!file_.direct()) GTEST_SKIP() << file_.buffered_reason();
  auto queue = Queue("read:error=22@5");
  FillRandom(memory_.all(), 4);
  MoveBytes(*queue, All(DiskOp::kWrite));
  const BlockMemory in(kFileBytes);
  MoveBytes(*queue, {DiskOp::kRead, &file_, 0, in.all()});
  EXPECT_FALSE(file_.direct());
  EXPECT_TRUE(SameBytes(in.all(), memory_.all()));
}

TEST_P(DiskFaultTest, AFailedTicketStaysFailedForAll) {
  auto queue = Queue("write:error=5@0");
  const DiskRequest bad = All(DiskOp::kWrite);
  const DiskTicket ticket = queue->Submit({&bad, 1});
  std::vector<std::thread> waiters;
  for (int waiter = 0; waiter < 8; ++waiter) {
    waiters.emplace_back([&] { EXPECT_THROW(queue->Wait(ticket), Error); });
  }
  for (std::thread& waiter : waiters) waiter.join();
  EXPECT_TRUE(queue->Done(ticket));
  MoveBytes(*queue, All(DiskOp::kWrite));  // others are not affected
  EXPECT_THROW(queue->Wait(ticket), Error);
}

TEST_P(DiskFaultTest, FailedTicketsRunOutWithAnError) {
  auto queue = Queue("write:error=5@0/1", 2);
  for (int failure = 0; failure < 2; ++failure) {
    EXPECT_THROW(MoveBytes(*queue, All(DiskOp::kWrite)), Error) << failure;
  }
  ExpectError(ErrorCode::kIo, "too many", [&] { MoveBytes(*queue, All(DiskOp::kWrite)); });
}

// X6: after Wait has thrown nothing moves any more, so the memory may be used for something else.
TEST_P(DiskFaultTest, NothingMovesAfterAFailure) {
  FillRandom(memory_.all(), 5);
  file_.WriteAt(0, memory_.all());
  auto queue = Queue("read:error=121@1,read:delay=2000@2/1");
  EXPECT_THROW(MoveBytes(*queue, All(DiskOp::kRead)), Error);
  const BlockMemory zero(kFileBytes);
  std::ranges::fill(memory_.all(), std::byte{0});
  std::this_thread::sleep_for(std::chrono::milliseconds(30));
  EXPECT_TRUE(SameBytes(memory_.all(), zero.all()));
}

TEST_P(DiskFaultTest, RandomFaultsGiveRightBytesOrAnError) {
  int failures = 0;
  const BlockMemory out(kFileBytes);
  FillRandom(out.all(), 6);
  file_.WriteAt(0, out.all());
  for (int seed = 0; seed < 40; ++seed) {
    SCOPED_TRACE(CaseOf("seed", seed));
    auto queue =
        Queue("read:error=5@" + std::to_string(seed % 5) + "/" + std::to_string(1 + seed % 2 * 50) +
              ",read:short=4096@1/4,shuffle=" + std::to_string(seed));
    std::ranges::fill(memory_.all(), std::byte{0});
    try {
      MoveBytes(*queue, All(DiskOp::kRead));
      EXPECT_TRUE(SameBytes(memory_.all(), out.all()));
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kIo);
      ++failures;
    }
  }
  EXPECT_GT(failures, 0);
  EXPECT_LT(failures, 40);
}

INSTANTIATE_TEST_SUITE_P(Backends, DiskFaultTest,
                         ::testing::Values(DiskBackendKind::kUring, DiskBackendKind::kThreads),
                         [](const auto& info) { return info.index == 0 ? "uring" : "threads"; });

TEST(FaultPlan, IsReadFromText) {
  const FaultPlan plan = ParseFaultPlan("read:error=5@3,write:lost@0/2,shuffle=7");
  ASSERT_EQ(plan.faults.size(), 2U);
  EXPECT_EQ(plan.faults[0].value, 5);
  EXPECT_EQ(plan.faults[0].first, 3);
  EXPECT_EQ(plan.faults[1].kind, FaultKind::kLost);
  EXPECT_EQ(plan.faults[1].period, 2);
  EXPECT_TRUE(plan.shuffle);
  EXPECT_EQ(plan.seed, 7U);
  for (const char* bad :
       {"read", "read:nothing", "up:error=5", "read:error=x", "read:error=5@-1", "shuffle=", ","}) {
    ExpectError(ErrorCode::kFlag, "fault", [&] { ParseFaultPlan(bad); });
  }
}

}  // namespace
}  // namespace spillway::testing
