// FetchHost: copies a little from pinned host memory to the GPU by reading it in a kernel. A copy
// would queue behind the megabytes of weights and KV that the copy engine has been given already.
#pragma once

#include <cstddef>
#include <cstdint>

namespace spillway {
class Stream;
}

namespace spillway::kernels {

struct FetchHostArgs {
  const std::byte* from = nullptr;  // as the GPU addresses it; 16-byte aligned, as is `to`
  std::byte* to = nullptr;
  int64_t bytes = 0;  // rounded up to 16, which both ends hold
};

// Stream: one kernel.
void FetchHostAsync(const FetchHostArgs& args, Stream& stream);

}  // namespace spillway::kernels
