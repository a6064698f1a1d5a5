#include "src/compute/host_device.h"

#include <algorithm>
#include <cstring>

#include "kernels/attention/attention.h"
#include "kernels/attention/budget_attention.h"
#include "kernels/attention/kv_compact.h"
#include "kernels/matmul/matmul.h"
#include "src/compute/cpu_executor.h"

namespace spillway {

KernelNeeds HostDevice::needs() const {
  KernelNeeds needs;
  needs.matmul_bytes = [isa = isa_](int64_t rows, int64_t in, int num_threads) {
    return kernels::MatmulWorkspaceBytes(rows, in, num_threads, isa);
  };
  needs.attention_bytes = [isa = isa_](int64_t slots, int64_t head_dim, int num_threads) {
    return kernels::AttentionWorkspaceBytes(slots, head_dim, num_threads, isa);
  };
  needs.eviction_bytes = [isa = isa_](int64_t slots, int64_t head_dim, int num_threads) {
    return std::max({kernels::AttentionWorkspaceBytesWithScores(slots, head_dim, num_threads, isa),
                     kernels::BudgetAttentionWorkspaceBytes(slots, head_dim, num_threads, isa),
                     kernels::KvCompactWorkspaceBytes(slots, num_threads)});
  };
  return needs;
}

std::unique_ptr<Arena> HostDevice::MakeArena(Tier, int64_t bytes) {
  return std::make_unique<HostArena>(bytes);
}

std::unique_ptr<CopyQueue> HostDevice::MakeCopyQueue() { return std::make_unique<HostCopyQueue>(); }

std::unique_ptr<Executor> HostDevice::MakeExecutor(const Plan& plan, const Arenas& arenas,
                                                   ThreadPool& pool) {
  const Arena& memory = plan.device() == Tier::kGpu ? arenas.gpu : arenas.cpu;
  return std::make_unique<CpuExecutor>(plan, memory, pool, isa_);
}

void HostDevice::CopyIn(std::byte* to, std::span<const std::byte> from) {
  std::memcpy(to, from.data(), from.size());
}

}  // namespace spillway
