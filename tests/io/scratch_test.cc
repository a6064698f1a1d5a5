#include "src/io/scratch.h"

#include <thread>

#include "src/io/disk_queue.h"
#include "tests/io/disk_test_util.h"

namespace spillway::testing {
namespace {

constexpr int64_t kSlotBlocks = 2;
const ScratchLayout kLayout = {.slots_per_layer = 4,
                               .blocks_per_slot = {kSlotBlocks, kSlotBlocks, kSlotBlocks},
                               .block_bytes = 16 << 10};
const int64_t kSlotBytes = kSlotBlocks * kLayout.block_bytes;

class ScratchTest : public ::testing::Test {
 protected:
  ScratchTest() : folder_(temp_.path()), scratch_(folder_, kLayout, 42) {}

  static ScratchRun Slot(int64_t layer, int64_t slot) { return {layer, slot, 0, kSlotBlocks}; }

  void UseFaults(const std::string& faults) {
    queue_.reset(new DiskQueue(MakeBackend(DiskBackendKind::kAuto, {}, faults)));
  }
  void Write(const ScratchRun& run, uint64_t seed) {
    const BlockMemory memory(run.num_blocks * kLayout.block_bytes);
    FillRandom(memory.all(), seed);
    MoveBytes(*queue_, scratch_.BeginWrite(run, memory.all()));
    scratch_.EndWrite(run);
  }
  // Throws what EndRead throws; checks the bytes.
  void Read(const ScratchRun& run, uint64_t seed) {
    const BlockMemory memory(run.num_blocks * kLayout.block_bytes);
    const BlockMemory expected(run.num_blocks * kLayout.block_bytes);
    FillRandom(expected.all(), seed);
    MoveBytes(*queue_, scratch_.BeginRead(run, memory.all()));
    scratch_.EndRead(run, memory.all());
    EXPECT_TRUE(SameBytes(memory.all(), expected.all()));
  }
  void ExpectCorrupt(const ScratchRun& run, const std::string& text) {
    ExpectError(ErrorCode::kCorrupt, text, [&] { Read(run, 0); });
  }

