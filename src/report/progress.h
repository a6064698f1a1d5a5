// ProgressLine: how far a run is; redrawn in place on a terminal, a plain line every 10 s
// elsewhere. Thread rule: one thread.
#pragma once

#include <cstdint>
#include <cstdio>

namespace spillway {

class ProgressLine {
 public:
  // `out` null: silent. `total_rows` 0: unknown.
  ProgressLine(std::FILE* out, int64_t total_rows);
  ~ProgressLine();  // clears a line that was drawn in place
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;

  // Prints when it is time to; cheap otherwise. `tokens` counts prompt and generated ones, for the
  // estimate.
  void Update(int64_t rows_done, int64_t rows_running, int64_t generated_tokens);

  // Erases the line before other text is printed.
  void Clear();

 private:
  std::FILE* out_;
  int64_t total_rows_;
  bool in_place_ = false;
  bool drawn_ = false;
  double begin_s_;
  double next_s_;
};

}  // namespace spillway
