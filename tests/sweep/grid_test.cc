#include "src/sweep/grid.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "spillway/error.h"

namespace spillway {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;
using ::testing::StartsWith;

Grid Parse(const std::string& text, std::optional<Verb> verb = std::nullopt) {
  return ParseGrid("g.toml", text, verb);
}

// Files are looked for in the working folder, then in the grid's own and those above it.
TEST(GridTest, FilesAreFoundFromTheGrid) {
  const std::string root = SPILLWAY_SOURCE_DIR;
  const std::string text = "verb = \"simulate\"\nmachine = \"examples/machines/t4.json\"\n";
  const Grid grid = ParseGrid(root + "/examples/sweeps/g.toml", text, std::nullopt);
  EXPECT_EQ(grid.points.at(0).Setting("machine", ""), root + "/examples/machines/t4.json");
  EXPECT_THROW(ParseGrid("/nowhere/g.toml", text, std::nullopt), Error);
}

std::vector<std::string> LabelsOf(const Grid& grid) {
  std::vector<std::string> labels;
  for (const SweepPoint& point : grid.points) labels.push_back(PointLabel(point, grid.flags));
  return labels;
}

std::string RefusalOf(const std::string& text, ErrorCode code = ErrorCode::kFlag) {
  try {
    Parse(text);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    return error.what();
  }
  return "accepted";
}

TEST(GridTest, ListsMultiplyInTheOrderOfTheFile) {
  const Grid grid = Parse(
      "title = \"T\"\nmodel = \"opt-125m\"\nprompt-len = [8, 16]\n"
      "gen-len = [2, 4, 6]\n");
  EXPECT_THAT(
      LabelsOf(grid),
      ElementsAre("model=opt-125m prompt-len=8 gen-len=2", "model=opt-125m prompt-len=8 gen-len=4",
                  "model=opt-125m prompt-len=8 gen-len=6", "model=opt-125m prompt-len=16 gen-len=2",
                  "model=opt-125m prompt-len=16 gen-len=4",
                  "model=opt-125m prompt-len=16 gen-len=6"));
  EXPECT_THAT(VariedFlags(grid), ElementsAre("prompt-len", "gen-len"));
  EXPECT_EQ(grid.points.front().verb, Verb::kBench);
  EXPECT_EQ(Parse("gen-len = [4, 2]\nprompt-len = 9").points.front().settings.at("gen-len"), "4");
}

TEST(GridTest, GroupsGoOverTheTop) {
  const Grid grid = Parse(R"(
gen-len = 32
threads = 1
[[group]]
gen-len = 512
gpu-batch-size = [8, 4]
[[group]]
gpu-batch-size = 48
)");
  EXPECT_THAT(LabelsOf(grid), ElementsAre("threads=1 gen-len=512 gpu-batch-size=8",
                                          "threads=1 gen-len=512 gpu-batch-size=4",
                                          "threads=1 gen-len=32 gpu-batch-size=48"));
}

TEST(GridTest, AVerbsKeysCountForItAlone) {
  const std::string text = R"(
verb = "simulate"
gen-len = 4
[bench]
threads = 2
[simulate]
as-flexgen = [true, false]
[[group]]
prompt-len = 9
bench.gen-len = 8
)";
  const Grid simulated = Parse(text);
  EXPECT_THAT(LabelsOf(simulated), ElementsAre("gen-len=4 as-flexgen=true prompt-len=9",
                                               "gen-len=4 as-flexgen=false prompt-len=9"));
  EXPECT_EQ(simulated.points.front().verb, Verb::kSimulate);
  EXPECT_THAT(LabelsOf(Parse(text, Verb::kBench)), ElementsAre("threads=2 prompt-len=9 gen-len=8"));
}

TEST(GridTest, AValueOfSeveralWordsIsAList) {
  const Grid one = Parse("percent = [20, 80, 0, 100, 0, 100]");
  EXPECT_THAT(LabelsOf(one), ElementsAre("percent=20 80 0 100 0 100"));
  const Grid two = Parse("percent = [[0, 100, 0, 100, 0, 100], \"0 50 0 100 0 100\"]");
  EXPECT_THAT(LabelsOf(two), ElementsAre("percent=0 100 0 100 0 100", "percent=0 50 0 100 0 100"));
}

