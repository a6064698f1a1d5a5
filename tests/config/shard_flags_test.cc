#include "src/config/shard_flags.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <string>
#include <vector>

#include "spillway/error.h"

namespace spillway {
namespace {

using ::testing::HasSubstr;
using Variables = std::map<std::string, std::string>;

// A scheduler's variables, for one test. What runs the tests may set some itself.
class Scheduler {
 public:
  explicit Scheduler(const Variables& variables) {
    for (const char* name :
         {"SLURM_ARRAY_TASK_ID", "SLURM_ARRAY_TASK_COUNT", "SLURM_ARRAY_TASK_MIN",
          "SLURM_ARRAY_TASK_MAX", "SLURM_ARRAY_TASK_STEP", "JOB_COMPLETION_INDEX",
          "SKYPILOT_NODE_RANK", "SKYPILOT_NUM_NODES", "RANK", "WORLD_SIZE", "OMPI_COMM_WORLD_RANK",
          "OMPI_COMM_WORLD_SIZE", "SLURM_PROCID", "SLURM_NTASKS"})
      ::unsetenv(name);
    for (const auto& [name, value] : variables) ::setenv(name.c_str(), value.c_str(), 1);
  }
};

Config Parse(const std::vector<const char*>& flags) {
  std::vector<const char*> words = {"spillway", "generate", "--input", "in.jsonl"};
  words.insert(words.end(), flags.begin(), flags.end());
  return std::get<Config>(ParseConfig(static_cast<int>(words.size()), words.data()));
}

// "3/8"
std::string AutoShard(const Variables& variables, std::vector<const char*> flags = {}) {
  const Scheduler scheduler(variables);
  flags.insert(flags.end(), {"--shard", "auto"});
  const Shard shard = *Parse(flags).shard;
  return std::to_string(shard.index) + "/" + std::to_string(shard.count);
}

std::string Refusal(const Variables& variables, std::vector<const char*> flags = {}) {
  try {
    return AutoShard(variables, std::move(flags));
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kFlag);
    return error.what();
  }
}

TEST(ShardFlags, FilesGetTheShardsName) {
  const Config config =
      Parse({"--output", "a/out.jsonl", "--report", "r.json", "--trace", "t", "--shard", "7/32"});
  EXPECT_EQ(config.output, "a/out-00007-of-00032.jsonl");
  EXPECT_EQ(config.report, "r-00007-of-00032.json");
  EXPECT_EQ(config.trace, "t-00007-of-00032");
  EXPECT_EQ(Parse({"--shard", "7/32"}).output, "-");
  EXPECT_EQ(Parse({"--shard", "7/32", "--output", "/dev/null"}).output, "/dev/null");
}

TEST(ShardFlags, ShardsCountFromZeroOrOne) {
  const Shard last = *Parse({"--shard", "4/4"}).shard;
  EXPECT_TRUE(last.Has(4) && last.Has(8));
  EXPECT_FALSE(last.Has(1));
  EXPECT_EQ(last.remainder(), Parse({"--shard", "0/4"}).shard->remainder());
  for (const char* text : {"5/4", "-1/4", "1", "1/0", "a/b", "1/100000", "", "auto/3"})
    EXPECT_THROW(Parse({"--shard", text}), Error) << text;
}

TEST(ShardFlags, EachSchedulerIsUnderstood) {
  EXPECT_EQ(AutoShard({{"SLURM_ARRAY_TASK_ID", "7"}, {"SLURM_ARRAY_TASK_COUNT", "8"}}), "7/8");
  EXPECT_EQ(AutoShard({{"SLURM_ARRAY_TASK_ID", "8"}, {"SLURM_ARRAY_TASK_COUNT", "8"}}), "7/8");
  EXPECT_EQ(AutoShard({{"SLURM_ARRAY_TASK_ID", "14"},
                       {"SLURM_ARRAY_TASK_COUNT", "3"},
                       {"SLURM_ARRAY_TASK_MIN", "10"},
                       {"SLURM_ARRAY_TASK_MAX", "14"},
                       {"SLURM_ARRAY_TASK_STEP", "2"}}),
            "2/3");
  EXPECT_EQ(AutoShard({{"JOB_COMPLETION_INDEX", "3"}}, {"--shard-count", "5"}), "3/5");
  EXPECT_EQ(AutoShard({{"SKYPILOT_NODE_RANK", "1"}, {"SKYPILOT_NUM_NODES", "2"}}), "1/2");
  EXPECT_EQ(AutoShard({{"RANK", "1"}, {"WORLD_SIZE", "2"}}), "1/2");
  EXPECT_EQ(AutoShard({{"OMPI_COMM_WORLD_RANK", "0"}, {"OMPI_COMM_WORLD_SIZE", "2"}}), "0/2");
  EXPECT_EQ(AutoShard({{"SLURM_PROCID", "1"}, {"SLURM_NTASKS", "2"}}), "1/2");
  // An array of one-task jobs.
  EXPECT_EQ(AutoShard({{"SLURM_ARRAY_TASK_ID", "1"},
                       {"SLURM_ARRAY_TASK_COUNT", "2"},
                       {"SLURM_ARRAY_TASK_MIN", "0"},
                       {"SLURM_PROCID", "0"},
                       {"SLURM_NTASKS", "1"}}),
            "1/2");
}

TEST(ShardFlags, WhatIsHalfKnownIsRefused) {
  EXPECT_THAT(Refusal({}), HasSubstr("no scheduler's variables are set"));
  EXPECT_THAT(Refusal({{"SLURM_ARRAY_TASK_ID", "3"}}), HasSubstr("SLURM_ARRAY_TASK_COUNT is not"));
  EXPECT_THAT(Refusal({{"SLURM_ARRAY_TASK_COUNT", "3"}}), HasSubstr("SLURM_ARRAY_TASK_ID is not"));
  EXPECT_THAT(Refusal({{"JOB_COMPLETION_INDEX", "3"}}), HasSubstr("--shard-count is not"));
  EXPECT_THAT(Refusal({{"RANK", "1"}}), HasSubstr("WORLD_SIZE is not"));
  EXPECT_THAT(Refusal({{"WORLD_SIZE", "2"}}), HasSubstr("RANK is not"));
  EXPECT_THAT(Refusal({{"RANK", "x"}, {"WORLD_SIZE", "2"}}), HasSubstr("is no number"));
  EXPECT_THAT(Refusal({{"RANK", "2"}, {"WORLD_SIZE", "2"}}), HasSubstr("there are 2 shards"));
  EXPECT_THAT(Refusal({{"RANK", "1"}, {"WORLD_SIZE", "2"}}, {"--shard-count", "3"}),
              HasSubstr("WORLD_SIZE is 2"));
  EXPECT_THAT(Refusal({{"SLURM_ARRAY_TASK_ID", "3"},
                       {"SLURM_ARRAY_TASK_COUNT", "2"},
                       {"SLURM_ARRAY_TASK_MIN", "3"},
                       {"SLURM_ARRAY_TASK_MAX", "7"}}),
              HasSubstr("has gaps"));
  EXPECT_THROW(Parse({"--shard", "1/2", "--shard-count", "2"}), Error);
}

}  // namespace
}  // namespace spillway
