// OutputFile: where the lines go. A regular file is written beside its place and moved there when
// it is whole; meanwhile a journal says how much of it is on the disk.
// Thread rule: one thread.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "spillway/error.h"
#include "src/answers/ahead_lines.h"
#include "src/answers/journal.h"
#include "src/base/descriptor.h"
#include "src/base/part_file.h"

struct XXH3_state_s;

namespace spillway {

// Choices where the output, or the .part of an interrupted run, is there already. kGoOn and kResume
// both go on with what the same run has left, finished or not, and begin where there is nothing.
// What another run has left is with kGoOn an output that exists, with kResume a resume refused; and
// kResume refuses an output that no run could go on with, as a stream.
enum class ExistingOutput { kRefuse, kReplace, kGoOn, kResume };

// OUTPUT.journal: the records of a run that has not ended.
std::filesystem::path JournalPathOf(const std::filesystem::path& output);

class OutputFile {
 public:
  // "-" and "/dev/stdout" are standard output; a pipe or a character device (/dev/null) is written
  // as it is. Otherwise `path`.part is created, mode 0644 less the umask, never through a link that
  // somebody else put there, and locked. A `path`.part with lines in it is what an interrupted run
  // finished: it only goes away with kReplace. Throws: Error kOutputExists, kPath, kRunInUse
  // (another process is writing it), kIo; with kResume kFlag where `path` is a stream.
  OutputFile(const std::filesystem::path& path, ExistingOutput existing);
  ~OutputFile();  // without Finish or Keep: an empty .part is removed

  // A finished output was found instead of a .part to go on with: nothing is open, and nothing but
  // IsOf and RefuseFinished may be called.
  bool finished() const { return finished_; }

  // Whether the finished output is known to be of such a run: Begin leaves the manifest's digest in
  // the file's attribute user.spillway.run; where the filesystem has no attributes, Finish leaves
  // the journal.
  bool IsOf(const RunManifest& manifest) const;

  // Throws: Error kResume or kOutputExists: the finished output is not this run's.
  [[noreturn]] void RefuseFinished() const;

  // The manifest of the run that is to be gone on with; none where it left no whole manifest.
  // Before Begin. Throws: Error kCorrupt, kPath, kIo.
  std::optional<RunManifest> InterruptedRun() const;

  // The command that begins the run, for the journal's readers. Before Begin.
  void SetCommand(std::string command) { command_ = std::move(command); }

  // Starts the journal `path`.journal, before the first Write. With kGoOn and kResume: reads it,
  // verifies what it says is committed, gives each committed line (with its newline) to `on_line`,
  // cuts off what follows, and returns the last commit. Throws: Error kResume (a .part that is not
  // what the run wrote), kResume or kOutputExists (another manifest, or none), kCorrupt (a damaged
  // journal), kOutputExists, kDiskSpace, kIo.
  CommitRecord Begin(const RunManifest& manifest,
                     const std::function<void(std::string_view)>& on_line = {});

  // Appends whole lines. On failure what was written of them is cut off again, so that .part ends
  // with a whole line.
  // Throws: Error kDiskSpace, kIo.
  void Write(std::string_view lines);

  // Puts what was written on the disk; where a journal was begun, records that it answers the first
  // `lines` lines of the input.
  // Throws: as Write.
  void Commit(int64_t lines);

  // Answers that the interrupted run had finished after the committed ones, by line of the input.
  // After Begin.
  std::map<int64_t, std::string> TakeAhead() { return std::move(ahead_found_); }

  // Keeps an answer, with its newline, that waits for those of earlier lines in `path`.ahead; it is
  // on the disk after the next SyncAhead. Nothing happens without a journal.
  // Throws: as Write.
  void KeepAhead(int64_t line, std::string_view answer);
  void SyncAhead();

  // All that were kept are committed by now, or given up.
  void ForgetAhead();
  int64_t ahead_bytes() const { return ahead_ ? ahead_->num_bytes() : 0; }

  // Puts what was written on the disk. Throws: as Write.
  void Sync();

  // An interrupted run without a line is to be resumable too.
  void Keep() { keep_ = true; }

  // Whether a Write or Commit failed: what the disk holds is unknown then, and trying again may
  // claim success for lost pages. Nothing may be written any more.
  bool failed() const { return failed_; }

  // Sync, rename (which never replaces a file that appeared meanwhile, except for kReplace), sync
  // of the folder; the journal goes away, where the output itself says of which run it is.
  // Throws: Error kDiskSpace, kIo, kOutputExists.
  void Finish();

  const std::filesystem::path& path() const { return path_; }

  // The file of the lines until Finish; empty when they are written in place.
  std::filesystem::path part_path() const;

  // The file of KeepAhead.
  std::filesystem::path ahead_path() const;

 private:
  struct HashDeleter {
    void operator()(XXH3_state_s* state) const;
  };

  bool in_place() const { return !place_.valid(); }
  bool goes_on() const {
    return existing_ == ExistingOutput::kGoOn || existing_ == ExistingOutput::kResume;
  }
  ErrorCode of_another_run() const;
  bool HasLeftRun() const;
  std::optional<JournalContent> ReadJournal() const;
  std::filesystem::path journal_path() const;
  void RemoveRecords() const;
  void CheckPlace();
  Descriptor OpenExistingPart(int access) const;
  void RemoveStalePart();
  void RemoveStale(const std::filesystem::path& path, bool (*is_ours)(std::string_view)) const;
  Descriptor Create(const std::filesystem::path& path) const;
  void OpenPart();
  void SweepRecords();
  void Start();
  void ResumePart();
  void TakeFinished();
  void StartJournal(const RunManifest& manifest);
  CommitRecord ResumeJournal(const RunManifest& manifest,
                             const std::function<void(std::string_view)>& on_line);
  void Verify(const JournalContent& content, const std::function<void(std::string_view)>& on_line);
  std::string ReadPart(int64_t size) const;
  void ResumeAhead();
  bool Exists(const std::string& name) const { return place_.StatusOf(name).has_value(); }
  [[noreturn]] void ThrowPathError(const std::string& name) const;
  [[noreturn]] void ThrowInUse() const;

  std::filesystem::path path_;
  PartFile place_;  // not valid where the lines are written in place
  std::string journal_name_;
  std::string ahead_name_;
  ExistingOutput existing_;
  bool replaces_;  // an output that is there at the end
  std::string command_;
  Descriptor file_;
  std::optional<Journal> journal_;
  std::string run_digest_;           // once a journal is begun
  bool is_marked_ = false;           // the file has its run's digest as an attribute
  std::optional<AheadLines> ahead_;  // once there is something to keep
  std::map<int64_t, std::string> ahead_found_;
  std::unique_ptr<XXH3_state_s, HashDeleter> hash_;  // of all bytes, once a journal is begun
  int64_t num_bytes_ = 0;
  bool finished_ = false;
  bool moved_ = false;
  bool keep_ = false;
  bool failed_ = false;
};

}  // namespace spillway
