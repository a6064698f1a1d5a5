// Synthetic requests: prompts of random tokens, all rows alike. What `bench` runs and `plan` plans.
// Thread rule: SyntheticWork is a pure function; a job belongs to the engine's thread.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "spillway/model.h"
#include "spillway/workload.h"
#include "src/answers/fingerprint.h"
#include "src/config/config.h"
#include "src/run/job.h"

namespace spillway {

// --num-requests rows of --prompt-len and --gen-len tokens, which begin with --prefix-len tokens of
// all. Without --num-requests one block of the given batches; 64 rows where no batch size is given.
// Throws: Error kFlag: a row is longer than the model's positions, or all of a prompt is prefix.
Workload SyntheticWork(const Config& config, const ModelShape& shape);

// Greedy rows of exactly work.longest; the end-of-text token is an ordinary one. A prompt is the
// start token, where the family has one, and tokens drawn uniformly from the vocabulary, a
// function of (seed, row) alone behind those that all begin with.
class SyntheticJob final : public Job {
 public:
  // Lifetime: the shape outlives the job.
  SyntheticJob(const Workload& work, const ModelShape& shape, uint64_t seed);

  std::optional<Request> Next() override;
  void Finish(const Request& request, const Completion& completion) override;
  void Fail(const Request& request, const std::string& code, const std::string& message) override;

  int64_t num_requests() const { return num_given_; }
  int64_t num_completions() const { return num_completions_; }
  int64_t num_errors() const { return num_errors_; }
  // Fingerprint of the tokens of all rows that ended, in input order; a failed row adds nothing.
  std::string fingerprint() const { return fingerprint_.Hex(); }

 private:
  void Settle(int64_t row, std::vector<TokenId> tokens);

  int64_t num_rows_;
  RequestShape row_;
  std::vector<TokenId> prefix_;
  const ModelShape& shape_;
  uint64_t seed_;
  int64_t num_given_ = 0;
  int64_t num_completions_ = 0;
  int64_t num_errors_ = 0;
  int64_t next_settled_ = 1;                       // row whose tokens the fingerprint takes next
  std::map<int64_t, std::vector<TokenId>> ahead_;  // rows that ended before an earlier one
  TokenFingerprint fingerprint_;
};

}  // namespace spillway
