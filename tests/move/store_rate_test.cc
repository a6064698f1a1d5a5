#include "src/move/store_rate.h"

#include <gtest/gtest.h>

#include "tests/store/store_test_util.h"

namespace spillway::testing {
namespace {

class StoreRate : public ::testing::Test {
 protected:
  StoreRate() { MakeStore(SmallJob(), temp_.path() / "small"); }

  double Measure(const BlockMemory& memory, const std::string& faults) {
    const Store store = OpenStore(temp_.path() / "small");
    DiskQueue queue(MakeBackend(DiskBackendKind::kAuto, {}, faults));
    const double rate = MeasureStoreReads(store, queue, memory.all());
    bytes_read_ = queue.totals(DiskOp::kRead).bytes;
    return rate;
  }

  TemporaryFolder temp_{kDiskRoot};
  int64_t bytes_read_ = 0;
};

TEST_F(StoreRate, IsThatOfTheBytesThatCame) {
  const BlockMemory memory(int64_t{8} << 20);
  const double rate = Measure(memory, "");
  EXPECT_GT(rate, 0.0);
  EXPECT_LE(rate, static_cast<double>(bytes_read_) / 0.25);
}

// Four requests of 2 MiB in each 50 ms, of which the first and the last wait for nothing.
TEST_F(StoreRate, CountsWhatIsUnderWayAtTheEnd) {
  const BlockMemory memory(int64_t{16} << 20);
  const double rate = Measure(memory, "read:delay=50000@0/1");
  EXPECT_LE(rate, 1.05 * static_cast<double>(int64_t{8} << 20) / 0.05);
  EXPECT_EQ(bytes_read_ % (int64_t{2} << 20), 0);
  EXPECT_GE(rate, 0.1 * static_cast<double>(bytes_read_) / 0.25);
}

TEST_F(StoreRate, ReadsInShorterPiecesIntoLittleMemory) {
  const BlockMemory memory(int64_t{1} << 20);
  EXPECT_GT(Measure(memory, ""), 0.0);
}

TEST_F(StoreRate, IsNotKnownWhereNothingCouldBeUnderWay) {
  const BlockMemory memory(int64_t{64} << 10);
  EXPECT_EQ(Measure(memory, ""), 0.0);
  EXPECT_EQ(bytes_read_, 0);
}

// The run meets the same disk, and says what it does.
TEST_F(StoreRate, IsNotKnownOfADiskThatFails) {
  const BlockMemory memory(int64_t{8} << 20);
  EXPECT_EQ(Measure(memory, "read:error=5@0/1"), 0.0);
}

}  // namespace
}  // namespace spillway::testing
