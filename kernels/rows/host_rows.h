// HostRows: a batch's rows that cross between the GPU and pinned host memory one by one: what the
// CPU attends to, and what it attended. Kernels write and read them over the link: a copy would
// queue behind the megabytes of weights and KV that the copy engines have been given already.
#pragma once

#include <cstdint>
#include <span>

namespace spillway {
class Stream;
}

namespace spillway::kernels {

struct HostRowsArgs {
  float* on_gpu = nullptr;          // fp32 [tokens, cols], stride `stride`; 16-byte aligned rows
  int64_t stride = 0;               // a multiple of 4, as is cols
  std::span<const int32_t> tokens;  // GPU memory: the rows that cross, among those on the GPU
  int64_t cols = 0;
  float* on_host = nullptr;  // [tokens.size(), cols], as the GPU addresses it; 16-byte aligned
};

// To the host, and from it. Stream: one kernel.
void SendRowsAsync(const HostRowsArgs& args, Stream& stream);
void FetchRowsAsync(const HostRowsArgs& args, Stream& stream);

}  // namespace spillway::kernels
