#include "src/run/repeatable_job.h"

#include <gtest/gtest.h>

#include <vector>

namespace spillway {
namespace {

// Gives lines 1 to `count`.
class CountedJob final : public Job {
 public:
  explicit CountedJob(int64_t count) : count_(count) {}
  std::optional<Request> Next() override {
    if (given_ == count_) return std::nullopt;
    Request request;
    request.line = ++given_;
    request.prompt = {static_cast<TokenId>(given_ + 7)};
    return request;
  }
  void Finish(const Request& request, const Completion&) override { ended.push_back(request.line); }
  void Fail(const Request& request, const std::string&, const std::string&) override {
    ended.push_back(-request.line);
  }
  std::vector<int64_t> ended;

 private:
  int64_t count_;
  int64_t given_ = 0;
};

std::vector<Request> Take(Job& job, int count) {
  std::vector<Request> taken;
  for (int i = 0; i < count; ++i) {
    std::optional<Request> request = job.Next();
    if (!request) break;
    taken.push_back(std::move(*request));
  }
  return taken;
}

std::vector<int64_t> Lines(const std::vector<Request>& requests) {
  std::vector<int64_t> lines;
  for (const Request& request : requests) lines.push_back(request.line);
  return lines;
}

using Numbers = std::vector<int64_t>;

TEST(RepeatableJob, GivesWhatDidNotComeBackOnceMoreAndThenTheRest) {
  CountedJob job(6);
  RepeatableJob repeatable(job);
  const std::vector<Request> first = Take(repeatable, 4);
  repeatable.Finish(first[1], {});
  repeatable.Fail(first[2], "E-X", "");
  repeatable.Repeat();
  const std::vector<Request> again = Take(repeatable, 100);
  EXPECT_EQ(Lines(again), (Numbers{1, 4, 5, 6}));
  EXPECT_EQ(again[1].prompt, first[3].prompt);
  for (const Request& request : again) repeatable.Finish(request, {});
  EXPECT_EQ(job.ended, (Numbers{2, -3, 1, 4, 5, 6}));
  EXPECT_FALSE(repeatable.Next());
}

TEST(RepeatableJob, WhatIsRepeatedMayBeRepeatedAgain) {
  CountedJob job(3);
  RepeatableJob repeatable(job);
  Take(repeatable, 3);
  repeatable.Repeat();
  const std::vector<Request> second = Take(repeatable, 2);
  repeatable.Finish(second[0], {});
  repeatable.Repeat();  // in the middle of the lines that are given again
  EXPECT_EQ(Lines(Take(repeatable, 100)), (Numbers{2, 3}));
}

}  // namespace
}  // namespace spillway
