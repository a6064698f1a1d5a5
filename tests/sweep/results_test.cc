// Results of a sweep: figures, the table, the command for charts.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "src/sweep/chart_command.h"
#include "src/sweep/results_csv.h"
#include "src/sweep/run_figures.h"
#include "src/sweep/run_point.h"

namespace spillway {
namespace {

using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;
using Json = nlohmann::ordered_json;

PointResult Ran(const std::string& kv, double tokens_per_s, Verb verb = Verb::kBench) {
  PointResult result;
  result.point = {verb, {{"model", "opt-125m"}, {"kv-policy", kv}}};
  result.file = "points/" + kv + ".json";
  result.wall_s = 1.5;
  Json kv_json = {{"policy", kv}};
  if (kv != "full") kv_json["budget"] = {{"kept", {{"frac", 0.2}}}};
  const Json none = {{"bytes", 0}};
  result.report = {
      {"model", {{"name", "opt-125m"}}},
      {"machine",
       {{"name", "a machine"}, {"memory_bytes_per_s", 1e10}, {"matmul_flops_per_s", 1e12}}},
      {"policy", {{"weight_bits", 16}, {"kv_bits", 16}, {"kv", kv_json}}},
      {"workload", {{"num_requests", 4}, {"prompt_tokens", 32}, {"generated_tokens", 16}}},
      {"time_s", {{"decode", 2.0}}},
      {"throughput", {{"generated_tokens_per_s", tokens_per_s}}},
      {"predicted", {{"generated_tokens_per_s", 1.1 * tokens_per_s}}},
      {"work", {{"decode_flops", 4e9}, {"decode_memory_bytes", 2e9}}},
      {"links",
       {{"disk_read", {{"peak_bytes_per_s", 1e9}}},
        {"cpu_to_gpu", {{"peak_bytes_per_s", nullptr}}}}},
      {"phases",
       {{"decode", {{"links", {{"disk_read", {{"bytes", 1e9}}}, {"cpu_to_gpu", none}}}}}}},
  };
  return result;
}

PointResult Refused(const std::string& message) {
  PointResult result;
  result.point = {Verb::kBench, {{"model", "opt-125m"}, {"kv-policy", "full"}}};
  result.fault = PointFault{"E-CPU-MEMORY", message, 31};
  return result;
}

std::vector<std::string> LinesOf(const std::string& text) {
  std::vector<std::string> lines;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = text.find('\n', begin);
    lines.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return lines;
}

TEST(RunFiguresTest, ComparesWithTheFastestFullKv) {
  const std::vector<PointResult> results = {Ran("full", 10.0), Ran("h2o", 30.0), Ran("full", 20.0),
                                            Refused("no room")};
  const std::vector<RunFigures> figures = FiguresOf(results, {"kv-policy"});
  EXPECT_EQ(figures[1].kv, "h2o 20 %");
  EXPECT_EQ(figures[1].name, "opt-125m, 8 + 4");
  EXPECT_DOUBLE_EQ(figures[0].speedup.value(), 0.5);
  EXPECT_DOUBLE_EQ(figures[1].speedup.value(), 1.5);
  EXPECT_FALSE(figures[3].speedup.has_value());
  const std::vector<PointResult> alone = {Ran("h2o", 30.0), Ran("full", 10.0, Verb::kSimulate)};
  EXPECT_FALSE(FiguresOf(alone, {})[0].speedup.has_value());
}

PointResult RanInBits(const std::string& kv, int weight_bits, const nlohmann::json& kv_bits,
                      double tokens_per_s) {
  PointResult result = Ran(kv, tokens_per_s);
  result.report["policy"]["weight_bits"] = weight_bits;
  result.report["policy"]["kv_bits"] = kv_bits;
  return result;
}

TEST(RunFiguresTest, ComparesWithTheMostBits) {
  const std::vector<PointResult> results = {
      RanInBits("full", 4, 16, 40.0), RanInBits("full", 16, 16, 10.0),
      RanInBits("full", 16, {8, 16}, 30.0), RanInBits("h2o", 4, 4, 80.0),
      RanInBits("h2o", 16, {8, 4}, 60.0)};
  const std::vector<RunFigures> figures = FiguresOf(results, {"kv-policy"});
  EXPECT_EQ(figures[3].kv, "h2o 20 %, 4-bit KV, 4-bit weights");
  EXPECT_EQ(figures[4].kv, "h2o 20 %, 8,4-bit KV");
  EXPECT_DOUBLE_EQ(figures[0].speedup.value(), 4.0);
  EXPECT_DOUBLE_EQ(figures[1].speedup.value(), 1.0);
  EXPECT_DOUBLE_EQ(figures[3].speedup.value(), 8.0);
  const std::vector<RunFigures> coded = FiguresOf({results[0], results[3]}, {"kv-policy"});
  EXPECT_DOUBLE_EQ(coded[1].speedup.value(), 2.0);
}

TEST(RunFiguresTest, EachScheduleIsComparedWithItself) {
  std::vector<PointResult> results = {Ran("full", 20.0, Verb::kSimulate),
                                      Ran("full", 10.0, Verb::kSimulate),
                                      Ran("h2o", 25.0, Verb::kSimulate)};
  results[1].point.settings["as-flexgen"] = results[2].point.settings["as-flexgen"] = "true";
  EXPECT_DOUBLE_EQ(FiguresOf(results, {})[2].speedup.value(), 2.5);
}

PointResult RanWith(const std::string& kv, const std::string& flag, const std::string& value,
                    double tokens_per_s) {
  PointResult result = Ran(kv, tokens_per_s);
  result.point.settings[flag] = value;
  return result;
}

TEST(RunFiguresTest, RunsUnderOtherCapsAreNotCompared) {
  const std::vector<PointResult> results = {
      RanWith("full", "cpu-memory", "1GiB", 10.0), RanWith("full", "cpu-memory", "16GiB", 40.0),
      RanWith("h2o", "cpu-memory", "1GiB", 30.0), RanWith("h2o", "cpu-memory", "4GiB", 30.0)};
  const std::vector<RunFigures> figures = FiguresOf(results, {});
  EXPECT_DOUBLE_EQ(figures[1].speedup.value(), 1.0);
  EXPECT_DOUBLE_EQ(figures[2].speedup.value(), 3.0);
  EXPECT_FALSE(figures[3].speedup.has_value());
}

// A block of another shape does not make another work, nor does a placement that full KV lacks.
TEST(RunFiguresTest, PlacementsAreComparedWithThemselvesWhereTheyCanBe) {
  const std::vector<PointResult> results = {RanWith("full", "percent", "0 100 0 100 0 100", 40.0),
                                            RanWith("full", "percent", "0 0 0 0 0 0", 10.0),
                                            RanWith("full", "gpu-batch-size", "8", 5.0),
                                            RanWith("h2o", "percent", "0 0 0 0 0 0", 30.0),
                                            RanWith("h2o", "percent", "0 50 0 100 0 100", 30.0)};
  const std::vector<RunFigures> figures = FiguresOf(results, {});
  EXPECT_DOUBLE_EQ(figures[3].speedup.value(), 3.0);
  EXPECT_DOUBLE_EQ(figures[4].speedup.value(), 0.75);
}

// Codes of a checkpoint have the bits that their bytes come to.
TEST(RunFiguresTest, PublishedCodesAreFewerBits) {
  PointResult published = Ran("full", 80.0);
  published.report["policy"].erase("weight_bits");
  published.report["model"]["num_parameters"] = 1000.0;
  published.report["model"]["weight_bytes"] = 625.0;
  const std::vector<RunFigures> figures = FiguresOf({published, Ran("full", 40.0)}, {});
  EXPECT_EQ(figures[0].kv, "full");
  EXPECT_DOUBLE_EQ(figures[0].speedup.value(), 2.0);
}

TEST(RunFiguresTest, WhatCannotRunIsNamedLikeWhatRan) {
  PointResult refused = Refused("no room");
  refused.point.settings = {{"kv-policy", "h2o"}, {"weight-bits", "8"}};
  EXPECT_EQ(FiguresOf({refused}, {})[0].kv, "h2o 20 %, 8-bit weights");
  refused.point.settings = {{"kv-policy", "window"}, {"kv-budget", "30%"}, {"kv-sinks", "4"}};
  EXPECT_EQ(FiguresOf({refused}, {})[0].kv, "window 30 % + 4");
}

TEST(RunFiguresTest, TheRoofIsTheLevelThatTakesLongest) {
  // 2 GB of memory at 10 GB/s take 0.2 s, 1 GB of disk at 1 GB/s takes 1 s.
  const RoofPoint roof = FiguresOf({Ran("full", 10.0)}, {})[0].roof.value();
  EXPECT_EQ(roof.level, "disk_read");
  EXPECT_DOUBLE_EQ(roof.flops_per_byte, 4.0);
  EXPECT_DOUBLE_EQ(roof.flops_per_s, 2e9);
  EXPECT_DOUBLE_EQ(roof.level_bytes_per_s, 1e9);
  PointResult unknown = Ran("full", 10.0);
  unknown.report["machine"]["matmul_flops_per_s"] = nullptr;
  EXPECT_FALSE(FiguresOf({unknown}, {})[0].roof.has_value());
}

TEST(RunFiguresTest, AReportThatLacksEverythingIsNoFault) {
  PointResult result = Ran("full", 1.0);
  result.report = {{"throughput", 3}};
  const std::vector<RunFigures> figures = FiguresOf({result}, {});
  EXPECT_FALSE(figures[0].speedup.has_value());
  EXPECT_FALSE(figures[0].roof.has_value());
  EXPECT_THAT(ResultsCsv({result}, figures, {"kv-policy"}), HasSubstr("1,measured,bench,"));
}

TEST(ResultsCsvTest, QuotesWhatWouldNotBeReadBack) {
  PointResult odd = Refused("\"quoted\", with a comma\nand a line");
  odd.point.settings["model"] = " spaced";
  const std::vector<PointResult> results = {Ran("h2o", 12.5), odd};
  const std::vector<std::string> flags = {"model", "kv-policy"};
  const std::string csv = ResultsCsv(results, FiguresOf(results, flags), flags);
  const std::vector<std::string> lines = LinesOf(csv);
  EXPECT_THAT(lines[0],
              HasSubstr("point,status,verb,name,kv,model,kv-policy,generated_tokens_per_s"));
  EXPECT_THAT(lines[1], HasSubstr("1,measured,bench,"));
  EXPECT_THAT(lines[1], HasSubstr(",opt-125m,h2o,12.5,"));
  EXPECT_THAT(csv, HasSubstr("E-CPU-MEMORY,\"\"\"quoted\"\", with a comma\nand a line\""));
  EXPECT_THAT(csv, HasSubstr(",\" spaced\",full,"));
  EXPECT_THAT(csv, HasSubstr("2,refused,"));
}

TEST(PointCommandTest, IsWhatACommandLineWouldSay) {
  const SweepPoint point = {
      Verb::kBench,
      {{"no-overlap", "false"}, {"percent", "0 100 0 100 0 100"}, {"prompt-len", "8"}}};
  EXPECT_THAT(PointCommand(point),
              ElementsAre("spillway", "bench", "--no-overlap=false", "--percent", "0", "100", "0",
                          "100", "0", "100", "--prompt-len=8"));
}

TEST(ChartCommandTest, QuotesTheFolder) {
  const std::string command = ChartCommand("-out put");
  EXPECT_THAT(command, StartsWith("python3 "));
  EXPECT_THAT(command, EndsWith("scripts/plot_sweep.py './-out put'"));
}

}  // namespace
}  // namespace spillway
