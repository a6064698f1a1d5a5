#include "src/run/repeatable_job.h"

namespace spillway {

std::optional<Request> RepeatableJob::Next() {
  if (repeat_after_) {
    const auto next = open_.upper_bound(*repeat_after_);
    if (next != open_.end()) {
      repeat_after_ = next->first;
      return next->second;
    }
    repeat_after_.reset();
  }
  std::optional<Request> request = job_.Next();
  if (request) open_.emplace(request->line, *request);
  return request;
}

void RepeatableJob::Finish(const Request& request, const Completion& completion) {
  open_.erase(request.line);
  job_.Finish(request, completion);
}

void RepeatableJob::Fail(const Request& request, const std::string& code,
                         const std::string& message) {
  open_.erase(request.line);
  job_.Fail(request, code, message);
}

}  // namespace spillway
