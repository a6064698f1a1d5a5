// The instruction sets the CPU kernels exist for, and the choice between them at run time.
#pragma once

#include <string_view>
#include <vector>

namespace spillway::kernels {

// In rising order of preference. kPortable is plain C++ (and what other processors use).
enum class Isa { kPortable, kAvx2, kAvx512, kAmx };

std::string_view IsaName(Isa isa);

// Those this processor, kernel and build can run, in rising order; kAmx has asked the kernel for
// tile permission.
std::vector<Isa> SupportedIsas();

// The best supported one; SPILLWAY_ISA=portable|avx2|avx512|amx caps it (for tests and
// comparisons). Throws: Error kFlag when SPILLWAY_ISA names none, or one this machine lacks.
Isa BestIsa();

}  // namespace spillway::kernels
