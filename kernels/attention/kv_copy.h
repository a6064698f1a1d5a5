// KvCopy: tokens at the beginning of a row's cache that another row has too are copied from its
// cache, all KV heads of one layer. Thread rule: one call at a time per pool.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "src/base/thread_pool.h"

namespace spillway {
class Stream;
}

namespace spillway::kernels {

// Whole KV blocks, one behind the other in both caches. Runs of one call do not overlap.
struct KvRun {
  const std::byte* from = nullptr;  // 16-byte aligned, as is `to`
  std::byte* to = nullptr;
  int64_t bytes = 0;  // a multiple of 16
};

void CopyKv(std::span<const KvRun> runs, ThreadPool& pool);

// GPU form: the list and what it points to are in GPU memory. Stream: one
// kernel, or more where there are very many runs.
void CopyKvAsync(std::span<const KvRun> runs, Stream& stream);

}  // namespace spillway::kernels
