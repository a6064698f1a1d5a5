// Bisection over choices that are listed from best to cheapest. Pure functions; any thread.
#pragma once

#include <algorithm>
#include <cstddef>
#include <functional>
#include <ranges>

namespace spillway {

// The first index in [begin, end) for which `holds(index)`; `end` when none does.
// Requires: where it holds, it holds for every later index.
template <typename F>
std::size_t FirstThatHolds(std::size_t begin, std::size_t end, F holds) {
  return *std::ranges::partition_point(std::views::iota(begin, end), std::not_fn(holds));
}

}  // namespace spillway
