#include "src/report/progress_text.h"

#include <gtest/gtest.h>

#include "src/report/recent_rate.h"

namespace spillway {
namespace {

std::string LineOf(const WorkDone& done, std::optional<double> left_s, std::size_t width) {
  ExpectedWork expected;
  expected.rows = 190;
  expected.earlier_rows = 310;
  return JoinParts(
      ProgressParts({expected, done, 50.0, left_s, 130.0, 812.04, 0.0, int64_t{5} << 28}), width);
}

WorkDone InPrefill() {
  WorkDone done;
  done.rows_running = 64;
  done.prompt_tokens = 1'000;
  done.pass = {.prompt_tokens = 9'691, .layer = 6, .num_layers = 24, .cells = 7, .num_cells = 24};
  return done;
}

TEST(ProgressText, NamesThePhaseAndCountsAllRows) {
  EXPECT_EQ(LineOf(InPrefill(), 185.0, 400),
            "ETA 3 min 05 s  rows 310/500  prefill 2,827 of 9,691 tokens, layer 7 of 24  "
            "first answer in 2 min 10 s  3,827 tokens read at 812.0/s  0 new at 0.0/s  "
            "memory 1.25 GiB");
  WorkDone decode;
  decode.rows = 12;
  decode.rows_running = 64;
  decode.generated_tokens = 12'345;
  const std::string line = LineOf(decode, std::nullopt, 400);
  EXPECT_EQ(line.find("ETA unknown  rows 322/500  decode of 64 rows  elapsed 50 s  0 tokens"), 0U);
  EXPECT_EQ(line.find("first answer"), std::string::npos);
  EXPECT_NE(line.find("12,345 new"), std::string::npos);
}

TEST(ProgressText, ANarrowTerminalShowsWhatMattersMost) {
  EXPECT_EQ(LineOf(InPrefill(), 185.0, 39), "ETA 3 min 05 s  rows 310/500");
  EXPECT_EQ(LineOf(InPrefill(), 185.0, 7), "ETA 3 m");
}

TEST(ProgressText, NumbersAndDurations) {
  EXPECT_EQ(GroupedText(0), "0");
  EXPECT_EQ(GroupedText(999), "999");
  EXPECT_EQ(GroupedText(1'000), "1,000");
  EXPECT_EQ(GroupedText(12'345'678), "12,345,678");
  EXPECT_EQ(GroupedText(-1'000), "-1,000");
  EXPECT_EQ(DurationText(59.4), "59 s");
  EXPECT_EQ(DurationText(7'800.0), "2 h 10 min");
  EXPECT_EQ(DurationText(13 * 86'400.0 + 16 * 3'600.0), "13 d 16 h");
}

TEST(RecentRate, IsThatOfTheLastMinute) {
  RecentRate rate;
  EXPECT_EQ(rate.PerSecond(), 0.0);
  for (int second = 0; second <= 100; ++second) rate.See(10.0 * second, second);
  EXPECT_NEAR(rate.PerSecond(), 10.0, 1e-9);
  for (int second = 101; second <= 200; ++second) rate.See(1'000.0, second);
  EXPECT_NEAR(rate.PerSecond(), 0.0, 1e-9);
}

TEST(RecentRate, LooksThatFollowCloselyAreKeptAsOne) {
  RecentRate rate;
  for (int look = 0; look <= 1'000; ++look) rate.See(look, 0.01 * look);
  EXPECT_NEAR(rate.PerSecond(), 100.0, 1e-6);
}

}  // namespace
}  // namespace spillway
