// Journal: what of an output is known to be on the disk, so that an interrupted run can go on.
// A text file beside the output, of framed lines with one JSON object each: first the run's
// manifest, then one record per commit. Only whole lines count; a torn last line never happened.
// Thread rule: one thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "src/answers/run_manifest.h"
#include "src/base/descriptor.h"

namespace spillway {

// The first `bytes` of the output hold the answers of the first `lines` lines of the input.
struct CommitRecord {
  int64_t lines = 0;
  int64_t bytes = 0;
  uint64_t hash = 0;  // XXH3 of these bytes
};

struct JournalContent {
  RunManifest manifest;
  bool replaces = false;  // the run was allowed to replace an existing output
  std::string command;    // that began the run, for people; empty where it is not known
  std::vector<CommitRecord> commits;
  int64_t num_bytes = 0;  // of whole lines
};

// Nullopt: not even the manifest is whole, so nothing was committed.
// Throws: Error kCorrupt naming `name` where a broken line stands before a whole one, or a line
// says what no run writes.
std::optional<JournalContent> ParseJournal(std::string_view text, const std::string& name);

// Whether a file of this text may be a journal, even one whose first line was torn.
bool IsJournal(std::string_view text);

class Journal {
 public:
  // Writes what `content` says of the run into a new, empty file and syncs it.
  // Throws: Error kDiskSpace, kIo naming `name`.
  static Journal Begin(Descriptor file, std::string name, const JournalContent& content);

  // Goes on after what was parsed, cutting off what follows it.
  // Throws: Error kIo.
  Journal(Descriptor file, std::string name, const JournalContent& content);

  // Appends and syncs. The output's bytes must be synced already.
  // Throws: Error kDiskSpace, kIo.
  void Append(const CommitRecord& commit);

 private:
  Journal(Descriptor file, std::string name) : file_(std::move(file)), name_(std::move(name)) {}
  void WriteLine(const std::string& json);

  Descriptor file_;
  std::string name_;
};

}  // namespace spillway
