// Report of a job of several shards. Plain values and functions; any thread.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "src/answers/earlier_line.h"

namespace spillway {

// Sums over the lines of all shards.
struct MergedTotals {
  int64_t num_answers = 0;
  int64_t num_errors = 0;
  int64_t num_empty = 0;
  int64_t prompt_tokens = 0;
  int64_t generated_tokens = 0;
  ScoreTotals scores;

  int64_t num_lines() const { return num_answers + num_errors; }
  void Add(const EarlierLine& line);
};

// JSON with the keys of a run's report that can be summed. "time_s" is the sum over the reports
// that the shards wrote for --report `path`, machine time, and "throughput" of the tokens that they
// tell; null where one of them is missing. Lines of scores do not tell their prompt tokens: null.
std::string MergedReport(const MergedTotals& totals, int64_t num_shards,
                         const std::string& fingerprint, const std::filesystem::path& path);

}  // namespace spillway
