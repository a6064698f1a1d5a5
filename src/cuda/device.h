// The GPU of a run: whether there is one, and its memory. Needs no toolkit to include. Thread rule:
// OpenGpu by the main thread before any other CUDA call.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace spillway {

struct GpuInfo {
  int index = 0;
  std::string name;
  int major = 0;  // compute capability
  int minor = 0;
  int num_processors = 0;
  int64_t total_bytes = 0;
  int64_t free_bytes = 0;
  // Taken on the card once this process is set up on it: by its context and by other processes.
  int64_t used_bytes = 0;
};

// The number of GPUs that this process can use; 0 also without a driver.
int CountGpus();

// Makes the GPU current for the calling thread and sets up its context.
// Throws: Error kGpu: no such GPU, or one that is too old.
GpuInfo OpenGpu(int index);

// Memory in use on the current GPU now, by whomever. Throws: Error kGpu.
int64_t GpuBytesInUse();

// Makes the GPU current for another thread. Throws: Error kGpu.
void UseGpu(int index);

// Address of pinned host memory for kernels. Throws: Error kGpu.
std::byte* GpuAddressOf(std::byte* pinned);

}  // namespace spillway
