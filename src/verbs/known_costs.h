// KnownCosts: what `calibrate` has measured, beside its output, so that the next call goes on where
// this one was stopped, or is done soon where it asks for another loss. Thread rule: one thread.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>
#include <vector>

#include "src/base/report_file.h"

namespace spillway {

class KnownCosts {
 public:
  // OUTPUT.costs; nothing is kept where the output is no file.
  // Throws: as ReportFile.
  KnownCosts(const std::filesystem::path& output, const OtherFiles& others);

  // Name of the file; empty: none.
  std::string name() const { return path_.filename().string(); }

  // Costs of the same calibration, at most so many; none of another one, or of a file that is not
  // whole or no such file.
  std::vector<double> Read(const std::string& identity, std::size_t most);
  // Whether the file held costs of another calibration: the first Write renames it to kept_name().
  bool holds_other() const { return holds_other_; }
  std::string kept_name() const { return name() + ".old"; }
  // Throws: Error kIo, kDiskSpace, kPath, kSystemLimit.
  void Write(const std::string& identity, const std::vector<double>& costs);

 private:
  bool holds_other_ = false;
  std::filesystem::path path_;
  ReportFile file_;
};

}  // namespace spillway
