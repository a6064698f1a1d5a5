#include "src/execute/transfer_stream.h"

#include <gtest/gtest.h>

#include <memory>
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
  StreamTotals Read(const std::string& faults) {
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
    return stream.totals();
  }

  DiskTempFolder temp_;
  DiskFolder folder_;
  Scratch scratch_;
  BlockMemory written_{2 * kBlockBytes};
  BlockMemory read_{2 * kBlockBytes};
};

TEST_F(RereadTest, WhatIsRightIsReadOnce) {
  EXPECT_EQ(Read("").rereads, 0);
  EXPECT_TRUE(SameBytes(read_.all(), written_.all()));
}

TEST_F(RereadTest, ABlockThatIsWrongOnceIsReadAgain) {
  for (const char* fault : {"read:flip=200000@0", "read:zero@0", "read:misdirected=4096@0"}) {
    EXPECT_EQ(Read(fault).rereads, 1) << fault;
    EXPECT_TRUE(SameBytes(read_.all(), written_.all())) << fault;
  }
}

TEST_F(RereadTest, ABlockThatIsWrongTwiceIsCorrupt) {
  ExpectDiskError(ErrorCode::kCorrupt, "block 1 of layer 0",
                  [&] { Read("read:flip=9@0,read:flip=300@1"); });
  EXPECT_EQ(Read("").rereads, 0);
}

}  // namespace
}  // namespace spillway::testing
