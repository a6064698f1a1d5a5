// ReportFile: a file that a run writes about itself (--report, --trace); its place is checked
// before the run and taken after it. Thread rule: one thread.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "src/base/descriptor.h"
#include "src/base/part_file.h"
#include "src/base/report_kind.h"

namespace spillway {

// Other files that a run reads and writes; "-" for the standard streams.
struct OtherFiles {
  std::filesystem::path input;
  std::filesystem::path output;
  std::filesystem::path report;  // another one; empty: none
};

class ReportFile {
 public:
  // An empty path asks for none. A regular file there is replaced if it is empty or of `kind`, its
  // .part if it begins as any of ours, and both if no run has its journal beside it; a pipe or a
  // character device (/dev/stdout too) is written in place. The place of another file, or of its
  // .part, is never taken. Throws: Error kInput when it would replace the input; kOutputExists what
  // is no file of the kind; kPath when it would replace another output or cannot be written there;
  // kSystemLimit. They name `flag`.
  ReportFile(ReportKind kind, std::string flag, std::filesystem::path path,
             const OtherFiles& others);

  // One in a folder of the program's own, which replaces any regular file. Throws: as above.
  static ReportFile InOwnFolder(std::string flag, std::filesystem::path path);

  bool asked_for() const { return !path_.empty(); }
  const std::filesystem::path& path() const { return path_; }
  // Whether a file of before lies there, which Write would replace.
  bool IsThere() const;
  std::string Named() const;  // flag and path, printable

  // Replaces the file as a whole, by a new file beside it (`path`.part, never through a link that
  // somebody put there) and a rename.
  // Throws: Error kIo, kDiskSpace, kPath, kSystemLimit.
  void Write(std::string_view text) const;

  // Write in steps, for what is written while the run goes on. Commit syncs what Create gave and
  // puts it in place; Discard removes it.
  // Requires: asked_for(). Throws: as Write.
  Descriptor Create() const;
  void Commit(const Descriptor& part) const;
  void Discard() const noexcept;

 private:
  ReportFile(std::string flag, std::filesystem::path path);

  void OpenPlace(const OtherFiles& others);
  void RefuseOthers(const OtherFiles& others) const;
  void CheckPlace() const;
  bool HoldsSomething(const std::string& name) const;
  void RefuseOtherKind() const;
  void RefuseForeignPart() const;
  void RefuseRun() const;
  void RemoveStalePart() const;

  ReportKind kind_ = ReportKind::kReport;
  std::string flag_;
  std::filesystem::path path_;
  Descriptor stream_;  // valid when written in place
  PartFile place_;     // otherwise
  bool in_own_folder_ = false;
};

}  // namespace spillway
