// The contract of DiskQueue, for every backend, kind of filesystem, mode and order of completion.
#include "src/io/disk_queue.h"

#include <algorithm>
#include <cctype>
#include <deque>
#include <optional>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "tests/io/disk_test_util.h"

namespace spillway::testing {
namespace {

constexpr int64_t kFileBytes = 8 << 20;
constexpr int64_t kBlock = kDiskBlockBytes;

// kind, root, registered arena, mode, faults that must not show
using Setting = std::tuple<DiskBackendKind, const char*, bool, DiskMode, const char*>;

class DiskQueueTest : public ::testing::TestWithParam<Setting> {
 protected:
  void SetUp() override {
    const auto& [kind, root, registered, mode, faults] = GetParam();
    if (kind == DiskBackendKind::kUring && !HasUring()) GTEST_SKIP() << "no io_uring here";
    temp_.emplace(root);
    file_.reset(new DiskFile(DiskFile::CreateScratch(DiskFolder(temp_->path()), kFileBytes, mode)));
    MakeQueue({});
  }

  void MakeQueue(DiskQueueOptions options) {
    const auto& [kind, root, registered, mode, faults] = GetParam();
    queue_.reset();
    options.transfer_bytes = 64 << 10;  // so that many requests are split
    queue_ = std::make_unique<DiskQueue>(
        MakeBackend(kind, registered ? memory_.all() : std::span<std::byte>(), faults), options);
  }

  DiskRequest Read(int64_t offset, std::span<std::byte> memory) const {
    return {DiskOp::kRead, file_.get(), offset, memory};
  }
  DiskRequest Write(int64_t offset, std::span<std::byte> memory) const {
    return {DiskOp::kWrite, file_.get(), offset, memory};
  }

