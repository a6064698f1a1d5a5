// QualityReceipt: what a run's KV policy and KV bits cost, measured on a sample of its own rows
// beside the full KV cache of 16 bits. Plain values; any thread.
#pragma once

#include <cstdint>
#include <optional>

namespace spillway {

// A mean over rows, and its standard error as rows differ; nullopt of a single row.
struct MeanWithError {
  double mean = 0.0;
  std::optional<double> error;
};

// Answers' lengths in tokens, of rows that have both.
struct AnswerLengths {
  int64_t num_rows = 0;
  double full = 0.0;         // mean with the full cache
  double own = 0.0;          // mean of this run
  MeanWithError difference;  // own - full, row by row
};

struct QualityReceipt {
  int64_t num_rows = 0;    // of the sample, less those whose logits were not finite
  int64_t num_tokens = 0;  // steps that were compared: of the full cache's answers
  // Share of steps at which the likeliest next token is the full cache's, given the same tokens.
  MeanWithError agreement;
  // KL(full cache || this run) in nats a token; the least that the 20 likeliest tokens of both
  // allow.
  MeanWithError divergence;
  std::optional<AnswerLengths> lengths;  // nullopt: no row of the sample was answered by this run
  double seconds = 0.0;                  // that the sample took
};

}  // namespace spillway
