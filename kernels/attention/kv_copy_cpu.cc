#include <cstring>

#include "kernels/attention/kv_copy.h"

namespace spillway::kernels {

void CopyKv(std::span<const KvRun> runs, ThreadPool& pool) {
  auto copy = [&](int64_t index, int) {
    const KvRun& run = runs[static_cast<std::size_t>(index)];
    std::memcpy(run.to, run.from, static_cast<std::size_t>(run.bytes));
  };
  pool.Run(std::ssize(runs), copy);
}

}  // namespace spillway::kernels
