#include "src/gpu/cuda_device.h"

#include "src/cuda/check.h"
#include "src/gpu/cuda_copy_queue.h"
#include "src/gpu/cuda_executor.h"
#include "src/gpu/cuda_probe.h"
#include "src/gpu/device_arena.h"
#include "src/gpu/gpu_needs.h"

namespace spillway {

namespace {

// Kernels are loaded when they are first used. All of cuBLASLt's at the start would be gigabytes;
// room for the few dozen that a run uses is set aside. An estimate: the placement check of
// gpu_step.sh compares it with what a run takes.
constexpr int64_t kLoadedLaterBytes = 64 << 20;

}  // namespace

DeviceMemory CudaDevice::memory() const {
  return {info_.total_bytes, info_.free_bytes, info_.used_bytes + kLoadedLaterBytes};
}

int64_t CudaDevice::TakenBytes() const { return GpuBytesInUse() - info_.used_bytes; }

KernelNeeds CudaDevice::needs() const { return GpuNeeds(); }

std::unique_ptr<Arena> CudaDevice::MakeArena(Tier tier, int64_t bytes) {
  UseGpu(info_.index);
  if (tier == Tier::kGpu) return std::make_unique<DeviceArena>(bytes);
  return std::make_unique<PinnedArena>(bytes);
}

std::unique_ptr<CopyQueue> CudaDevice::MakeCopyQueue() {
  return std::make_unique<CudaCopyQueue>(computes_, info_.index);
}

std::unique_ptr<Executor> CudaDevice::MakeExecutor(const Plan& plan, const Arenas& arenas,
                                                   ThreadPool& pool) {
  return std::make_unique<CudaExecutor>(plan, arenas, computes_, pool);
}

std::unique_ptr<GpuProbe> CudaDevice::MakeProbe() const {
  UseGpu(info_.index);
  return std::make_unique<CudaProbe>(CudaProbe::Sizes{}, info_.index);
}

void CudaDevice::CopyIn(std::byte* to, std::span<const std::byte> from) {
  const std::lock_guard lock(mutex_);
  UseGpu(info_.index);
  CudaCheck(cudaMemcpyAsync(to, from.data(), from.size(), cudaMemcpyHostToDevice, load_.get()),
            "a copy of weights");
  load_.Record(loaded_);
  loaded_.Wait();
}

}  // namespace spillway
