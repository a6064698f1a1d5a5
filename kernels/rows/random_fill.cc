#include "kernels/rows/random_fill.h"

#include <algorithm>

#include "kernels/convert/convert_isa.h"

namespace spillway::kernels {
namespace {

// splitmix64's finaliser.
uint64_t Mix(uint64_t z) {
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9U;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBU;
  return z ^ (z >> 31);
}

}  // namespace

void FillUniform(std::span<std::byte> out, DType dtype, uint64_t seed, uint64_t first_element,
                 float scale) {
  constexpr uint64_t kRun = 1024;  // 4 KiB of floats stay in L1 before they are rounded
  constexpr uint64_t kSegment =
      uint64_t{1} << 32;  // the hash is 32 bits wide; each segment has a key of its own
  const ConvertFunctions& functions = BestConvert();
  const uint64_t end = first_element + out.size() / static_cast<uint64_t>(DTypeBytes(dtype));
  std::byte* to = out.data();
  float run[kRun];
  for (uint64_t i = first_element; i < end;) {
    const uint64_t count = std::min({kRun, end - i, kSegment - i % kSegment});
    const uint32_t key = static_cast<uint32_t>(Mix(seed + Mix(i / kSegment + 0x9E3779B97F4A7C15U)));
    functions.fill_run(key, static_cast<uint32_t>(i), scale, run, static_cast<int64_t>(count));
    functions.convert({run, DType::kF32, to, dtype, static_cast<int64_t>(count)});
    to += count * static_cast<uint64_t>(DTypeBytes(dtype));
    i += count;
  }
}

}  // namespace spillway::kernels
