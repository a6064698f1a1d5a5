// CompletionWriter: output lines (completions, or scores) in input order, whatever the order in
// which rows finish.
// Thread rule: one thread.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "src/answers/answer_form.h"
#include "src/answers/output_file.h"
#include "src/answers/run_manifest.h"
#include "src/sampling/request.h"
#include "src/tokenizer/tokenizer.h"

namespace spillway {

struct WriterOptions {
  std::string model_name;
  // Hash of the input and of what decides the output; makes "id" and "request_id".
  uint64_t run_fingerprint = 0;
  ExistingOutput existing = ExistingOutput::kRefuse;
  AnswerForm form = AnswerForm::kCompletion;
  bool splits_reasoning = false;  // of messages: <think>...</think> goes to reasoning_content
  std::string command = {};       // that begins the run, for people
};

// Lines of output by what they carry.
struct AnswerCounts {
  int64_t num_completions = 0;
  int64_t num_errors = 0;
  int64_t num_empty = 0;  // completions without a text

  int64_t num_lines() const { return num_completions + num_errors; }
  AnswerCounts operator+(const AnswerCounts& other) const {
    return {num_completions + other.num_completions, num_errors + other.num_errors,
            num_empty + other.num_empty};
  }
};

class CompletionWriter {
 public:
  // Lines go to `path`.part, renamed to `path` by Finish; "-" is standard output, and what is no
  // regular file (/dev/null, a pipe) is written in place.
  // Refuses at once what could only fail later: an existing output that is nobody's, or any with
  // kRefuse; a folder that is missing or not writable; a path that is a folder or a link to a file.
  // Requires: SIGPIPE and SIGXFSZ are
  // ignored. The caller has checked SameFile (input_file.h). Lifetime: the tokenizer outlives the
  // writer. Throws: as OutputFile.
  CompletionWriter(const std::filesystem::path& path, const Tokenizer& tokenizer,
                   WriterOptions options);
  // Removes `path`.part where it holds no line and neither Finish nor Keep was called.
  ~CompletionWriter();

  // The output is whole already: only FinishedRun may be called.
  bool finished() const;

  // Counts of the finished output. Requires: finished().
  // Throws: Error kResume or kOutputExists when it is not known to be all of one of these runs,
  // with `num_lines` lines.
  AnswerCounts FinishedRun(std::span<const RunManifest> runs, int64_t num_lines) const;

  // The fingerprint where it was not known when the output was checked. Requires: no Put yet.
  void SetRunFingerprint(uint64_t fingerprint);

  // See OutputFile.
  std::optional<RunManifest> InterruptedRun() const;

  // Makes a run resumable from here on; returns the number of lines at the start of
  // the input that have their answers already. Their tokens are in the
  // fingerprint. They, and those that PutEarlier will find, are earlier() from then on.
  // Requires: nothing expected yet. Throws: as OutputFile::Begin.
  int64_t Begin(const RunManifest& manifest);

  // The answer that the interrupted run had for the line that was expected last; false where it had
  // none.
  bool PutEarlier(int64_t line);

  // Says that line `line` will get an answer; lines are expected in ascending order, each once.
  void Expect(int64_t line);

  // The answer of an expected line; written as soon as all lines before it are. The text of lines
  // that wait is all that is held in memory: the caller bounds it by how far it runs ahead of the
  // first unfinished line.
  // Throws: Error kDiskSpace, kIo; whole lines written before stay.
  void Put(const Request& request, const Completion& completion);
  void Put(const LineError& error);

  // Puts the lines written so far on the disk and records them, and keeps those that wait, if there
  // are any since the last time and commits have taken under 2 % of the time since. Put does this
  // by itself; a caller that is about to compute for long does it before. Throws: Error kDiskSpace,
  // kIo.
  void CommitIfDue();

  // Commits after an interruption; then finished lines that still wait for earlier ones are
  // written too, in order, for people to take from .part (a resumed run has them from .ahead).
  // Lines that have no answer are given up; nothing may be put any more. After a failed write or
  // sync it does nothing. Throws: Error kDiskSpace, kIo.
  void FlushFinished();

  // An interrupted run is to be resumable even if it has finished no line.
  void Keep();

  // Requires: every expected line has its answer. fsync, rename, fsync of the folder.
  // Throws: Error kIo, kDiskSpace, kOutputExists (a file appeared there meanwhile).
  void Finish();

  int64_t num_resumable() const;  // lines that a resumed run keeps
  int64_t num_written() const;    // lines in the output, those of an interrupted run included
  int64_t num_kept() const;       // further lines on the disk, in the file of answers ahead
  AnswerCounts answers() const;   // put by this run
  AnswerCounts earlier() const;   // of the interrupted run that it resumes
  // TokenFingerprint of the lines written so far, 16 hex digits: the report's "fingerprint".
  std::string fingerprint() const;
  // Totals of the lines written so far.
  ScoreTotals scores() const;
  // Totals of what the interrupted run had, written again or not.
  ScoreTotals earlier_scores() const;
  std::filesystem::path part_path() const;  // empty when the output is written in place
  std::filesystem::path ahead_path() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace spillway
