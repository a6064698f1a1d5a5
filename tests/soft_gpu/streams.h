// Streams of the GPU in software. Work that is enqueued runs later, in any order that its streams
// and the waits between them allow, and in another order in every run of the program: a missing
// wait shows in the results, sooner than on a GPU. Thread rule: any thread; it locks, and one piece
// of work runs at a time, on whichever thread calls.
#pragma once

#include <functional>

struct CUstream_st;

namespace spillway::soft_gpu {

void Enqueue(CUstream_st* stream, std::function<void()> work);

// Runs all that was enqueued, in all streams.
void FinishAll();

}  // namespace spillway::soft_gpu
