// Workspace of products on a GPU, beside their arguments: for the planner, which has no toolkit.
// Pure functions; any thread.
#pragma once

#include <cstdint>

#include "kernels/matmul/matmul_packed.h"
#include "spillway/round.h"

namespace spillway::kernels {

// Bytes for the library. NVIDIA recommends 32 MiB for products on Hopper; without split sums none
// needs that.
inline constexpr int64_t kLtWorkspaceBytes = 4 << 20;

// Alignment of the library's own workspace, without which its products are refused. A plan aligns
// to less; MatmulAsync finds the place.
inline constexpr int64_t kLtAlignBytes = 256;

// Bytes of x in 16 bits, in whole groups, as products of packed weights read it.
constexpr int64_t RoundedXBytes(int64_t rows, int64_t in) {
  return RoundUp(PackedXBytes(rows, in), kLtAlignBytes);
}

// Bytes of GPU workspace (16-byte aligned) that a call with at most these sizes needs.
constexpr int64_t GpuMatmulWorkspaceBytes(int64_t max_rows, int64_t max_in) {
  return kLtWorkspaceBytes + RoundedXBytes(max_rows, max_in) + kLtAlignBytes;
}

}  // namespace spillway::kernels
