#include "src/gpu/device_arena.h"

#include <fmt/format.h>

#include "spillway/error.h"
#include "src/base/size_text.h"
#include "src/cuda/check.h"

namespace spillway {

DeviceArena::DeviceArena(int64_t bytes) {
  if (bytes == 0) return;
  void* base = nullptr;
  const cudaError_t result = cudaMalloc(&base, static_cast<std::size_t>(bytes));
  if (result == cudaErrorMemoryAllocation) {
    static_cast<void>(cudaGetLastError());  // not sticky: asking how much is free still works
    std::size_t free_bytes = 0;
    std::size_t total_bytes = 0;
    CudaCheck(cudaMemGetInfo(&free_bytes, &total_bytes), "asking for the GPU's memory");
    throw Error(ErrorCode::kGpuMemory,
                fmt::format("cannot reserve {} of GPU memory in one piece: {} of {} are free; give "
                            "a smaller --gpu-memory or close other programs on the GPU",
                            SizeText(bytes), SizeText(static_cast<int64_t>(free_bytes)),
                            SizeText(static_cast<int64_t>(total_bytes))));
  }
  CudaCheck(result, "reserving GPU memory");
  Set(static_cast<std::byte*>(base), bytes);
}

DeviceArena::~DeviceArena() {
  if (bytes() > 0) cudaFree(base());
}

PinnedArena::PinnedArena(int64_t bytes) : memory_(bytes) {
  if (bytes == 0) return;
  std::byte* base = memory_.As<std::byte>({0, bytes});
  const cudaError_t result = cudaHostRegister(base, static_cast<std::size_t>(bytes),
                                              cudaHostRegisterPortable | cudaHostRegisterMapped);
  if (result == cudaErrorMemoryAllocation) {
    throw Error(ErrorCode::kCpuMemory,
                fmt::format("the system refuses to pin {} of memory for the GPU's copies; give a "
                            "smaller --cpu-memory, or raise ulimit -l",
                            SizeText(bytes)));
  }
  CudaCheck(result, "pinning CPU memory");
  Set(base, bytes);
}

PinnedArena::~PinnedArena() {
  if (bytes() > 0) cudaHostUnregister(base());
}

}  // namespace spillway
