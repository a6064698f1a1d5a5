// The --trace file: whole JSON with every event that was added, or their number.
#include "src/report/trace_log.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <vector>

#include "src/base/clock.h"
#include "tests/expect_error.h"
#include "tests/plan_builder.h"
#include "tests/temporary_folder.h"

namespace spillway {
namespace {

using Json = nlohmann::json;

class TraceLogTest : public ::testing::Test {
 protected:
  ReportFile File(const std::filesystem::path& path) const {
    return {ReportKind::kTrace, "--trace", path, {}};
  }
  Json Written() const { return Json::parse(FileText(folder_ / "t.json")); }

  std::vector<Json> Spans() const {
    std::vector<Json> spans;
    const Json trace = Written();
    std::ranges::copy_if(trace["traceEvents"], std::back_inserter(spans),
                         [](const Json& event) { return event["ph"] == "X"; });
    return spans;
  }

  // Times in milliseconds after the log began.
  TraceSpan Span(TraceLane lane, const TraceLabel& label, double begin_ms, double end_ms) const {
    return {lane, label, begin_s_ + begin_ms / 1e3, begin_s_ + end_ms / 1e3, 4096};
  }

  TemporaryFolder folder_;
  const Plan plan_ = PlanBuilder(TinyShape(1)).Build();
  double begin_s_ = NowSeconds() + 1.0;
};

TEST_F(TraceLogTest, ARunWithoutEventsHasItsLanes) {
  const ReportFile file = File(folder_ / "t.json");
  TraceLog(file, plan_).Finish();
  std::vector<std::string> lanes;
  const Json trace = Written();
  for (const Json& event : trace["traceEvents"]) {
    if (event["name"] == "thread_name") lanes.push_back(event["args"]["name"]);
  }
  EXPECT_EQ(lanes, (std::vector<std::string>{"compute", "waiting", "disk_read", "disk_write",
                                             "cpu_to_gpu", "gpu_to_cpu"}));
  EXPECT_EQ(trace["otherData"]["dropped_events"], 0);
}

TEST_F(TraceLogTest, EventsAreNamedByWhatTheyDo) {
  const ReportFile file = File(folder_ / "t.json");
  TraceLog log(file, plan_);
  using enum TraceSubject;
  for (const TraceLabel& label : {TraceLabel{kCompute, {5, 0, 2}}, TraceLabel{kCompute, {5, 1, 2}},
                                  TraceLabel{kCompute, {5, 2, 2}}, TraceLabel{kCompute, {5, 3, 2}},
                                  TraceLabel{kWeights, {5, 2, -1}}, TraceLabel{kKv, {5, 1, 0}},
                                  TraceLabel{kHidden, {5, 3, 1}}, TraceLabel{kStores}}) {
    log.Add(Span(TraceLane::kCompute, label, 0.0, 1.5));
  }
  log.Finish();
  std::map<std::string, Json> named;
  for (const Json& span : Spans()) named[span["name"]] = span;
  for (const char* name : {"embedding, batch 2", "attention 0, batch 2", "MLP 0, batch 2",
                           "head, batch 2", "weights of layer 2", "KV of block 0, batch 0",
                           "activations of layer 3, batch 1", "stores"}) {
    EXPECT_TRUE(named.contains(name)) << name;
  }
  EXPECT_EQ(named.size(), 8U);
  EXPECT_NEAR(named["stores"]["dur"], 1500.0, 0.002);
  EXPECT_EQ(named["stores"]["args"], Json({{"bytes", 4096}}));
  EXPECT_EQ(named["weights of layer 2"]["args"],
            Json({{"pass", 5}, {"layer", 2}, {"bytes", 4096}}));
}

TEST_F(TraceLogTest, WhatOverlapsGoesToATrackOfItsOwn) {
  const ReportFile file = File(folder_ / "t.json");
  TraceLog log(file, plan_);
  const TraceLabel label = {TraceSubject::kWeights, {0, 1, -1}};
  for (const auto& [begin_ms, end_ms] : {std::pair(0.0, 2.0), {1.0, 3.0}, {2.0, 4.0}, {2.5, 5.0}}) {
    log.Add(Span(TraceLane::kDiskRead, label, begin_ms, end_ms));
  }
  log.Finish();
  std::vector<int> threads;
  for (const Json& span : Spans()) threads.push_back(span["tid"]);
  ASSERT_EQ(threads.size(), 4U);
  EXPECT_EQ(threads[2], threads[0]);
  EXPECT_EQ(std::set<int>(threads.begin(), threads.end()).size(), 3U);
}

TEST_F(TraceLogTest, EventsThatFindNoRoomAreCounted) {
  constexpr int kEvents = 300'000;
  const ReportFile file = File(folder_ / "t.json");
  {
    TraceLog log(file, plan_);
    for (int event = 0; event < kEvents; ++event) log.Add(RowSample{begin_s_, event});
  }
  const Json trace = Written();
  const int64_t written = std::ranges::count_if(
      trace["traceEvents"], [](const Json& event) { return event["ph"] == "C"; });
  const int64_t dropped = trace["otherData"]["dropped_events"];
  EXPECT_GT(dropped, 0);
  EXPECT_EQ(written + dropped, kEvents);
}

TEST_F(TraceLogTest, AFullDiskIsToldAtTheEnd) {
  const ReportFile file = File("/dev/full");
  TraceLog log(file, plan_);
  log.Add(RowSample{begin_s_, 1});
  testing::ExpectError(ErrorCode::kDiskSpace, "--trace", [&] { log.Finish(); });
}

TEST_F(TraceLogTest, AFullDiskDoesNotHideWhatEndedTheRun) {
  const ReportFile file = File("/dev/full");
  EXPECT_NO_THROW(TraceLog(file, plan_));
}

}  // namespace
}  // namespace spillway
