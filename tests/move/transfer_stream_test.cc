#include "src/move/transfer_stream.h"

#include <gtest/gtest.h>

#include <csignal>
#include <memory>
#include <random>
#include <set>
#include <string>

#include "tests/io/disk_test_util.h"

namespace spillway::testing {
namespace {

constexpr int64_t kBlockBytes = 16 << 10;
const ScratchLayout kLayout = {
    .slots_per_layer = 1, .blocks_per_slot = {4}, .block_bytes = kBlockBytes};

// Two blocks that were written, read back by a stream whose disk has the given faults.
class RereadTest : public ::testing::Test {
 protected:
  static constexpr ScratchRun kRun = {0, 0, 1, 2};

  RereadTest() : folder_(temp_.path()), scratch_(folder_, kLayout, 42) {
    FillRandom(written_.all(), 1);
    DiskQueue queue(MakeBackend(DiskBackendKind::kAuto, {}, ""));
    MoveBytes(queue, scratch_.BeginWrite(kRun, written_.all()));
    scratch_.EndWrite(kRun);
  }

  // Throws what the stream throws.
  int64_t NumRereads(const std::string& faults) {
    DiskQueue queue(MakeBackend(DiskBackendKind::kAuto, {}, faults));
    TransferStream::Options options;
    options.queue = &queue;
    TransferStream stream(options, std::make_unique<HostCopyQueue>());
    Move move;
    move.kind = MoveKind::kReadScratch;
    move.device = read_.all().data();
    move.bytes = 2 * kBlockBytes;
    move.scratch = &scratch_;
    move.run = kRun;
    stream.Wait(stream.Add({&move, 1}, {TraceSubject::kKv}));
    stream.Stop();
    return stream.mending().num_rereads;
  }

  TemporaryFolder temp_{kDiskRoot};
  DiskFolder folder_;
  Scratch scratch_;
  BlockMemory written_{2 * kBlockBytes};
  BlockMemory read_{2 * kBlockBytes};
};

TEST_F(RereadTest, WhatIsRightIsReadOnce) {
  EXPECT_EQ(NumRereads(""), 0);
  EXPECT_TRUE(SameBytes(read_.all(), written_.all()));
}

TEST_F(RereadTest, ABlockThatIsWrongOnceIsReadAgain) {
  for (const char* fault : {"read:flip=200000@0", "read:zero@0", "read:misdirected=4096@0"}) {
    EXPECT_EQ(NumRereads(fault), 1) << fault;
    EXPECT_TRUE(SameBytes(read_.all(), written_.all())) << fault;
  }
}

TEST_F(RereadTest, ABlockThatIsWrongTwiceIsCorrupt) {
  ExpectError(ErrorCode::kCorrupt, "block 1 of layer 0",
              [&] { NumRereads("read:flip=9@0,read:flip=300@1"); });
  EXPECT_EQ(NumRereads(""), 0);
}

// Notes whether the thread that copies would take a signal that asks the run to stop.
class SignalCopyQueue final : public CopyQueue {
 public:
  explicit SignalCopyQueue(bool& takes_signals) : takes_signals_(takes_signals) {}

  uint64_t Mark() const override { return 0; }
  bool Reached(uint64_t) const override { return true; }
  void WaitFor(uint64_t) const override {}
  void Begin(DeviceCopy&) override {
    sigset_t blocked;
    ::pthread_sigmask(SIG_SETMASK, nullptr, &blocked);
    takes_signals_ = ::sigismember(&blocked, SIGINT) == 0;
  }
  CopyTimes Finish(const DeviceCopy&) override { return {}; }

 private:
  bool& takes_signals_;
};

TEST(TransferStreamTest, ItsThreadTakesNoSignals) {
  bool takes_signals = true;
  LinkMeter meter;
  TransferStream::Options options;
  options.meter = &meter;
  TransferStream stream(options, std::make_unique<SignalCopyQueue>(takes_signals));
  Move move;
  move.bytes = 1;
  stream.Wait(stream.Add({&move, 1}, {TraceSubject::kKv}));
  stream.Stop();
  EXPECT_FALSE(takes_signals);
}

// Copies nothing; each copy takes the times that it is told.
class TimedCopyQueue final : public CopyQueue {
 public:
  explicit TimedCopyQueue(CopyTimes times) : times_(times) {}

  uint64_t Mark() const override { return 0; }
  bool Reached(uint64_t) const override { return true; }
  void WaitFor(uint64_t) const override {}
  void Begin(DeviceCopy&) override {}
  CopyTimes Finish(const DeviceCopy&) override { return times_; }

 private:
  CopyTimes times_;
};

TEST(LinkMeterTest, StreamsThatCopyAtATimeAreCountedOnce) {
  LinkMeter meter;
  for (const CopyTimes times : {CopyTimes{0.0, 10.0}, CopyTimes{5.0, 15.0}}) {
    TransferStream::Options options;
    options.meter = &meter;
    TransferStream stream(options, std::make_unique<TimedCopyQueue>(times));
    Move move;
    move.bytes = 100;
    stream.Wait(stream.Add({&move, 1}, {TraceSubject::kKv}));
  }
  EXPECT_EQ(meter.totals().bytes, 200);
  EXPECT_EQ(meter.totals().busy_s, 15.0);
}

// Whole seconds, each counted in a set.
TEST(LinkMeterTest, CountsTheSecondsInWhichSomethingMoves) {
  std::mt19937 random(3);
  for (int round = 0; round < 50; ++round) {
    LinkMeter meter;
    std::set<int> busy;
    for (int transfer = 0; transfer < 60; ++transfer) {
      const int begin = static_cast<int>(random() % 200);
      const int end = begin + static_cast<int>(random() % 9);
      for (int second = begin; second < end; ++second) busy.insert(second);
      meter.Add({static_cast<double>(begin), static_cast<double>(end)}, 1);
      ASSERT_EQ(meter.totals().busy_s, static_cast<double>(busy.size()))
          << "round " << round << " transfer " << transfer;
    }
  }
}

TEST(LinkMeterTest, GoesOnForAsManyTransfersAsThereAre) {
  LinkMeter meter;
  for (int at = 0; at < 10'000; ++at) {
    // Two streams, of which one tells its long transfer after the short ones within it.
    const double begin_s = 16.0 * at;
    for (int part = 0; part < 10; ++part) meter.Add({begin_s + part, begin_s + part + 0.5}, 1);
    meter.Add({begin_s, begin_s + 12.0}, 1);
  }
  EXPECT_EQ(meter.totals().busy_s, 120'000.0);
  EXPECT_EQ(meter.totals().bytes, 110'000);
}

}  // namespace
}  // namespace spillway::testing