TEST(GridTest, RefusesWithLineAndColumn) {
  const std::vector<std::pair<const char*, const char*>> cases = {
      {"gen-len = 4\ngen-lenn = 5",
       "g.toml:2:1: gen-lenn: bench has no such flag; did you mean "
       "gen-len?"},
      {"gen-len = [4, 5, 4]", "g.toml:1:18: gen-len: 4 is given twice"},
      {"gen-len = [4, 0]", "g.toml:1:15: --gen-len 0: expected"},
      {"gen-len = [4, 5.5]", "g.toml:1:15: --gen-len 5.5: expected"},
      {"gen-len = [[4]]", "g.toml:1:12: gen-len: expected"},
      {"gen-len = 2026-11-21", "g.toml:1:11: gen-len: expected"},
      {"gen-len = []", "g.toml:1:11: gen-len: a list without values"},
      {"  gen-len = {a = 1}", "g.toml:1:13: gen-len: expected"},
      {"gen-len = 4\ngen-len = 5", "g.toml:2:"},
      {"gen-len = ", "g.toml:1:"},
      {"title = \"\xEF\xB3\xBF\" # \xEF\xB3\xBF\n\xEF\xB3\xBFgen-len = 4",
       "g.toml:2:1: a character beyond ASCII outside of quotes"},
      {"title = '\\'\ntitel = \"\"\"\n\\\"\xC3\xA9\"\"\"\n\xC3\xA9 = 4",
       "g.toml:4:1: a character beyond"},
      {"title = \"open\ngen-l\xC3\xA9n = 4", "g.toml:2:6: a character beyond"},
      {"", "an empty grid"},
      {"verb = \"bench\"\ntitle = \"t\"", "an empty grid"},
      {"verb = \"generate\"\ngen-len = 4", "g.toml:1:8: verb: expected"},
      {"verb = 3\ngen-len = 4", "g.toml:1:8: verb: expected"},
      {"title = 3\ngen-len = 4", "g.toml:1:9: title"},
      {"gen-len = 4\nreport = \"r.json\"", "g.toml:2:1: report: the sweep sets it"},
      {"group = []\ngen-len = 4", "g.toml:1:9: group"},
      {"[group]\ngen-len = 4", "group: write each group"},
      {"[[group]]\nverb = \"bench\"", "g.toml:2:1: belongs to the top"},
      {"bench = 3\ngen-len = 4", "g.toml:1:9: expected a table"},
      {"as-flexgen = true", "as-flexgen: bench has no such flag"},
      {"gen-len = 4\n[simulate]\nas-flexgenn = true", "g.toml:3:1: as-flexgenn: simulate has"},
      {"no-overlap = 3", "g.toml:1:14: --no-overlap 3"},
      {"percent = [1, 2]", "--percent 1 2: expected six"},
      {"gen-len = 4\n[[group]]\nthreads = [1, 2]\n[[group]]\nthreads = 2",
       "g.toml:4:1: repeats a point of an earlier group: gen-len=4 threads=2"},
  };
  for (const auto& [text, part] : cases) EXPECT_THAT(RefusalOf(text), HasSubstr(part)) << text;
  EXPECT_THAT(RefusalOf("machine = \"/nonexistent.json\"", ErrorCode::kMachine),
              StartsWith("g.toml:1:11: "));
}

TEST(GridTest, RefusesMorePointsThanAnybodyWaitsFor) {
  std::string values = "1";
  for (int value = 2; value <= 120; ++value) values += ", " + std::to_string(value);
  EXPECT_THAT(Parse("prompt-len = [" + values + "]").points, SizeIs(120));
  EXPECT_THAT(RefusalOf("prompt-len = [" + values + "]\ngen-len = [" + values + "]"),
              HasSubstr("more than 10000 points"));
}

}  // namespace
}  // namespace spillway
