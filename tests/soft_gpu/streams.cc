#include "tests/soft_gpu/streams.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <deque>
#include <mutex>
#include <random>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace {

struct Work {
  std::function<void()> run;      // empty: a wait for `awaited`
  CUevent_st* awaited = nullptr;  // as it was recorded last when this was enqueued: in this stream
  CUstream_st* recorded_in = nullptr;
  uint64_t record = 0;
};

double NowMs() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration<double, std::milli>(now).count();
}

// SPILLWAY_SOFT_GPU_SEED repeats an order, where one host thread enqueues.
unsigned Seed() {
  const char* given = std::getenv("SPILLWAY_SOFT_GPU_SEED");
  return given == nullptr ? std::random_device()()
                          : static_cast<unsigned>(std::strtoul(given, nullptr, 10));
}

}  // namespace

struct CUstream_st {
  std::deque<Work> work;
};
struct CUevent_st {
  CUstream_st* stream = nullptr;
  uint64_t recorded = 0;
  uint64_t reached = 0;  // of the records
  double time_ms = 0.0;  // of the last one reached
};

namespace {

// Far more than streams there are: then they wait in a circle.
constexpr int kDeepest = 100;

// Computes that the host may be ahead of the GPU take about as many.
constexpr uint64_t kCallsOfOnePace = 200;

std::mutex mutex;  // of what follows
std::vector<CUstream_st*> streams;
std::mt19937 order(Seed());

bool IsReady(const CUstream_st& stream) {
  if (stream.work.empty()) return false;
  const Work& next = stream.work.front();
  return next.awaited == nullptr || next.awaited->reached >= next.record;
}

void RunNext(CUstream_st& stream) {
  const Work next = std::move(stream.work.front());
  stream.work.pop_front();
  if (next.run) next.run();
}

// Runs what other streams must do first, too.
void Advance(CUstream_st& stream, int depth) {
  if (depth > kDeepest) throw std::logic_error("streams of the GPU wait for one another");
  while (!IsReady(stream)) {
    Advance(*stream.work.front().recorded_in, depth + 1);
  }
  RunNext(stream);
}

// Runs nothing, a little, or all that is ready: each for kCallsOfOnePace calls, in turns drawn at
// random.
void RunSome() {
  static uint64_t num_calls = 0;
  static uint64_t pace = 0;
  if (++num_calls % kCallsOfOnePace == 0) pace = order() % 3;
  uint64_t most = pace == 0 ? 0 : pace == 1 ? order() % 3 : ~uint64_t{0};
  for (; most > 0; --most) {
    std::vector<CUstream_st*> ready;
    std::ranges::copy_if(streams, std::back_inserter(ready),
                         [](const CUstream_st* stream) { return IsReady(*stream); });
    if (ready.empty()) return;
    RunNext(*ready[order() % ready.size()]);
  }
}

void Finish(CUstream_st& stream) {
  while (!stream.work.empty()) Advance(stream, 0);
}

void FinishStreams() {
  for (CUstream_st* stream : streams) Finish(*stream);
}

}  // namespace

namespace spillway::soft_gpu {

void Enqueue(CUstream_st* stream, std::function<void()> work) {
  const std::lock_guard lock(mutex);
  stream->work.push_back({std::move(work)});
  RunSome();
}

void FinishAll() {
  const std::lock_guard lock(mutex);
  FinishStreams();
}

}  // namespace spillway::soft_gpu

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  const std::lock_guard lock(mutex);
  *stream = streams.emplace_back(new CUstream_st);
  return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  const std::lock_guard lock(mutex);
  FinishStreams();
  std::erase(streams, stream);
  delete stream;
  return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  const std::lock_guard lock(mutex);
  Finish(*stream);
  return cudaSuccess;
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  const std::lock_guard lock(mutex);
  stream->work.push_back({nullptr, event, event->stream, event->recorded});
  RunSome();
  return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  *event = new CUevent_st;
  return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  const std::lock_guard lock(mutex);
  FinishStreams();  // some of it may wait for the event
  delete event;
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  const std::lock_guard lock(mutex);
  event->stream = stream;
  const auto reach = [event, record = ++event->recorded] {
    event->reached = std::max(event->reached, record);
    event->time_ms = NowMs();
  };
  stream->work.push_back({reach});
  RunSome();
  return cudaSuccess;
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  const std::lock_guard lock(mutex);
  CUstream_st* stream = event->stream;
  const uint64_t record = event->recorded;
  while (event->reached < record) Advance(*stream, 0);
  return cudaSuccess;
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
  const std::lock_guard lock(mutex);
  RunSome();
  return event->reached >= event->recorded ? cudaSuccess : cudaErrorNotReady;
}
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t from, cudaEvent_t to) {
  const std::lock_guard lock(mutex);
  *milliseconds = static_cast<float>(to->time_ms - from->time_ms);
  return cudaSuccess;
}
