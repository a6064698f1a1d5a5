// AnswerStream: answers on standard output as they come, in no order but that.
// Thread rule: one thread.
#pragma once

#include <cstdint>
#include <string_view>

#include "src/answers/output_line.h"
#include "src/answers/writer.h"  // AnswerCounts, WriterOptions
#include "src/base/descriptor.h"
#include "src/sampling/request.h"
#include "src/tokenizer/tokenizer.h"

namespace spillway {

class AnswerStream {
 public:
  // Lifetime: the tokenizer outlives the stream. Requires: SIGPIPE is ignored.
  // Throws: Error kIo: standard output is closed.
  AnswerStream(const Tokenizer& tokenizer, WriterOptions options);

  // `text_hash`: of the request's line; makes "id" and "request_id", with the line's number. Waits
  // for a slow reader.
  // Throws: Error kIo (the reader is gone), kDiskSpace, kInterrupted (a stop is due while it
  // waits).
  void Put(const Request& request, const Completion& completion, uint64_t text_hash);
  void Put(const LineError& error, uint64_t text_hash);

  const AnswerCounts& counts() const { return counts_; }

 private:
  void Write(std::string_view line) const;

  const Tokenizer& tokenizer_;
  WriterOptions options_;
  Descriptor file_;
  AnswerCounts counts_;
};

}  // namespace spillway