  TemporaryFolder temp_{kDiskRoot};
  DiskFolder folder_;
  Scratch scratch_;
  std::unique_ptr<DiskQueue> queue_ =
      std::make_unique<DiskQueue>(MakeBackend(DiskBackendKind::kAuto, {}, ""));
};

// Without threads, so that the child of a death test is a plain fork and leaves no folder behind.
class ScratchDeathTest : public ScratchTest {
 protected:
  void SetUp() override { queue_.reset(); }
};

TEST_F(ScratchTest, EverySlotKeepsItsBytes) {
  for (int64_t layer = 0; layer < kLayout.num_layers(); ++layer) {
    for (int64_t slot = 0; slot < kLayout.slots_per_layer; ++slot) {
      Write(Slot(layer, slot), static_cast<uint64_t>(layer * 100 + slot));
    }
  }
  for (int64_t layer = 0; layer < kLayout.num_layers(); ++layer) {
    for (int64_t slot = 0; slot < kLayout.slots_per_layer; ++slot) {
      Read(Slot(layer, slot), static_cast<uint64_t>(layer * 100 + slot));
    }
  }
}

TEST_F(ScratchTest, BlocksOfASlotCanBeRewrittenAlone) {
  Write(Slot(1, 2), 1);
  Write({1, 2, 1, 1}, 2);
  Read({1, 2, 1, 1}, 2);
  const BlockMemory memory(kSlotBytes);
  MoveBytes(*queue_, scratch_.BeginRead(Slot(1, 2), memory.all()));
  scratch_.EndRead(Slot(1, 2), memory.all());
}

TEST_F(ScratchTest, NamesLayerSlotAndGeneration) {
  Write(Slot(1, 2), 1);
  Write(Slot(1, 2), 1);
  UseFaults("read:flip=1234567@0");
  ExpectCorrupt(Slot(1, 2), "layer 1, slot 2, generation 2");
}

TEST_F(ScratchTest, WhatCameBackWrongMayBeReadAgain) {
  Write(Slot(1, 2), 7);
  UseFaults("read:flip=99@0");
  ExpectCorrupt(Slot(1, 2), "layer 1, slot 2");
  Read(Slot(1, 2), 7);
}

TEST_F(ScratchTest, EveryFlippedBitIsFound) {
  for (int64_t bit = 0; bit < kSlotBytes * 8; bit += 8 * 1021 + 1) {
    UseFaults("");
    Write(Slot(0, 0), 5);
    UseFaults("read:flip=" + std::to_string(bit));
    ExpectCorrupt(Slot(0, 0), "block " + std::to_string(bit / (kLayout.block_bytes * 8)) + " of");
  }
}

TEST_F(ScratchTest, LostWriteOfAFreshBlock) {
  UseFaults("write:lost@0");
  Write(Slot(0, 1), 3);
  ExpectCorrupt(Slot(0, 1), "slot 1");
}

// The stale bytes carried a valid tag once.
TEST_F(ScratchTest, LostWriteOfARewrittenBlock) {
  Write(Slot(0, 1), 3);
  UseFaults("write:lost@0");
  Write(Slot(0, 1), 4);
  ExpectCorrupt(Slot(0, 1), "generation 2");
}

TEST_F(ScratchTest, ClearAllEndsWhatCameToNothing) {
  const BlockMemory memory(kSlotBytes);
  Write(Slot(0, 0), 1);
  scratch_.BeginRead(Slot(0, 0), memory.all());
  scratch_.BeginWrite(Slot(1, 2), memory.all());
  scratch_.ClearAll();
  for (const ScratchRun& run : {Slot(0, 0), Slot(1, 2)}) {
    Write(run, 5);
    Read(run, 5);
  }
}

TEST_F(ScratchTest, LostWriteOfTheSameBytesDoesNoHarm) {
  Write(Slot(0, 1), 3);
  UseFaults("write:lost@0");
  Write(Slot(0, 1), 3);
  Read(Slot(0, 1), 3);  // what is on disk is what was to be there
}

TEST_F(ScratchTest, MisdirectedReadAndWrite) {
  Write(Slot(0, 0), 1);
  Write(Slot(0, 1), 2);
  UseFaults("read:misdirected=" + std::to_string(kSlotBytes));
  ExpectCorrupt(Slot(0, 0), "slot 0");
  UseFaults("");
  Write(Slot(0, 0), 1);
  UseFaults("write:misdirected=" + std::to_string(kSlotBytes));
  Write(Slot(0, 0), 3);  // lands in slot 1
  ExpectCorrupt(Slot(0, 1), "slot 1");
  ExpectCorrupt(Slot(0, 0), "slot 0");
}

TEST_F(ScratchTest, ZeroBlock) {
  Write(Slot(2, 3), 1);
  UseFaults("read:zero@0");
  ExpectCorrupt(Slot(2, 3), "layer 2, slot 3");
}

TEST_F(ScratchTest, BlockOfAnotherRun) {
  Scratch other(folder_, kLayout, 43);
  const BlockMemory memory(kSlotBytes);
  FillRandom(memory.all(), 1);
  MoveBytes(*queue_, other.BeginWrite(Slot(0, 0), memory.all()));
  other.EndWrite(Slot(0, 0));
  Write(Slot(0, 0), 2);
  // The other run's bytes in our file, where they would be in a reused one.
  MoveBytes(*queue_, {DiskOp::kWrite, &scratch_.file(), 0, memory.all()});
  ExpectCorrupt(Slot(0, 0), "slot 0");
}

TEST_F(ScratchTest, TruncatedFile) {
  Write(Slot(2, 3), 1);
  ASSERT_EQ(::ftruncate(scratch_.file().fd(), kSlotBytes), 0);
  const BlockMemory memory(kSlotBytes);
  ExpectError(ErrorCode::kIo, "no progress",
              [&] { MoveBytes(*queue_, scratch_.BeginRead(Slot(2, 3), memory.all())); });
  scratch_.DropRead(Slot(2, 3));
  ASSERT_EQ(::ftruncate(scratch_.file().fd(), kLayout.file_bytes()), 0);
  ExpectCorrupt(Slot(2, 3), "slot 3");
}

TEST_F(ScratchDeathTest, AFailedWriteIsNeverValid) {
  UseFaults("write:error=5@0");
  const BlockMemory memory(kSlotBytes);
  EXPECT_THROW(MoveBytes(*queue_, scratch_.BeginWrite(Slot(0, 0), memory.all())), Error);
  scratch_.DropWrite(Slot(0, 0));
  queue_.reset();
  EXPECT_DEATH(scratch_.BeginRead(Slot(0, 0), memory.all()), "does not hold");
}

TEST_F(ScratchDeathTest, StepsOutOfOrder) {
  const BlockMemory memory(kSlotBytes);
  EXPECT_DEATH(scratch_.BeginRead(Slot(0, 0), memory.all()), "does not hold");  // empty
  scratch_.BeginWrite(Slot(0, 0), memory.all());
  EXPECT_DEATH(scratch_.BeginRead(Slot(0, 0), memory.all()), "does not hold");  // being written
  EXPECT_DEATH(scratch_.BeginWrite(Slot(0, 0), memory.all()), "does not hold");
  EXPECT_DEATH(scratch_.Clear(Slot(0, 0)), "does not hold");
  scratch_.EndWrite(Slot(0, 0));
  scratch_.BeginRead(Slot(0, 0), memory.all());
  EXPECT_DEATH(scratch_.BeginWrite(Slot(0, 0), memory.all()), "does not hold");   // being read
  EXPECT_DEATH(scratch_.BeginRead({0, 0, 1, 2}, memory.all()), "does not hold");  // too long
  scratch_.DropRead(Slot(0, 0));
  scratch_.Clear(Slot(0, 0));
  EXPECT_DEATH(scratch_.BeginRead(Slot(0, 0), memory.all()), "does not hold");  // forgotten
}

TEST_F(ScratchTest, ThreadsUseTheirOwnSlots) {
  std::vector<std::thread> threads;
  UseFaults("shuffle=5");
  for (int64_t slot = 0; slot < kLayout.slots_per_layer; ++slot) {
    threads.emplace_back([&, slot] {
      for (uint64_t round = 0; round < 20; ++round) {
        for (int64_t layer = 0; layer < kLayout.num_layers(); ++layer) {
          Write(Slot(layer, slot), round * 10 + static_cast<uint64_t>(slot));
          Read(Slot(layer, slot), round * 10 + static_cast<uint64_t>(slot));
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST_F(ScratchTest, TableIsSmall) { EXPECT_EQ(Scratch::TableBytes(kLayout), 24 * 16); }

}  // namespace
}  // namespace spillway::testing
