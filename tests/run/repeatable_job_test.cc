#include "src/run/repeatable_job.h"

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "tests/run/list_job.h"

namespace spillway {
namespace {

// Lines 1 to `count`.
std::vector<Request> CountedRequests(int64_t count) {
  std::vector<Request> requests(static_cast<std::size_t>(count));
  for (int64_t line = 1; line <= count; ++line) {
    Request& request = requests[static_cast<std::size_t>(line - 1)];
    request.line = line;
    request.prompt = {static_cast<TokenId>(line + 7)};
  }
  return requests;
}

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
  ListJob job(CountedRequests(6));
  RepeatableJob repeatable(job);
  const std::vector<Request> first = Take(repeatable, 4);
  repeatable.Finish(first[1], {});
  repeatable.Fail(first[2], "E-X", "");
  repeatable.Repeat();
  const std::vector<Request> again = Take(repeatable, 100);
  EXPECT_EQ(Lines(again), (Numbers{1, 4, 5, 6}));
  EXPECT_EQ(again[1].prompt, first[3].prompt);
  for (const Request& request : again) repeatable.Finish(request, {});
  EXPECT_EQ(job.ended, (Numbers{2, 3, 1, 4, 5, 6}));
  EXPECT_EQ(job.failed, (std::map<int64_t, std::string>{{3, "E-X"}}));
  EXPECT_FALSE(repeatable.Next());
}

TEST(RepeatableJob, WhatIsRepeatedMayBeRepeatedAgain) {
  ListJob job(CountedRequests(3));
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
