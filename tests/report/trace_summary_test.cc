// Traces in short: what is added up, and what is refused.
#include "src/report/trace_summary.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "spillway/error.h"
#include "tests/temporary_folder.h"

namespace spillway {
namespace {

using testing::HasSubstr;
using testing::Not;

class TraceSummary : public testing::Test {
 protected:
  const std::string& Write(const std::string& text) {
    folder_.Write("trace.json", text);
    return path_;
  }
  std::string Refusal(const std::string& text) {
    try {
      DescribeTrace(Write(text));
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInput);
      return error.what();
    }
    ADD_FAILURE() << text.substr(0, 100);
    return "";
  }

  TemporaryFolder folder_;
  std::string path_ = (folder_ / "trace.json").string();
};

std::string Thread(int thread, const std::string& name) {
  return R"({"name":"thread_name","ph":"M","pid":1,"tid":)" + std::to_string(thread) +
         R"(,"args":{"name":")" + name + "\"}},";
}

std::string Span(int thread, const std::string& rest) {
  return R"({"name":"x","ph":"X","pid":1,"tid":)" + std::to_string(thread) + "," + rest + "},";
}

TEST_F(TraceSummary, AddsUpTheTracksOfALane) {
  const std::string text =
      R"({"displayTimeUnit":"ms","traceEvents":[)" + Thread(1, "compute") + Thread(9, "disk_read") +
      Thread(10, "disk_read 2") + Thread(20, "disk_write") +
      Span(1, R"("ts":0.5,"dur":1000000.0,"args":{"layer":1})") +
      Span(9, R"("ts":1,"dur":250000,"args":{"bytes":1048576})") +
      Span(10, R"("ts":1500000,"dur":500000,"args":{"bytes":2097152})") +
      R"({"name":"rows","ph":"C","pid":1,"ts":99999999,"args":{"running":3}}],)" +
      R"("otherData":{"version":1,"dropped_events":4}})";
  EXPECT_TRUE(LooksLikeTrace(Write(text)));
  const std::string summary = DescribeTrace(path_);
  EXPECT_THAT(summary, HasSubstr("trace       3 spans over 2.000 s, 4 dropped\n"));
  EXPECT_THAT(summary, HasSubstr("compute     1 spans, 1.000 s in all\n"));
  EXPECT_THAT(summary, HasSubstr("disk_read   2 spans, 0.750 s in all, 3.0 MiB\n"));
  EXPECT_THAT(summary, Not(HasSubstr("disk_write")));
}

TEST_F(TraceSummary, WhatIsNoTraceIsRefused) {
  EXPECT_FALSE(LooksLikeTrace(Write("{\"version\":1}")));
  EXPECT_THAT(Refusal("{\"version\":1}"), HasSubstr("holds no traceEvents"));
  EXPECT_THAT(Refusal(R"({"traceEvents":[)" + Thread(1, "compute")), HasSubstr("not valid JSON"));
  EXPECT_THAT(Refusal(R"({"traceEvents":)" + std::string(100'000, '[')), HasSubstr("too deep"));
  EXPECT_THAT(Refusal(R"({"traceEvents":[{"ph":"X","tid":-1}]})"), HasSubstr("thread number"));
  std::string many = R"({"traceEvents":[)";
  for (int thread = 0; thread <= 1000; ++thread) many += Thread(thread, "t");
  EXPECT_THAT(Refusal(many), HasSubstr("too many threads"));
}

}  // namespace
}  // namespace spillway
