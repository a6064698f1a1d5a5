// CpuCompute: the precision of products on the CPU. Plain values; any thread.
#pragma once

namespace spillway {

// The inputs of products with 16-bit weights: fp32 activations, or both sides rounded to bf16.
enum class CpuCompute { kFp32, kBf16 };

}  // namespace spillway
