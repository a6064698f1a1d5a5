// Solves linear programs from standard input, for a comparison with another solver. A program is
//   variables rows / costs / lows / highs / one line a row: "<" or "=", limit, coefficients
// and its answer is a line: "cost", or "infeasible".
#include <cstdio>
#include <iostream>
#include <string>

#include "policies/search/linear_program.h"

namespace {

std::vector<double> ReadNumbers(std::size_t count) {
  std::vector<double> numbers(count);
  for (double& number : numbers) std::cin >> number;
  return numbers;
}

}  // namespace

int main() {
  std::size_t variables = 0;
  std::size_t rows = 0;
  while (std::cin >> variables >> rows) {
    spillway::LinearProgram program;
    program.cost = ReadNumbers(variables);
    program.low = ReadNumbers(variables);
    program.high = ReadNumbers(variables);
    for (std::size_t row = 0; row < rows; ++row) {
      std::string sense;
      std::cin >> sense;
      const double limit = ReadNumbers(1)[0];
      program.rows.push_back(
          {ReadNumbers(variables),
           sense == "=" ? spillway::RowSense::kEqual : spillway::RowSense::kAtMost, limit});
    }
    const auto solution = spillway::Solve(program);
    if (solution) {
      std::printf("%.12g\n", solution->cost);
    } else {
      std::printf("infeasible\n");
    }
  }
}
