// CudaDevice: a run on one GPU.
#pragma once

#include <mutex>

#include "src/cuda/compute_queue.h"
#include "src/cuda/device.h"
#include "src/cuda/stream.h"
#include "src/device/device.h"

namespace spillway {

class CudaDevice final : public Device {
 public:
  // Throws: Error kGpu.
  explicit CudaDevice(int index) : info_(OpenGpu(index)) {}

  const GpuInfo& info() const { return info_; }
  KernelNeeds needs() const override;
  DeviceMemory memory() const override;
  int64_t TakenBytes() const override;
  std::string name() const override { return info_.name; }
  std::unique_ptr<Arena> MakeArena(Tier tier, int64_t bytes) override;
  std::unique_ptr<CopyQueue> MakeCopyQueue() override;
  std::unique_ptr<Executor> MakeExecutor(const Plan& plan, const Arenas& arenas,
                                         ThreadPool& pool) override;
  std::unique_ptr<GpuProbe> MakeProbe() const override;
  bool IsHostMemory() const override { return false; }
  void CopyIn(std::byte* to, std::span<const std::byte> from) override;

 private:
  GpuInfo info_;
  ComputeQueue computes_;
  std::mutex mutex_;  // of what follows
  Stream load_;
  Event loaded_;
};

}  // namespace spillway
