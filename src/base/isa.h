// The instruction sets the CPU kernels exist for, and the choice between them at run time.
#pragma once

#include <string_view>
#include <vector>

#include "spillway/cpu_compute.h"

namespace spillway::kernels {

// Instruction sets in rising order of preference. kPortable is plain C++ (and what other processors
// use). kAvx512Vnni differs from kAvx512 in quantised weights and keys of codes. Only by request:
// kAvx512Bf16 and kAmxBf16 are kAvx512Vnni and kAmx with 16-bit weights and what meets them rounded
// to bf16: two products an operation where fp32 has one, and a third of AMX's products for fp16
// weights. kVnniInt8 and kAmxInt8 are kAvx512Vnni and kAmxBf16 with what meets codes rounded to 8
// bits in place of 16: half of the products.
enum class Isa {
  kPortable,
  kAvx2,
  kAvx512,
  kAvx512Vnni,
  kVnniInt8,
  kAvx512Bf16,
  kAmx,
  kAmxBf16,
  kAmxInt8
};

constexpr bool HasTiles(Isa isa) { return isa >= Isa::kAmx; }
constexpr bool RoundsToBytes(Isa isa) { return isa == Isa::kVnniInt8 || isa == Isa::kAmxInt8; }
constexpr bool RoundsToBf16(Isa isa) { return isa == Isa::kAvx512Bf16 || isa >= Isa::kAmxBf16; }
// Multiplies codes of quantised weights as they are (matmul_groups.h), with tiles those that have
// one step for a group; others dequantise them.
constexpr bool MultipliesCodes(Isa isa) { return isa >= Isa::kAvx512Vnni; }

std::string_view IsaName(Isa isa);

// Sets of fp32 precision that this processor, kernel and build can run, in rising order; kAmx has
// asked the kernel for tile permission.
std::vector<Isa> SupportedIsas();

// The best supported one; SPILLWAY_ISA=portable|avx2|avx512|avx512_vnni|amx caps it (for tests and
// comparisons). Throws: Error kFlag when SPILLWAY_ISA names none, or one this machine lacks.
Isa BestIsa();

// BestIsa, or its form for kBf16 or kInt8, which caps of avx512_vnni and amx let pass. Throws:
// Error kFlag, also when the form is not for this machine or under this cap.
Isa BestIsa(CpuCompute compute);

// The forms for it that this processor, kernel and build can run, in rising order.
std::vector<Isa> SupportedIsas(CpuCompute compute);

// Inputs of products with the instruction set of this name; kFp32 for names that are none.
CpuCompute ComputeOf(std::string_view isa_name);

}  // namespace spillway::kernels
