// The input as a file: opened and checked, compared with the output, and staged when it is a pipe.
// Thread rule: plain functions; any thread.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string_view>

#include "src/base/descriptor.h"

namespace spillway {

// "-" is standard input. Regular files, pipes, terminals and /dev/null are fine. `flag` is named in
// errors.
// Throws: Error kInput when it is missing, unreadable, a folder or another thing that has no lines.
Descriptor OpenInput(const std::filesystem::path& path, std::string_view flag = "--input");

// Whether writing `output` would touch the regular file that `input` is read from, by inode: the
// output itself or the `output`.part that lines go to first. "-" is standard input and standard
// output.
bool SameFile(const std::filesystem::path& input, const std::filesystem::path& output);

// A copy of a pipe's bytes without a name: it is gone with this object, even after kill -9.
class StagedInput {
 public:
  StagedInput(Descriptor file, int64_t num_bytes);

  // The path that RequestReader and ScanInput take; each opening starts at the first byte.
  // Lifetime: as long as this object.
  std::filesystem::path path() const;
  int64_t num_bytes() const { return num_bytes_; }

 private:
  Descriptor file_;
  int64_t num_bytes_;
};

// Copies standard input to its end into a nameless file of mode 0600 in `folder`; 256 KiB of
// memory.
// Throws: Error kPath (the folder), kDiskSpace, kIo, kInput (standard input is closed or a folder).
StagedInput StageInput(const std::filesystem::path& path, const std::filesystem::path& folder);

// Whether `path` can be read only once: standard input, a pipe, a character device.
bool NeedsStaging(const std::filesystem::path& path);

}  // namespace spillway
