// CompletionWriter: output lines (completions, or scores) in input order, whatever the order in
// which rows finish.
// Thread rule: one thread.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "src/requests/request.h"
#include "src/tokenizer/tokenizer.h"

namespace spillway {

// OpenAI Batch lines of `generate`, or the lines of `score`.
enum class AnswerForm { kCompletion, kScore };

struct WriterOptions {
  std::string model_name;
  // Of the input and of what decides the output; makes "id" and "request_id".
  uint64_t run_fingerprint = 0;
  bool overwrite = false;
  AnswerForm form = AnswerForm::kCompletion;
};

// Of scored tokens, natural log; summed in input order.
struct ScoreTotals {
  int64_t num_tokens = 0;
  double logprob_sum = 0.0;
};

class CompletionWriter {
 public:
  // Lines go to `path`.part, renamed to `path` by Commit; "-" is standard output, and what is no
  // regular file (/dev/null, a pipe) is written in place.
  // Refuses at once what could only fail later: an existing output without overwrite, or a .part
  // with the lines of an interrupted run; a folder that is missing or not writable; a path that is
  // a folder or a link to a file.
  // Requires: SIGPIPE and SIGXFSZ are ignored. The caller has checked SameFile (input_file.h).
  // Lifetime: the tokenizer outlives the writer.
  // Throws: Error kOutputExists, kPath, kRunInUse, kIo.
  CompletionWriter(const std::filesystem::path& path, const Tokenizer& tokenizer,
                   WriterOptions options);
  // Without Commit `path`.part goes away when it holds no line, and stays otherwise.
  ~CompletionWriter();

  // The fingerprint where it was not known when the output was checked. Requires: no Put yet.
  void SetRunFingerprint(uint64_t fingerprint);

  // Says that line `line` will get an answer; lines are expected in ascending order, each once.
  void Expect(int64_t line);

  // The answer of an expected line; written as soon as all lines before it are. The text of lines
  // that wait is all that is held in memory: the caller bounds it by how far it runs ahead of the
  // first unfinished line.
  // Throws: Error kDiskSpace, kIo; whole lines written before stay.
  void Put(const Request& request, const Completion& completion);
  void Put(const LineError& error);

  // Writes finished lines that still wait for earlier ones (after an interruption), in order, and
  // syncs. Lines that have no answer are given up; no Put may follow for them. After a failed write
  // or sync it does nothing.
  // Throws: Error kDiskSpace, kIo.
  void FlushFinished();

  // Requires: every expected line has its answer. fsync, rename, fsync of the folder.
  // Throws: Error kIo, kDiskSpace, kOutputExists (a file appeared there meanwhile).
  void Commit();

  int64_t num_completions() const;
  int64_t num_errors() const;
  // TokenFingerprint of the lines written so far, 16 hex digits: the report's "fingerprint".
  std::string fingerprint() const;
  // Of the lines written so far.
  ScoreTotals scores() const;
  std::filesystem::path part_path() const;  // empty when the output is written in place

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace spillway
