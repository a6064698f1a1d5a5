// The checksum of every block that comes back from disk: XXH3, 64 bits. Pure functions; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace spillway {

// Reads memory at close to its rate: 12 GB/s and more on one core with AVX-512.
uint64_t BlockHash(std::span<const std::byte> bytes, uint64_t seed = 0);

}  // namespace spillway
