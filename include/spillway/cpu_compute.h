// CpuCompute: the precision of products on the CPU. Plain values; any thread.
#pragma once

namespace spillway {

// What inputs of products are rounded to: nothing; both sides to bf16 where weights have 16 bits;
// activations that meet codes (on AMX: of integers) to 8 bits, and on AMX what kBf16 rounds.
enum class CpuCompute { kFp32, kBf16, kInt8 };

// As --cpu-compute names it.
constexpr const char* CpuComputeName(CpuCompute compute) {
  if (compute == CpuCompute::kInt8) return "int8";
  return compute == CpuCompute::kBf16 ? "bf16" : "fp32";
}

}  // namespace spillway
