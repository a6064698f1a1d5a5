// A kernel's blocks on the CPU, one after the other; the threads of a block are fibers, which give
// way where a thread of a GPU waits for others. Thread rule: one launch at a time in the process.
#pragma once

#include <array>
#include <cstdint>
#include <functional>

namespace spillway::soft_gpu {

struct Index3 {
  unsigned x = 0;
  unsigned y = 0;
  unsigned z = 0;
};

// Runs `kernel` once per thread of a grid. Throws: std::logic_error where threads wait for one
// another for ever, or a warp's threads have diverged at an exchange.
void RunGrid(const Index3& grid, unsigned threads, const std::function<void()>& kernel);

// Index of the thread that runs.
const Index3& ThreadIndex();
const Index3& BlockIndex();
const Index3& GridSize();

void WaitForBlock();

// Data that one lane shows the others at an exchange.
using LaneData = std::array<uint32_t, 12>;

// Waits until all lanes of the warp have called it. Returns the data of the warp's 32 lanes, valid
// until the next exchange.
const LaneData* Exchange(const LaneData& own);
unsigned Lane();

// Copies when it is waited for, not before.
void CopyLater(void* to, const void* from, int bytes);
void CommitCopies();
void WaitForCopies(int pending);

}  // namespace spillway::soft_gpu
