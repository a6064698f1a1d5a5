// RepeatableJob: a job that can give the requests that have not come back once more, for a run
// whose rows are lost and not its requests. Keeps a copy of each until it comes back.
// Thread rule: the engine's thread.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "src/run/job.h"

namespace spillway {

class RepeatableJob final : public Job {
 public:
  // Lifetime: the job outlives it. Requires: its requests' lines differ.
  explicit RepeatableJob(Job& job) : job_(job) {}

  // Gives the requests to repeat, in order of their lines, then the job's.
  std::optional<Request> Next() override;
  void Finish(const Request& request, const Completion& completion) override;
  void Fail(const Request& request, const std::string& code, const std::string& message) override;

  // Gives all requests that have not come back again, from here on.
  void Repeat() { repeat_after_ = 0; }

 private:
  Job& job_;
  std::map<int64_t, Request> open_;      // given and not come back, by line
  std::optional<int64_t> repeat_after_;  // of these the lines that follow are given first
};

}  // namespace spillway
