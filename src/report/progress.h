// ProgressLine: how far a run is; redrawn in place on a terminal, a plain line every 10 s
// elsewhere. Thread rule: one thread.
#pragma once

#include <cstdint>
#include <cstdio>
#include <functional>
#include <optional>
#include <string>

#include "src/report/eta.h"
#include "src/report/progress_text.h"  // DurationText
#include "src/report/recent_rate.h"

namespace spillway {

// Told of a long read of a file as it goes on.
using ReadProgress = std::function<void(const std::string& name, int64_t done, int64_t total)>;

class ProgressLine {
 public:
  // `out` null: silent.
  explicit ProgressLine(std::FILE* out);
  ~ProgressLine() { Clear(); }
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;

  // Erases a line that was drawn in place, before other text is printed.
  void Clear();

  // Clears the line and prints "spillway: warning: TEXT" on standard error.
  void Warn(const std::string& text);

  // Says what is going on where no rows are counted; on a terminal only.
  void Note(const std::string& text);

  // Notes "reading NAME: 1 GiB of 4 GiB". Lifetime: the line's.
  ReadProgress NoteReads();

  // The clock of rate and ETA starts here.
  void Begin(const ExpectedWork& expected);

  // Prints when it is time to; cheap otherwise.
  void Update(const WorkDone& done);

  // Until a row of the run ends, as it was last seen; nullopt: not known, or none runs.
  std::optional<double> SecondsToRowEnd() const { return eta_.SecondsToRowEnd(); }

 private:
  void Draw(std::string text);

  std::FILE* out_;
  bool in_place_ = false;
  bool drawn_ = false;
  ExpectedWork expected_;
  Eta eta_;
  RecentRate read_;
  RecentRate written_;
  double begin_s_ = 0.0;
  double next_s_ = 0.0;
};

}  // namespace spillway
