#include "src/verbs/file_job.h"

#include <variant>

namespace spillway {
namespace {

// Lines that may be read past an unfinished one; their answers wait in memory.
constexpr int64_t kMaxLinesAhead = 16384;

bool HasNothingToScore(const Request& request) {
  return request.scored && request.scored->told.empty();
}

}  // namespace

std::optional<Request> FileJob::Next() {
  if (num_unfinished_ == 0) writer_.CommitIfDue();  // a new block begins
  while (num_unfinished_ == 0 || num_ahead_ < kMaxLinesAhead) {
    const std::optional<RequestOrError> line = reader_.Next();
    if (!line) return std::nullopt;
    num_ahead_ = num_unfinished_ == 0 ? 0 : num_ahead_ + 1;
    if (const auto* request = std::get_if<Request>(&*line)) {
      writer_.Expect(request->line);
      if (writer_.PutEarlier(request->line)) continue;
      ++num_requests_;
      if (HasNothingToScore(*request)) {
        writer_.Put(*request, {});
        continue;
      }
      ++num_unfinished_;
      return *request;
    }
    const LineError& error = std::get<LineError>(*line);
    writer_.Expect(error.line);
    if (!writer_.PutEarlier(error.line)) writer_.Put(error);
  }
  return std::nullopt;
}

void FileJob::Finish(const Request& request, const Completion& completion) {
  --num_unfinished_;
  if (shadow_ != nullptr) shadow_->NoteAnswer(request, completion);
  writer_.Put(request, completion);
}

void FileJob::Fail(const Request& request, const std::string& code, const std::string& message) {
  --num_unfinished_;
  writer_.Put(LineError{request.line, request.custom_id, code, message});
}

}  // namespace spillway
