#include "src/cuda/device.h"

#include <fmt/format.h>

#include "spillway/error.h"
#include "src/cuda/check.h"

namespace spillway {
namespace {

// Kernels use cp.async and bf16 products, which came with this.
constexpr int kLeastMajor = 8;

[[noreturn]] void RefuseGpu(int index, std::string_view why) {
  throw Error(ErrorCode::kGpu, fmt::format("--device cuda:{}: {}; use --device cpu", index, why));
}

}  // namespace

int CountGpus() {
  int count = 0;
  if (cudaGetDeviceCount(&count) == cudaSuccess) return count;
  static_cast<void>(cudaGetLastError());  // not a fault: there is none
  return 0;
}

void UseGpu(int index) { CudaCheck(cudaSetDevice(index), "choosing the GPU"); }

int64_t GpuBytesInUse() {
  std::size_t free_bytes = 0;
  std::size_t total_bytes = 0;
  CudaCheck(cudaMemGetInfo(&free_bytes, &total_bytes), "asking for the GPU's memory");
  return static_cast<int64_t>(total_bytes - free_bytes);
}

std::byte* GpuAddressOf(std::byte* pinned) {
  void* address = nullptr;
  CudaCheck(cudaHostGetDevicePointer(&address, pinned, 0), "mapping pinned memory");
  return static_cast<std::byte*>(address);
}

GpuInfo OpenGpu(int index) {
  int count = 0;
  const cudaError_t counted = cudaGetDeviceCount(&count);
  if (counted != cudaSuccess) RefuseGpu(index, cudaGetErrorString(counted));
  if (index >= count) RefuseGpu(index, fmt::format("there are {} GPUs", count));
  cudaDeviceProp properties;
  CudaCheck(cudaGetDeviceProperties(&properties, index), "asking for the GPU's properties");
  if (properties.major < kLeastMajor) {
    RefuseGpu(index, fmt::format("{} has compute capability {}.{}, and {}.0 is needed",
                                 properties.name, properties.major, properties.minor, kLeastMajor));
  }
  UseGpu(index);
  // Threads that wait sleep: the cores belong to CPU attention and the disk.
  CudaCheck(cudaSetDeviceFlags(cudaDeviceScheduleBlockingSync), "setting up the GPU");
  CudaCheck(cudaFree(nullptr), "setting up the GPU");
  std::size_t free_bytes = 0;
  std::size_t total_bytes = 0;
  CudaCheck(cudaMemGetInfo(&free_bytes, &total_bytes), "asking for the GPU's memory");
  if (free_bytes == 0) RefuseGpu(index, "no memory of it is free");
  GpuInfo info;
  info.index = index;
  info.name = properties.name;
  info.major = properties.major;
  info.minor = properties.minor;
  info.num_processors = properties.multiProcessorCount;
  info.total_bytes = static_cast<int64_t>(total_bytes);
  info.free_bytes = static_cast<int64_t>(free_bytes);
  info.used_bytes = info.total_bytes - info.free_bytes;
  return info;
}

}  // namespace spillway