  std::optional<TemporaryFolder> temp_;
  std::unique_ptr<DiskFile> file_;
  BlockMemory memory_{4 << 20};
  std::unique_ptr<DiskQueue> queue_;
};

TEST_P(DiskQueueTest, ReadsWhatWasWritten) {
  const std::span<std::byte> out = memory_.Part(0, 1 << 20);
  const std::span<std::byte> in = memory_.Part(1 << 20, 1 << 20);
  FillRandom(out, 7);
  MoveBytes(*queue_, Write(3 * kBlock, out));
  MoveBytes(*queue_, Read(3 * kBlock, in));
  EXPECT_TRUE(SameBytes(in, out));
  EXPECT_EQ(queue_->totals(DiskOp::kWrite).bytes, 1 << 20);
  EXPECT_EQ(queue_->totals(DiskOp::kRead).bytes, 1 << 20);
  EXPECT_GT(queue_->totals(DiskOp::kRead).busy_s, 0.0);
  EXPECT_GE(queue_->totals(DiskOp::kRead).attempts, 16);
}

TEST_P(DiskQueueTest, MemoryOutsideTheArenaWorks) {
  const BlockMemory other(256 << 10);
  FillRandom(other.all(), 8);
  MoveBytes(*queue_, Write(0, other.all()));
  MoveBytes(*queue_, Read(0, memory_.Part(0, 256 << 10)));
  EXPECT_TRUE(SameBytes(memory_.Part(0, 256 << 10), other.all()));
}

TEST_P(DiskQueueTest, ATicketOfManyRequestsIsDoneWhenAllAre) {
  FillRandom(memory_.all(), 9);
  MoveBytes(*queue_, Write(0, memory_.all()));
  const BlockMemory in(2 << 20);
  std::vector<DiskRequest> requests;
  for (int64_t at = 0; at < (2 << 20); at += 8 * kBlock) {
    requests.push_back(Read(at, in.Part(at, 8 * kBlock)));
  }
  const DiskTicket ticket = queue_->Submit(requests);
  queue_->Wait(ticket);
  EXPECT_TRUE(queue_->Done(ticket));
  queue_->Wait(ticket);  // again
  EXPECT_TRUE(SameBytes(in.all(), memory_.Part(0, 2 << 20)));
}

TEST_P(DiskQueueTest, NothingToDoIsDone) {
  const DiskTicket ticket = queue_->Submit({});
  EXPECT_TRUE(queue_->Done(ticket));
  queue_->Wait(ticket);
  queue_->Wait({});
}

TEST_P(DiskQueueTest, GoesOnWithFewPiecesAndTickets) {
  DiskQueueOptions options;
  options.num_pieces = 3;
  options.num_tickets = 2;
  MakeQueue(options);
  FillRandom(memory_.all(), 10);
  const std::span<std::byte> out = memory_.Part(0, 2 << 20);
  MoveBytes(*queue_, Write(0, out));  // 32 pieces
  const std::span<std::byte> in = memory_.Part(2 << 20, 2 << 20);
  std::vector<DiskTicket> tickets;
  for (int64_t at = 0; at < (2 << 20); at += 128 << 10) {
    const DiskRequest request = Read(at, in.subspan(static_cast<std::size_t>(at), 128 << 10));
    tickets.push_back(queue_->Submit({&request, 1}));
  }
  for (const DiskTicket ticket : tickets) queue_->Wait(ticket);
  EXPECT_TRUE(SameBytes(in, out));
}

TEST_P(DiskQueueTest, DestructionWaitsForWhatIsUnderWay) {
  const std::span<std::byte> out = memory_.Part(0, 1 << 20);
  FillRandom(out, 11);
  const DiskRequest write = Write(0, out);
  queue_->Submit({&write, 1});
  MakeQueue({});
  MoveBytes(*queue_, Read(0, memory_.Part(1 << 20, 1 << 20)));
  EXPECT_TRUE(SameBytes(memory_.Part(1 << 20, 1 << 20), out));
}

TEST_P(DiskQueueTest, TellsWhenBytesMoved) {
  std::vector<DiskSpan> spans;
  DiskQueueOptions options;
  std::mutex mutex;
  options.on_done = [&](const DiskSpan& span) {
    const std::lock_guard lock(mutex);
    spans.push_back(span);
  };
  MakeQueue(options);
  const auto before = std::chrono::steady_clock::now();
  const DiskRequest write = Write(0, memory_.Part(0, 256 << 10));
  const DiskTicket ticket = queue_->Submit({&write, 1}, &mutex);
  queue_->Wait(ticket);
  const std::lock_guard lock(mutex);
  ASSERT_EQ(spans.size(), 1U);
  EXPECT_EQ(spans[0].ticket, ticket);
  EXPECT_EQ(spans[0].user_data, &mutex);
  EXPECT_EQ(spans[0].op, DiskOp::kWrite);
  EXPECT_EQ(spans[0].bytes, 256 << 10);
  EXPECT_LE(before, spans[0].begin);
  EXPECT_LE(spans[0].begin, spans[0].end);
}

struct FilePart {
  int64_t offset = 0;
  int64_t bytes = 0;
};

// Each worker owns a part of the file and mirrors it in memory.
void WorkAgainstOracle(DiskQueue& queue, const DiskFile& file, FilePart part, uint64_t seed) {
  std::mt19937_64 random(seed);
  const BlockMemory oracle(part.bytes);
  const BlockMemory memory(part.bytes);
  const int64_t blocks = part.bytes / kBlock;
  for (int round = 0; round < 6; ++round) {
    std::vector<DiskRequest> requests;
    const bool writes = round % 2 == 0;
    for (int64_t at = 0; at < blocks;) {
      const int64_t take = std::min<int64_t>(blocks - at, 1 + static_cast<int64_t>(random() % 9));
      const std::span<std::byte> bytes = memory.Part(at * kBlock, take * kBlock);
      if (writes) FillRandom(bytes.first(64), random());
      requests.push_back(
          {writes ? DiskOp::kWrite : DiskOp::kRead, &file, part.offset + at * kBlock, bytes});
      at += take;
    }
    std::ranges::shuffle(requests, random);
    if (writes) std::ranges::copy(memory.all(), oracle.all().begin());
    if (!writes) std::ranges::fill(memory.all(), std::byte{0xFF});
    queue.Wait(queue.Submit(requests));
    ASSERT_TRUE(SameBytes(memory.all(), oracle.all())) << "round " << round;
  }
}

TEST_P(DiskQueueTest, SixtyFourThreadsSeeTheirOwnBytes) {
  constexpr int kThreads = 64;
  constexpr int64_t kPart = kFileBytes / kThreads;
  std::vector<std::thread> threads;
  for (int thread = 0; thread < kThreads; ++thread) {
    threads.emplace_back([&, thread] {
      WorkAgainstOracle(*queue_, *file_, {thread * kPart, kPart}, static_cast<uint64_t>(thread));
    });
  }
  for (std::thread& thread : threads) thread.join();
}

std::string SettingName(const ::testing::TestParamInfo<Setting>& info) {
  const auto& [kind, root, registered, mode, faults] = info.param;
  std::string name = kind == DiskBackendKind::kUring ? "uring" : "threads";
  name += std::string(root) == kDiskRoot ? "_disk" : "_tmpfs";
  name += registered ? "_registered" : "";
  name += mode == DiskMode::kDirect ? "_direct" : "_buffered";
  std::string suffix = faults;
  std::ranges::replace_if(
      suffix, [](char c) { return std::isalnum(c) == 0; }, '_');
  return name + (suffix.empty() ? "" : "_" + suffix);
}

constexpr auto kUring = DiskBackendKind::kUring;
constexpr auto kThreads = DiskBackendKind::kThreads;

INSTANTIATE_TEST_SUITE_P(
    Plain, DiskQueueTest,
    ::testing::Combine(::testing::Values(kUring, kThreads),
                       ::testing::Values(kDiskRoot, kMemoryRoot), ::testing::Bool(),
                       ::testing::Values(DiskMode::kDirect, DiskMode::kBuffered),
                       ::testing::Values("")),
    SettingName);

// Faults that a queue has to get over without a trace.
INSTANTIATE_TEST_SUITE_P(
    Faults, DiskQueueTest,
    ::testing::Combine(
        ::testing::Values(kUring, kThreads), ::testing::Values(kDiskRoot), ::testing::Values(true),
        ::testing::Values(DiskMode::kDirect, DiskMode::kBuffered),
        ::testing::Values("shuffle=3", "read:short=4096@0/2,write:short=8192@1/2",
                          "read:short=4095@0/50,shuffle=4", "read:error=4@0/2,write:error=4@0/2",
                          "read:error=11@0/9,write:error=11@1/9",
                          "read:error=5@0,read:error=5@100,read:error=5@1000",
                          "read:delay=300@0/5,write:delay=200@0/6", "read:short=0@0/50")),
    SettingName);

// Holds what is started until it is told to end the oldest.
class HeldBackend final : public DiskBackend {
 public:
  static constexpr int kDepth = 16;

