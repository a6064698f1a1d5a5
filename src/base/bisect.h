// Bisection over choices that are listed from best to cheapest. Pure functions; any thread.
#pragma once

#include <cstddef>

namespace spillway {

// The first index in [begin, end) for which `holds(index)`; `end` when none does.
// Requires: where it holds, it holds for every later index.
template <typename F>
std::size_t FirstThatHolds(std::size_t begin, std::size_t end, F holds) {
  while (begin < end) {
    const std::size_t middle = begin + (end - begin) / 2;
    if (holds(middle)) {
      end = middle;
    } else {
      begin = middle + 1;
    }
  }
  return begin;
}

}  // namespace spillway
