// ReportFile: the --report file; its place is checked before the run and filled after it.
// Thread rule: one thread.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "src/descriptor.h"

namespace spillway {

class ReportFile {
 public:
  // An empty path asks for no report. A regular file there is replaced; a pipe or a character
  // device (/dev/stdout too) is written in place. `input` and `output` are what the run reads and
  // writes, "-" for the standard ones: a report never takes their place, nor that of the output's
  // .part.
  // Throws: Error kInput when it would replace the input; kPath when it would replace the output or
  // cannot be written there; kSystemLimit.
  ReportFile(std::filesystem::path path, const std::filesystem::path& input,
             const std::filesystem::path& output);

  // Replaces the file as a whole, by a new file beside it (`path`.part, never through a link that
  // somebody put there) and a rename.
  // Throws: Error kIo, kDiskSpace, kPath, kSystemLimit.
  void Write(std::string_view text) const;

 private:
  void CheckPlace() const;
  void RemoveStalePart() const;
  void WriteBeside(std::string_view text) const;
  std::string Named() const;

  std::filesystem::path path_;
  Descriptor stream_;  // valid when written in place
  Descriptor folder_;  // otherwise everything is done relative to it
  std::string name_;
  std::string part_name_;
};

}  // namespace spillway
