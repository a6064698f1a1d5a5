#include "src/base/isa.h"

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <span>
#include <string>

#include "spillway/error.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace spillway::kernels {
namespace {

constexpr Isa kFp32Isas[] = {Isa::kPortable, Isa::kAvx2, Isa::kAvx512, Isa::kAvx512Vnni, Isa::kAmx};
constexpr Isa kBf16Isas[] = {Isa::kAvx512Bf16, Isa::kAmxBf16};
constexpr Isa kInt8Isas[] = {Isa::kVnniInt8, Isa::kAmxInt8};

std::span<const Isa> IsasOf(CpuCompute compute) {
  if (compute == CpuCompute::kInt8) return kInt8Isas;
  return compute == CpuCompute::kBf16 ? std::span<const Isa>(kBf16Isas) : kFp32Isas;
}

#if defined(__x86_64__)
// The tile registers are off until the process asks (Linux 5.16+); the permission then holds for
// all its threads.
bool AskForTiles() {
  constexpr unsigned kAmxTile = 1U << 24;  // CPUID leaf 7, EDX
  constexpr unsigned kAmxBf16 = 1U << 22;
  constexpr unsigned kAmxInt8 = 1U << 25;
  constexpr long kArchReqXcompPerm = 0x1023;
  constexpr long kXfeatureXtiledata = 18;
  unsigned eax = 0;
  unsigned ebx = 0;
  unsigned ecx = 0;
  unsigned edx = 0;
  if (__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) == 0) return false;
  constexpr unsigned kNeeded = kAmxTile | kAmxBf16 | kAmxInt8;
  if ((edx & kNeeded) != kNeeded) return false;
  return syscall(SYS_arch_prctl, kArchReqXcompPerm, kXfeatureXtiledata) == 0;
}

// Clang's __builtin_cpu_supports does not know it.
bool HasF16c() {
  unsigned eax = 0;
  unsigned ebx = 0;
  unsigned ecx = 0;
  unsigned edx = 0;
  return __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && (ecx & bit_F16C) != 0;
}

bool Supported(Isa isa) {
  switch (isa) {
    case Isa::kPortable:
      return true;
    case Isa::kAvx2:
      return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && HasF16c();
    case Isa::kAvx512:
      return Supported(Isa::kAvx2) && __builtin_cpu_supports("avx512f") &&
             __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
             __builtin_cpu_supports("avx512dq");
    case Isa::kAvx512Vnni:
    case Isa::kVnniInt8:
      return Supported(Isa::kAvx512) && __builtin_cpu_supports("avx512vnni");
    case Isa::kAvx512Bf16:
      return Supported(Isa::kAvx512Vnni) && __builtin_cpu_supports("avx512bf16");
    case Isa::kAmx:
    case Isa::kAmxBf16:
    case Isa::kAmxInt8:
      return Supported(Isa::kAvx512Bf16) && __builtin_cpu_supports("avx512vbmi") && AskForTiles();
  }
  return false;
}
#else
bool Supported(Isa isa) { return isa == Isa::kPortable; }
#endif

std::vector<Isa> SupportedOf(std::span<const Isa> isas) {
  std::vector<Isa> found;
  std::copy_if(isas.begin(), isas.end(), std::back_inserter(found), Supported);
  return found;
}

std::string Names(const std::vector<Isa>& isas) {
  std::string names;
  for (const Isa isa : isas) names += (names.empty() ? "" : ", ") + std::string(IsaName(isa));
  return names;
}

}  // namespace

std::string_view IsaName(Isa isa) {
  switch (isa) {
    case Isa::kPortable:
      return "portable";
    case Isa::kAvx2:
      return "avx2";
    case Isa::kAvx512:
      return "avx512";
    case Isa::kAvx512Vnni:
      return "avx512_vnni";
    case Isa::kVnniInt8:
      return "avx512_vnni_int8";
    case Isa::kAvx512Bf16:
      return "avx512_bf16";
    case Isa::kAmx:
      return "amx";
    case Isa::kAmxBf16:
      return "amx_bf16";
    case Isa::kAmxInt8:
      return "amx_int8";
  }
  return "unknown";
}

std::vector<Isa> SupportedIsas() {
  static const std::vector<Isa> isas = SupportedIsas(CpuCompute::kFp32);
  return isas;
}

std::vector<Isa> SupportedIsas(CpuCompute compute) { return SupportedOf(IsasOf(compute)); }

Isa BestIsa() {
  const std::vector<Isa> isas = SupportedIsas();
  const char* wanted = std::getenv("SPILLWAY_ISA");
  if (wanted == nullptr || *wanted == '\0') return isas.back();
  for (const Isa isa : isas) {
    if (IsaName(isa) == wanted) return isa;
  }
  throw Error(
      ErrorCode::kFlag,
      "SPILLWAY_ISA is \"" + Printable(wanted) +
          "\", which is no instruction set of this machine; set it to one of: " + Names(isas));
}

Isa BestIsa(CpuCompute compute) {
  const Isa best = BestIsa();
  if (compute == CpuCompute::kFp32) return best;
  const bool int8 = compute == CpuCompute::kInt8;
  if (best == Isa::kAmx) return int8 ? Isa::kAmxInt8 : Isa::kAmxBf16;
  if (best == Isa::kAvx512Vnni && int8) return Isa::kVnniInt8;
  if (best == Isa::kAvx512Vnni && Supported(Isa::kAvx512Bf16)) return Isa::kAvx512Bf16;
  throw Error(ErrorCode::kFlag,
              std::string("--cpu-compute ") + CpuComputeName(compute) +
                  " needs a processor with AMX or " + (int8 ? "AVX-512 VNNI" : "AVX512-BF16") +
                  ", and this run has " + std::string(IsaName(best)) + "; leave it out");
}

CpuCompute ComputeOf(std::string_view isa_name) {
  for (const CpuCompute compute : {CpuCompute::kBf16, CpuCompute::kInt8}) {
    for (const Isa isa : IsasOf(compute)) {
      if (IsaName(isa) == isa_name) return compute;
    }
  }
  return CpuCompute::kFp32;
}

}  // namespace spillway::kernels
