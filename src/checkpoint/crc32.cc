#include "src/checkpoint/crc32.h"

#include <zlib.h>

namespace spillway {

uint32_t Crc32(std::span<const std::byte> bytes) {
  // zlib counts in unsigned long and returns 32 bits of it.
  return static_cast<uint32_t>(
      ::crc32_z(0, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size()));
}

uint32_t Crc32Concatenated(uint32_t first, uint32_t second, int64_t second_bytes) {
  return static_cast<uint32_t>(::crc32_combine(first, second, second_bytes));
}

}  // namespace spillway
