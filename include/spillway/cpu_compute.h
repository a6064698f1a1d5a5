// CpuCompute: the precision of products on the CPU. Plain values; any thread.
#pragma once

namespace spillway {

// What products of 16-bit weights are computed from: fp32 activations, or all rounded to bf16.
enum class CpuCompute { kFp32, kBf16 };

}  // namespace spillway
