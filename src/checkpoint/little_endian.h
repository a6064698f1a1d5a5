// Fixed-size little-endian fields of a byte string. Pure functions; any thread.
#pragma once

#include <cstdint>
#include <cstring>
#include <string_view>

namespace spillway {

// The T at text[at].
// Requires: at + sizeof(T) <= text.size().
template <typename T>
T LittleEndian(std::string_view text, std::size_t at) {
  T value;
  std::memcpy(&value, text.data() + at, sizeof(T));
  return value;
}

}  // namespace spillway
