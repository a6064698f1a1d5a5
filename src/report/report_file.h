// ReportFile: the --report file; its place is checked before the run and filled after it.
// Thread rule: one thread.
#pragma once

#include <filesystem>
#include <string_view>

namespace spillway {

class ReportFile {
 public:
  // An empty path asks for no report. Throws: Error kPath when the folder is missing or not
  // writable.
  explicit ReportFile(std::filesystem::path path);

  // Replaces the file as a whole, by a temporary file beside it and a rename. Throws: Error kIo.
  void Write(std::string_view text) const;

 private:
  std::filesystem::path path_;
};

}  // namespace spillway
