#include "src/answers/answer_stream.h"

#include <limits.h>
#include <poll.h>

#include <algorithm>
#include <string>
#include <utility>

#include "src/answers/output_stream.h"
#include "src/base/stop_signal.h"

namespace spillway {

AnswerStream::AnswerStream(const Tokenizer& tokenizer, WriterOptions options)
    : tokenizer_(tokenizer), options_(std::move(options)), file_(OpenStream("-")) {}

void AnswerStream::Put(const Request& request, const Completion& completion, uint64_t text_hash) {
  options_.run_fingerprint = text_hash;
  ++counts_.num_completions;
  Write(request.scored ? ScoreLine(request, completion.scores)
                       : CompletionLine(request, completion, tokenizer_, options_));
}

void AnswerStream::Put(const LineError& error, uint64_t text_hash) {
  options_.run_fingerprint = text_hash;
  ++counts_.num_errors;
  Write(ErrorOutputLine(error, options_));
}

// A pipe that says it has room takes PIPE_BUF bytes at once: no write blocks, so that a stop is
// noticed beside a reader that sleeps.
void AnswerStream::Write(std::string_view line) const {
  constexpr int kLookMs = 50;
  while (!line.empty()) {
    ThrowIfStopRequested();
    pollfd wait{file_.get(), POLLOUT, 0};
    if (::poll(&wait, 1, kLookMs) == 0) continue;
    const std::string_view part = line.substr(0, PIPE_BUF);
    WriteAll(file_, part, "standard output");
    line.remove_prefix(part.size());
  }
}

}  // namespace spillway
