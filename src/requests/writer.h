// CompletionWriter: output lines in input order, whatever the order in which rows finish.
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

struct WriterOptions {
  std::string model_name;
  uint64_t run_fingerprint = 0;  // of the input and of what decides the output; makes "id" and "request_id"
  bool overwrite = false;
};

class CompletionWriter {
 public:
  // Lines go to `path`.part, renamed to `path` by Commit; "-" is standard output.
  // Refuses at once what could only fail later: an existing output without overwrite, a folder that is missing or not
  // writable, a path that is a folder.
  // Throws: Error kOutputExists, kPath, kIo.
  CompletionWriter(const std::filesystem::path& path, const Tokenizer& tokenizer, WriterOptions options);
  ~CompletionWriter();  // without Commit: `path`.part goes away when it holds no line, and stays otherwise

  // Says that line `line` will get an answer; lines are expected in ascending order, each once.
  void Expect(int64_t line);

  // The answer of an expected line; written as soon as all lines before it are.
  void Put(const Request& request, const Completion& completion);
  void Put(const LineError& error);

  // Writes finished lines that still wait for earlier ones (after an interruption), in order, and syncs.
  void FlushFinished();

  // Requires: every expected line has its answer. fsync, rename, fsync of the folder.
  // Throws: Error kIo, kDiskSpace.
  void Commit();

  int64_t num_completions() const;
  int64_t num_errors() const;
  std::filesystem::path part_path() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace spillway
