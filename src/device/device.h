// Device: what a run computes on: its memory, its copies, its executor. Forms: the host, also as
// its own emulated GPU; a GPU.
// Thread rule: one thread; CopyIn by any.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "spillway/plan.h"
#include "src/base/thread_pool.h"
#include "src/device/copy_queue.h"
#include "src/device/executor.h"
#include "src/device/gpu_probe.h"
#include "src/memory/arena.h"

namespace spillway {

// Memory of a GPU, as the plan must know it.
struct DeviceMemory {
  int64_t total_bytes = 0;
  int64_t free_bytes = 0;
  // Counts against --gpu-memory, so that a capped run fits a card of that size: what is in use when
  // a run starts, by its context and by other processes, and what its kernels will take.
  int64_t used_bytes = 0;
};

// The memory of a run, as the plan sized it.
struct Arenas {
  const Arena& gpu;
  const Arena& cpu;
};

class Device {
 public:
  virtual ~Device() = default;

  virtual KernelNeeds needs() const = 0;

  // All 0 where there is no GPU.
  virtual DeviceMemory memory() const = 0;

  // GPU memory that this process has taken since the device was opened. Throws: Error kGpu.
  virtual int64_t TakenBytes() const = 0;

  // Name of the GPU; empty where there is none.
  virtual std::string name() const = 0;

  // Throws: Error kGpuMemory, kCpuMemory, kSystemLimit, kGpu. Requires: not kDisk.
  virtual std::unique_ptr<Arena> MakeArena(Tier tier, int64_t bytes) = 0;

  // Lifetime: the device outlives the queue. Throws: Error kGpu.
  virtual std::unique_ptr<CopyQueue> MakeCopyQueue() = 0;

  // Lifetime: plan, arenas, pool and device outlive the executor. Throws: Error kGpu,
  // kModelUnsupported.
  virtual std::unique_ptr<Executor> MakeExecutor(const Plan& plan, const Arenas& arenas,
                                                 ThreadPool& pool) = 0;

  // Makes the probe for `profile`; null where there is no GPU. Takes GPU memory. Throws: Error
  // kGpu, kGpuMemory, kCpuMemory.
  virtual std::unique_ptr<GpuProbe> MakeProbe() const = 0;

  // False: the host cannot write to the memory of the gpu tier.
  virtual bool IsHostMemory() const = 0;

  // Copies to the memory of the gpu tier, before a run, and waits. Throws: Error kGpu.
  virtual void CopyIn(std::byte* to, std::span<const std::byte> from) = 0;
};

}  // namespace spillway
