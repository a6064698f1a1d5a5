// ProgressText: how far a run is, in a line for people. Pure functions; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "src/report/eta.h"

namespace spillway {

// "12 s", "3 min 05 s", "2 h 10 min".
std::string DurationText(double seconds);

// "9,691"
std::string GroupedText(int64_t number);

struct ProgressFigures {
  const ExpectedWork& expected;
  const WorkDone& done;
  double elapsed_s = 0.0;
  std::optional<double> left_s;
  std::optional<double> to_row_end_s;
  double read_per_s = 0.0;     // prompt tokens in the last minute
  double written_per_s = 0.0;  // new tokens
  int64_t memory_bytes = 0;
};

// Parts of the line, what matters most first: time left, rows, phase, tokens, memory.
std::vector<std::string> ProgressParts(const ProgressFigures& figures);

// As many of the first parts as fit in `width` columns; the first is cut where it alone does not.
std::string JoinParts(const std::vector<std::string>& parts, std::size_t width);

}  // namespace spillway
