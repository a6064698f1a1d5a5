// HostDevice: the CPU computes, and its memory stands for a GPU's where one is emulated.
#pragma once

#include "src/base/isa.h"
#include "src/device/device.h"

namespace spillway {

class HostDevice final : public Device {
 public:
  explicit HostDevice(kernels::Isa isa = kernels::BestIsa()) : isa_(isa) {}

  KernelNeeds needs() const override;
  DeviceMemory memory() const override { return {}; }
  int64_t TakenBytes() const override { return 0; }
  std::string name() const override { return {}; }
  std::unique_ptr<Arena> MakeArena(Tier tier, int64_t bytes) override;
  std::unique_ptr<CopyQueue> MakeCopyQueue() override;
  std::unique_ptr<Executor> MakeExecutor(const Plan& plan, const Arenas& arenas,
                                         ThreadPool& pool) override;
  std::unique_ptr<GpuProbe> MakeProbe() const override { return nullptr; }
  bool IsHostMemory() const override { return true; }
  void CopyIn(std::byte* to, std::span<const std::byte> from) override;

 private:
  kernels::Isa isa_;
};

}  // namespace spillway
