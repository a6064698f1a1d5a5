// Region: a named run of bytes in a tier's arena. Plain values; any thread.
#pragma once

#include <cstdint>

namespace spillway {

struct Region {
  int64_t offset = 0;
  int64_t bytes = 0;
};

}  // namespace spillway
