// CRC-32 as zip and gzip have it, of spans of bytes: zlib's. Pure functions; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace spillway {

uint32_t Crc32(std::span<const std::byte> bytes);

// The CRC of two byte strings one after the other, from the CRC of each and the second's length.
uint32_t Crc32Concatenated(uint32_t first, uint32_t second, int64_t second_bytes);

}  // namespace spillway
