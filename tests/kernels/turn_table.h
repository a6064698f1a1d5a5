// The turns of a rolling cache's keys for tests: a table as FillKeyTurns makes it, and what it does
// to a key, from scratch and in double.
#pragma once

#include <cmath>
#include <vector>

#include "kernels/kv/key_turns.h"
#include "src/base/thread_pool.h"

namespace spillway::kernels {

struct TurnTable {
  int64_t num_rows;
  int64_t dims;
  RopePairs pairs;
  float factor = 1.1F;
  std::vector<float> frequencies = {};
  std::vector<float> table = {};

  TurnTable(int64_t rows, int64_t turned_dims, RopePairs of_pairs)
      : num_rows(rows), dims(turned_dims), pairs(of_pairs) {
    for (int64_t pair = 0; pair < dims / 2; ++pair) {
      frequencies.push_back(static_cast<float>(
          std::pow(10000.0, -2.0 * static_cast<double>(pair) / static_cast<double>(dims))));
    }
    table.resize(static_cast<size_t>(num_rows * dims));
    ThreadPool pool(2);
    const auto half = static_cast<std::ptrdiff_t>(table.size()) / dims / 2 * dims;
    const std::span<float> all = table;  // in two parts, as a GPU gets it
    FillKeyTurns({frequencies, factor, 0, all.first(static_cast<size_t>(half))}, pool);
    FillKeyTurns({frequencies, factor, half / dims, all.subspan(static_cast<size_t>(half))}, pool);
  }

  KeyTurns turns() const { return {table.data(), num_rows, dims, pairs}; }

  std::vector<double> Turned(std::vector<double> key, int64_t place) const {
    for (int64_t pair = 0; pair < dims / 2; ++pair) {
      const bool halves = pairs == RopePairs::kHalves;
      double& a = key[static_cast<size_t>(halves ? pair : 2 * pair)];
      double& b = key[static_cast<size_t>(halves ? pair + dims / 2 : 2 * pair + 1)];
      const float angle = static_cast<float>(place) * frequencies[static_cast<size_t>(pair)];
      const double cosine = std::cos(static_cast<double>(angle)) * static_cast<double>(factor);
      const double sine = std::sin(static_cast<double>(angle)) * static_cast<double>(factor);
      const double first = a * cosine - b * sine;
      b = b * cosine + a * sine;
      a = first;
    }
    return key;
  }
};

}  // namespace spillway::kernels
