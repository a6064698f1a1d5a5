// Byte counts for people. Pure functions; any thread.
#pragma once

#include <cstdint>
#include <string>

namespace spillway {

// "1.50 GiB", or "15.1 MiB" below one GiB.
std::string SizeText(int64_t bytes);

// "1.5 KiB (1536 bytes)", in the unit that suits; "12 B" below one KiB.
std::string ExactSizeText(int64_t bytes);

}  // namespace spillway
