// Streams of the GPU in software. What is enqueued is done later, in any order that its streams and
// the waits between them allow, another one in every run of the program: a wait that is missing
// shows in the results, as on a GPU, only sooner. Thread rule: any thread; it locks, and what is
// enqueued runs one at a time, on whichever thread calls.
#pragma once

#include <functional>

struct CUstream_st;

namespace spillway::soft_gpu {

void Enqueue(CUstream_st* stream, std::function<void()> work);

// All that was enqueued, in all streams.
void FinishAll();

}  // namespace spillway::soft_gpu
