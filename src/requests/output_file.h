// OutputFile: where the lines go. A regular file is written beside its place and moved there when
// it is whole.
// Thread rule: one thread.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include "src/descriptor.h"

namespace spillway {

class OutputFile {
 public:
  // "-" and "/dev/stdout" are standard output; a pipe or a character device (/dev/null) is written
  // as it is. Otherwise `path`.part is created, mode 0644 less the umask, never through a link that
  // somebody else put there, and locked. A `path`.part with lines in it is what an interrupted run
  // finished: it only goes away with `overwrite`.
  // Throws: Error kOutputExists, kPath, kRunInUse (another process is writing it), kIo.
  OutputFile(const std::filesystem::path& path, bool overwrite);
  ~OutputFile();  // without Commit: an empty .part is removed

  // Appends whole lines. On failure what was written of them is cut off again, so that .part ends
  // with a whole line.
  // Throws: Error kDiskSpace, kIo.
  void Write(std::string_view lines);

  // Throws: as Write.
  void Sync();

  // After a failed Write or Sync: what the disk holds is unknown, and trying again may claim
  // success for lost pages. Nothing may be written any more.
  bool failed() const { return failed_; }

  // Sync, rename (which never replaces a file that appeared meanwhile, without `overwrite`), sync
  // of the folder.
  // Throws: Error kDiskSpace, kIo, kOutputExists.
  void Commit();

  // Where the lines are until Commit; empty when they are written in place.
  std::filesystem::path part_path() const;

 private:
  bool in_place() const { return !folder_.valid(); }
  void OpenPart();
  void RemoveStalePart();
  [[noreturn]] void ThrowPathError(const std::string& name) const;

  std::filesystem::path path_;
  std::string name_;  // of the path's last part; everything is done relative to folder_
  std::string part_name_;
  bool overwrite_;
  Descriptor folder_;
  Descriptor file_;
  int64_t num_bytes_ = 0;
  bool committed_ = false;
  bool failed_ = false;
};

}  // namespace spillway
