// InputScan: the workload as far as one fast pass over the input can tell, for the plan and the
// time left.
// Thread rule: a plain value.
#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

#include "src/requests/reader.h"  // ReaderOptions

namespace spillway {

struct SampledRequest {
  int64_t num_prompt_tokens = 0;
  int64_t max_tokens = 0;
  int64_t num_prompt_logits = 1;  // Request::NumPromptLogits
};

struct InputScan {
  int64_t num_lines = 0;  // not blank; each will have one line of output
  int64_t num_blank_lines = 0;
  int64_t num_bytes = 0;
  uint64_t hash = 0;                   // xxh64 of the file
  std::vector<SampledRequest> sample;  // of the first lines; bad ones are left out
  int64_t num_bad_in_sample = 0;
  bool is_complete = false;  // the sample covers all lines
  // No prompt is longer: exact when complete, else from the bytes of the longest line, at most
  // max_positions - 1. Holds for vocabularies with at most one token a byte, which all supported
  // families have.
  int64_t max_prompt_tokens = 0;
  // Of no prompt more logits are wanted: exact when complete, else all of max_prompt_tokens for
  // texts to score.
  int64_t max_prompt_logits = 1;
  // No prompt + max_tokens is longer: exact when complete, else max_positions.
  int64_t max_row_tokens = 0;
};

// Reads all of `path` once: the first `sample_lines` lines that are not blank in full, the others
// for their length only.
// Requires: a file that can be opened twice (standard input: StageInput first).
// Throws: Error kInput, kIo.
InputScan ScanInput(const std::filesystem::path& path, const Tokenizer& tokenizer,
                    const ReaderOptions& options, int64_t sample_lines);

}  // namespace spillway
