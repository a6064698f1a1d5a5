// HostRows: rows of a batch that cross between the GPU and pinned host memory one by one: inputs
// and outputs of the CPU's attention. Kernels write and read them over the link: a copy would queue
// behind the megabytes of weights and KV that the copy engines have been given already.
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

// SendRows copies to the host, FetchRows from it. Stream: one kernel.
void SendRowsAsync(const HostRowsArgs& args, Stream& stream);
void FetchRowsAsync(const HostRowsArgs& args, Stream& stream);

}  // namespace spillway::kernels
