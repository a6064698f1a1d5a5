// InputScan: what one pass over the input tells of the workload, for the plan and the time left.
// Thread rule: a plain value.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "spillway/workload.h"  // RequestShape
#include "src/requests/passed_keys.h"
#include "src/requests/request_lines.h"  // ReaderOptions
#include "src/tokenizer/tokenizer.h"

namespace spillway {

// Requests after which one that begins otherwise is worth a word.
inline constexpr int64_t kAlikeRequests = 16;

// Lines that cannot run, of one code.
struct BadLines {
  std::string code;
  int64_t num_lines = 0;
  std::string first;  // the message of the first of them, which begins with its number
};

// A request that begins otherwise than those before it.
struct OtherBeginning {
  int64_t line = 0;         // 0: there is none
  int64_t num_before = 0;   // requests
  int64_t tokens_lost = 0;  // of what these have in common, in whole steps of kPrefixStep
};

struct InputScan {
  int64_t num_lines = 0;  // of the shard, not blank; each will have one line of output
  int64_t num_blank_lines = 0;
  int64_t num_bytes = 0;
  int64_t num_requests = 0;           // lines that can run
  uint64_t hash = 0;                  // xxh64 of the file
  std::vector<uint32_t> line_hashes;  // of the num_lines
  std::vector<RequestShape> sample;   // all requests, or evenly spread ones where they are many
  // The longest of all requests, each by itself.
  int64_t max_prompt_tokens = 0;
  int64_t max_prompt_logits = 1;
  int64_t max_row_tokens = 0;  // prompt + max_tokens
  int64_t longest_line = 0;    // that has as many; 0: no line can run
  // Sums of all requests.
  int64_t num_prompt_tokens = 0;
  int64_t num_new_tokens = 0;       // at most; of texts to score those that are
  std::vector<BadLines> bad_lines;  // in order of the first of each
  std::vector<PassedKey> passed_keys;
  // Tokens that all prompts begin with, before those whose logits are wanted.
  std::vector<TokenId> prefix;
  OtherBeginning other_beginning;  // that shortened the prefix most, after kAlikeRequests or more
  int64_t num_cut = 0;             // prompts, or contexts to score, that were too long
  int64_t first_cut_line = 0;      // where there are any

  void TakeLongest(const RequestShape& row);
  // Shortens the prefix to what the request begins with too; the first one's is its own. Requires:
  // num_requests counts those before it.
  void TakePrefix(const Request& request);
  void NoteCut(const Request& request);
};

// Reads `path` once, and tokenises the lines of the shard (a million tokens a second, where a run
// computes thousands); all else but the hash, the bytes and the ids is counted of these. Memory
// grows by 11 to 22 bytes with each custom_id, unless duplicates are allowed, and by 4 bytes with
// each line. Requires: a file that can be opened twice (standard input: StageInput first);
// max_sample >= 2. Throws: Error kInput (as a whole of another form, and a custom_id that two lines
// have), kIo, kInterrupted.
InputScan ScanInput(const std::filesystem::path& path, const Tokenizer& tokenizer,
                    const ReaderOptions& options, int64_t max_sample);

}  // namespace spillway
