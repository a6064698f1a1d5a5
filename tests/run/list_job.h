// ListJob: a job of requests that a test lists, which keeps what became of each.
// Thread rule: one thread.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "src/run/job.h"

namespace spillway {

class ListJob : public Job {
 public:
  explicit ListJob(std::vector<Request> requests) : requests_(std::move(requests)) {}

  std::optional<Request> Next() override {
    if (next_ == requests_.size()) return std::nullopt;
    return requests_[next_++];
  }
  void Finish(const Request& request, const Completion& completion) override {
    EXPECT_TRUE(finished.emplace(request.line, completion).second);
    ended.push_back(request.line);
  }
  void Fail(const Request& request, const std::string& code, const std::string&) override {
    EXPECT_TRUE(failed.emplace(request.line, code).second);
    ended.push_back(request.line);
  }

  std::map<int64_t, Completion> finished;  // by line
  std::map<int64_t, std::string> failed;   // their codes
  std::vector<int64_t> ended;              // lines, in the order in which they came back

 private:
  std::vector<Request> requests_;
  std::size_t next_ = 0;
};

}  // namespace spillway