  std::string_view name() const override { return "held"; }
  std::string note() const override { return ""; }
  int depth() const override { return kDepth; }
  void Connect(DiskSink& sink) override { sink_ = &sink; }
  void Start(int32_t id, const DiskRequest& request) override {
    held_.emplace_back(id, request.bytes());
  }

  std::size_t num_held() const { return held_.size(); }
  void EndOldest() {
    const auto [id, bytes] = held_.front();
    held_.pop_front();
    sink_->Completed(id, bytes);
  }

 private:
  DiskSink* sink_ = nullptr;
  std::deque<std::pair<int32_t, int64_t>> held_;
};

// Counts how many of `count` requests of so many bytes are in flight at first, and as each of them
// ends.
std::vector<std::size_t> NumbersInFlight(int count, int64_t bytes) {
  const TemporaryFolder folder(kDiskRoot);
  const DiskFile file = DiskFile::CreateScratch(DiskFolder(folder.path()), kFileBytes);
  const BlockMemory memory(count * bytes);
  auto made = std::make_unique<HeldBackend>();
  HeldBackend& backend = *made;
  DiskQueueOptions options;
  options.in_flight_bytes = 256 << 10;
  DiskQueue queue(std::move(made), options);
  std::vector<DiskRequest> requests;
  for (int64_t at = 0; at < count * bytes; at += bytes)
    requests.push_back({DiskOp::kWrite, &file, at, memory.Part(at, bytes)});
  const DiskTicket ticket = queue.Submit(requests);
  std::vector<std::size_t> numbers = {backend.num_held()};
  while (backend.num_held() > 0) {
    backend.EndOldest();
    numbers.push_back(backend.num_held());
  }
  queue.Wait(ticket);
  return numbers;
}

TEST(DiskQueue, BytesInFlightAreLimitedAndSmallRequestsAreMany) {
  using Numbers = std::vector<std::size_t>;
  EXPECT_EQ(NumbersInFlight(6, 64 << 10), (Numbers{4, 4, 4, 3, 2, 1, 0}));
  EXPECT_EQ(NumbersInFlight(3, 512 << 10), (Numbers{1, 1, 1, 0}));  // each more than the limit
  EXPECT_EQ(NumbersInFlight(3, 192 << 10), (Numbers{1, 1, 1, 0}));
  EXPECT_EQ(NumbersInFlight(20, 4 << 10).front(), std::size_t{HeldBackend::kDepth});
}

TEST(DiskBackend, AutoTakesWhatThereIs) {
  const auto backend = MakeBackend(DiskBackendKind::kAuto, {}, "");
  EXPECT_EQ(backend->name(), HasUring() ? "io_uring" : "threads");
  EXPECT_EQ(backend->note().empty(), HasUring());
}

TEST(DiskBackend, UringThatIsRefusedSaysSo) {
  // 2^30 entries are more than any kernel gives: the same path as EPERM in a container.
  DiskBackendOptions options;
  options.depth = 1 << 30;
  options.kind = DiskBackendKind::kUring;
  ExpectError(ErrorCode::kIo, "io_uring is not available: ", [&] { MakeDiskBackend(options); });
}

}  // namespace
}  // namespace spillway::testing
