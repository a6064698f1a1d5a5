// LinearProgram: minimise a linear cost under linear limits, solved by COIN-OR CLP.
// Plain values and a pure function; any thread.
#pragma once

#include <optional>
#include <vector>

namespace spillway {

enum class RowSense { kAtMost, kEqual };

struct LpRow {
  std::vector<double> coefficients;  // [variable]
  RowSense sense = RowSense::kAtMost;
  double limit = 0.0;
};

// Minimise cost * x with low <= x <= high and the rows.
struct LinearProgram {
  std::vector<double> cost;  // [variable]
  std::vector<double> low;
  std::vector<double> high;  // may be infinite
  std::vector<LpRow> rows;
};

struct LpSolution {
  double cost = 0.0;
  std::vector<double> x;
  // [row] What the cost changes by when the limit grows by one; no more than 0 for kAtMost.
  std::vector<double> duals;
};

// nullopt: no x satisfies all of it. Requires: bounded below; sizes agree; low <= high.
std::optional<LpSolution> Solve(const LinearProgram& program);

}  // namespace spillway
