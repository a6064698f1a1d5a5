// AheadLines: answers that were finished before those of earlier lines, kept in a file beside the
// output until they can be written there, so that an interrupted run need not compute them again.
// Framed lines: first the digest of the run's manifest, then one for each answer. Whatever is
// damaged never happened.
// Thread rule: one thread.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "src/base/descriptor.h"

namespace spillway {

struct AheadContent {
  std::map<int64_t, std::string> answers;  // by line of the input; each with its newline
  int64_t header_bytes = 0;                // 0: not of this run
  int64_t num_bytes = 0;                   // up to the first damaged line
};

AheadContent ParseAhead(std::string_view text, const std::string& run_digest);

// Whether a file of this text may be one of these, even one whose first line was torn.
bool IsAhead(std::string_view text);

class AheadLines {
 public:
  // A new file, which is empty until Append.
  // Throws: Error kDiskSpace, kIo naming `name`, as all below.
  AheadLines(Descriptor file, std::string name, const std::string& run_digest);

  // Goes on after what was parsed. Requires: it is of this run.
  AheadLines(Descriptor file, std::string name, const AheadContent& content);

  // Written, and on the disk after Sync.
  void Append(int64_t line, std::string_view answer);
  void Sync();

  // Forgets all answers.
  void Clear();

  int64_t num_bytes() const { return num_bytes_; }
  bool empty() const { return num_bytes_ == header_bytes_; }

 private:
  void Cut(int64_t bytes);

  Descriptor file_;
  std::string name_;
  std::string header_;        // of a new file
  int64_t header_bytes_ = 0;  // 0: not written yet
  int64_t num_bytes_ = 0;
};

}  // namespace spillway
