#include "src/execute/gpu_needs.h"

#include "kernels/matmul_workspace.h"
#include "src/execute/exchange.h"

namespace spillway {

KernelNeeds GpuNeeds() {
  KernelNeeds needs;
  needs.matmul_bytes = [](int64_t rows, int64_t in, int) {
    return kernels::GpuMatmulWorkspaceBytes(rows, in);
  };
  needs.attention_bytes = [](int64_t, int64_t, int) { return int64_t{0}; };
  needs.eviction_bytes = needs.attention_bytes;
  needs.exchange = ExchangeBytesOf;
  return needs;
}

}  // namespace spillway
