#include "src/cuda/stream.h"

#include "src/cuda/check.h"

namespace spillway {

static_assert(sizeof(Stream) == sizeof(cudaStream_t) && sizeof(Event) == sizeof(cudaEvent_t));

Event::Event(Kind kind) {
  const unsigned timing = kind == Kind::kTimed ? cudaEventDefault : cudaEventDisableTiming;
  cudaEvent_t event = nullptr;
  CudaCheck(cudaEventCreateWithFlags(&event, timing | cudaEventBlockingSync), "making an event");
  handle_.reset(event);
}

void Event::Free::operator()(CUevent_st* event) const noexcept { cudaEventDestroy(event); }

void Event::Wait() const { CudaCheck(cudaEventSynchronize(get()), "waiting for the GPU"); }

bool Event::Reached() const {
  const cudaError_t status = cudaEventQuery(get());
  if (status == cudaErrorNotReady) return false;
  CudaCheck(status, "asking the GPU");
  return true;
}

double Event::SecondsSince(const Event& earlier) const {
  float milliseconds = 0.0F;
  CudaCheck(cudaEventElapsedTime(&milliseconds, earlier.get(), get()), "timing a copy");
  return static_cast<double>(milliseconds) * 1e-3;
}

Stream::Stream() {
  cudaStream_t stream = nullptr;
  CudaCheck(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "making a stream");
  handle_.reset(stream);
}

void Stream::Free::operator()(CUstream_st* stream) const noexcept { cudaStreamDestroy(stream); }

void Stream::Record(const Event& event) {
  CudaCheck(cudaEventRecord(event.get(), get()), "recording an event");
}

void Stream::WaitFor(const Event& event) {
  CudaCheck(cudaStreamWaitEvent(get(), event.get(), cudaEventWaitDefault), "ordering two streams");
}

void Stream::Call(void (*function)(void*), void* argument) {
  CudaCheck(cudaLaunchHostFunc(get(), function, argument), "calling the host from a stream");
}

}  // namespace spillway
