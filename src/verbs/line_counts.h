// LineCounts: what the lines of a file of requests or answers hold, for `inspect`.
// Thread rule: plain values and functions; any thread.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>

namespace spillway {

// kErrors: lines of errors so far, which scores and counts have alike.
enum class LinesKind { kOther, kRequests, kAnswers, kScores, kTokenCounts, kErrors };

// A number of each line: its sum and the largest.
struct LengthCount {
  int64_t sum = 0;
  int64_t longest = 0;

  void Add(int64_t length);
};

struct LineCounts {
  struct Error {
    int64_t num_lines = 0;
    int64_t first_line = 0;
  };

  LinesKind kind = LinesKind::kOther;
  int64_t num_lines = 0;  // not blank
  int64_t num_blank = 0;
  std::map<std::string, Error> errors;  // by code
  // Requests.
  int64_t num_prompts = 0;  // of a text or token ids
  int64_t num_chats = 0;
  int64_t num_texts = 0;   // to score
  LengthCount characters;  // of prompts, messages and texts
  LengthCount given_ids;   // of token_ids
  // Answers and scores.
  int64_t num_answers = 0;
  int64_t num_empty = 0;
  std::map<std::string, int64_t> finish_reasons;
  LengthCount prompt_tokens;
  LengthCount new_tokens;
  double logprob_sum = 0.0;
  struct Choice {
    int64_t num_lines = 0;
    double logprob_sum = 0.0;
  };
  std::map<std::string, Choice> choices;  // by text; the first kMostChoices of them
  int64_t num_other_choices = 0;          // answers of the others

  static constexpr std::size_t kMostChoices = 10'000;

  // Several lines for people.
  std::string Text() const;
};

// Whether a name is one of lines of JSON, compressed or not.
bool IsNamedAsLines(const std::filesystem::path& file);

// Reads `file` once, decompressed. Of a file of plain lines (input_form.h) each is a prompt; of
// others the first line decides of the kind, and a name that ends in ".jsonl" is of requests where
// that line is of none. Throws: Error kIo, kInput.
LineCounts CountLines(const std::filesystem::path& file, int64_t max_line_bytes);

}  // namespace spillway
