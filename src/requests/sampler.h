// Sampler: logits of one row -> the next token; the same token on every device and for every batch.
// Thread rule: SampleToken is pure; RowSampler belongs to its row.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "src/requests/request.h"
#include "src/tokenizer/tokenizer.h"

namespace spillway {

// A counter-based generator: draw number `index` of stream (seed, line) is a pure function of the three, so that a
// resumed or reordered run draws the same numbers. Uniform in [0, 1), 53 bits.
double UniformDraw(uint64_t seed, uint64_t stream, uint64_t index);

enum class RowStatus { kRunning, kStopped, kLength, kNonFinite };

// Everything one row carries from step to step: chosen tokens, stop-string search, log-probabilities.
class RowSampler {
 public:
  // Requires: request, tokenizer and eos outlive the sampler.
  RowSampler(const Request& request, const Tokenizer& tokenizer, std::span<const TokenId> eos, uint64_t run_seed);

  // Chooses the next token from logits [vocab] (fp32; changed in place) and updates the row.
  // Order: eos masked below min_tokens (greedy too), temperature, top-k, top-p, draw. Greedy takes the lowest id among equals.
  // Logprobs are of the model's own distribution: log-softmax of the logits as given, before temperature and filters.
  RowStatus Step(std::span<float> logits);

  RowStatus status() const { return status_; }
  const std::vector<TokenId>& tokens() const { return completion_.tokens; }

  // The finished completion; Requires: status() is kStopped or kLength. Leaves the sampler empty.
  Completion Take();
  // helper: adjust the private part as needed
 private:
  RowStatus status_ = RowStatus::kRunning;
  Completion completion_;
};

}  // namespace spillway
