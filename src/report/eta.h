// Eta: how long a run still takes. Where the machine's rates are known, the run is followed on the
// course that the cost model foresees, at the pace that each phase was measured to have; elsewhere
// tokens that are left take as long as those that are done. Thread rule: one thread.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "spillway/prediction.h"
#include "spillway/workload.h"

namespace spillway {

// Work of the whole run, as far as the scan of the input could tell.
struct ExpectedWork {
  int64_t rows = 0;
  int64_t earlier_rows = 0;  // beside them, which an interrupted run has answered
  double prompt_tokens = 0.0;
  double decode_tokens = 0.0;       // at most; beyond the first of each row
  std::vector<CoursePoint> course;  // empty: nothing is known of the machine
};

// A sample's tokens are scaled to all requests. `predicted` nullopt: nothing is known of the
// machine.
ExpectedWork ExpectedOf(const Workload& work, const std::optional<Prediction>& predicted);

// The pass that runs.
struct PassDone {
  int64_t prompt_tokens = 0;  // of rows that it begins
  int64_t decode_tokens = 0;  // one for each of the other rows
  int64_t layer = 0;          // decoder layer, from 0; the last that was computed
  int64_t num_layers = 0;
  int64_t cells = 0;  // that are done
  int64_t num_cells = 0;
  int64_t to_row_end = 0;  // passes until a row ends, this one included; 0: no pass runs

  bool prefills() const { return prompt_tokens > 0; }
  double share() const {
    return num_cells > 0 ? static_cast<double>(cells) / static_cast<double>(num_cells) : 0.0;
  }
};

struct WorkDone {
  int64_t rows = 0;
  int64_t rows_running = 0;
  int64_t generated_tokens = 0;
  // Of whole passes, beside which there is the one that runs.
  int64_t prompt_tokens = 0;
  int64_t decode_tokens = 0;  // done, or not needed any more as their rows have ended
  PassDone pass = {};

  double PromptTokens() const {
    return static_cast<double>(prompt_tokens) +
           pass.share() * static_cast<double>(pass.prompt_tokens);
  }
  double DecodeTokens() const {
    return static_cast<double>(decode_tokens) +
           pass.share() * static_cast<double>(pass.decode_tokens);
  }
};

class Eta {
 public:
  Eta() = default;
  explicit Eta(ExpectedWork expected);

  // Called often: the time since the last call was the phase's of the pass that runs. `elapsed_s`
  // counts from the first pass.
  void See(const WorkDone& done, double elapsed_s);

  // nullopt: nothing is known yet.
  std::optional<double> LeftSeconds() const;

  // Until a row ends, if none ends early; nullopt: not known, or no pass runs.
  std::optional<double> SecondsToRowEnd() const;

 private:
  struct PhaseSeconds {
    double prefill = 0.0;
    double decode = 0.0;

    double total() const { return prefill + decode; }
  };

  double WorkOf(double prompt_tokens, double decode_tokens) const;
  PhaseSeconds OnCourse() const;
  PhaseSeconds Pace(const PhaseSeconds& foreseen) const;
  std::optional<double> LeftByTokens() const;
  std::optional<double> DecodePassSeconds() const;

  ExpectedWork expected_;
  PhaseSeconds per_token_;    // as foreseen, of a token read and of one decoded
  std::vector<double> work_;  // WorkOf each point of the course
  WorkDone done_;             // when it was last seen
  double elapsed_s_ = 0.0;
  PhaseSeconds measured_;
  double pass_s_ = 0.0;        // of the pass that runs
  int64_t decode_passes_ = 0;  // whole ones
  double decode_passes_s_ = 0.0;
};

}  // namespace spillway
