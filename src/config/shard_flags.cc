#include "src/config/shard_flags.h"

#include <fmt/format.h>

#include <array>
#include <cstdlib>
#include <optional>
#include <string>
#include <string_view>

#include "spillway/error.h"
#include "src/base/part_number.h"
#include "src/config/flag_kinds.h"

namespace spillway {
namespace {

// The five digits of a file's name.
constexpr int64_t kMaxShards = 99999;

void SetShard(Config& config, const std::string& text) {
  config.shard_by_scheduler = text == "auto";
  if (config.shard_by_scheduler) return;
  const std::size_t slash = text.find('/');
  if (slash == std::string::npos) {
    throw Error(ErrorCode::kFlag,
                fmt::format("--shard {}: expected K/N, as 3/8, or auto", Printable(text)));
  }
  Shard shard;
  shard.count = ParseInteger("shard", text.substr(slash + 1), 1, kMaxShards);
  shard.index = ParseInteger("shard", text.substr(0, slash), 0, shard.count);
  config.shard = shard;
}

// A number that a scheduler gives; nullopt where the variable is not set. An empty name is none.
std::optional<int64_t> NumberIn(const std::string& variable) {
  const char* text = variable.empty() ? nullptr : std::getenv(variable.c_str());
  if (text == nullptr || *text == '\0') return std::nullopt;
  constexpr int64_t kMost = int64_t{1} << 40;
  try {
    return ParseInteger("shard", text, 0, kMost);
  } catch (const Error&) {
    throw Error(ErrorCode::kFlag, fmt::format("--shard auto: {} is \"{}\", which is no number",
                                              variable, Printable(text, 40)));
  }
}

[[noreturn]] void RefuseHalf(std::string_view set, std::string_view missing) {
  throw Error(ErrorCode::kFlag,
              fmt::format("--shard auto: {} is set and {} is not, so that only half is known; give "
                          "--shard K/N",
                          set, missing));
}

// Variables of one kind of scheduler: which task this is, from 0, and of how many.
struct TaskVariables {
  const char* index;
  const char* count;  // empty: --shard-count says it
};
constexpr std::array kSchedulers = {
    TaskVariables{"SLURM_ARRAY_TASK_ID", "SLURM_ARRAY_TASK_COUNT"},
    TaskVariables{"JOB_COMPLETION_INDEX", ""},
    TaskVariables{"SKYPILOT_NODE_RANK", "SKYPILOT_NUM_NODES"},
    TaskVariables{"RANK", "WORLD_SIZE"},
    TaskVariables{"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
    TaskVariables{"SLURM_PROCID", "SLURM_NTASKS"},
};

// Number of a Slurm array's task from 0. Arrays begin anywhere and may have a step; one with gaps,
// as --array=3,7 of tasks to repeat, does not say which of the job's tasks these are.
int64_t PlaceInArray(int64_t id, int64_t count) {
  const int64_t min = NumberIn("SLURM_ARRAY_TASK_MIN").value_or(id < count ? 0 : 1);
  const int64_t step = NumberIn("SLURM_ARRAY_TASK_STEP").value_or(1);
  const std::optional<int64_t> max = NumberIn("SLURM_ARRAY_TASK_MAX");
  const bool has_gaps = step < 1 || (max && *max - min != (count - 1) * step);
  if (!has_gaps && id >= min && (id - min) % step == 0 && (id - min) / step < count)
    return (id - min) / step;
  throw Error(
      ErrorCode::kFlag,
      fmt::format("--shard auto: task {} of {} in a Slurm array that has gaps; give --shard "
                  "$SLURM_ARRAY_TASK_ID/N with the whole job's N",
                  id, count));
}

int64_t CountFor(const TaskVariables& task, const Config& config) {
  const std::optional<int64_t> told = NumberIn(task.count);
  if (!told && *task.count != '\0') RefuseHalf(task.index, task.count);
  if (!told && !config.shard_count) RefuseHalf(task.index, "--shard-count");
  const int64_t count = told ? *told : *config.shard_count;
  if (told && config.shard_count && *config.shard_count != count) {
    throw Error(ErrorCode::kFlag, fmt::format("--shard-count {}: {} is {}; leave one of them out",
                                              *config.shard_count, task.count, count));
  }
  return count;
}

std::optional<Shard> ShardOf(const TaskVariables& task, const Config& config) {
  const std::optional<int64_t> index = NumberIn(task.index);
  if (!index && NumberIn(task.count)) RefuseHalf(task.count, task.index);
  if (!index) return std::nullopt;
  Shard shard = {*index, CountFor(task, config)};
  if (shard.count < 1 || shard.count > kMaxShards) {
    throw Error(ErrorCode::kFlag,
                fmt::format("--shard auto: {} shards; 1 to {} can be", shard.count, kMaxShards));
  }
  if (task.index == std::string_view("SLURM_ARRAY_TASK_ID"))
    shard.index = PlaceInArray(shard.index, shard.count);
  if (shard.index < shard.count) return shard;
  throw Error(ErrorCode::kFlag, fmt::format("--shard auto: {} is {}, and there are {} shards",
                                            task.index, shard.index, shard.count));
}

Shard ShardByScheduler(const Config& config) {
  for (const TaskVariables& task : kSchedulers) {
    if (const std::optional<Shard> shard = ShardOf(task, config)) return *shard;
  }
  throw Error(
      ErrorCode::kFlag,
      "--shard auto: no scheduler's variables are set (SLURM_ARRAY_TASK_ID, "
      "JOB_COMPLETION_INDEX, SKYPILOT_NODE_RANK, RANK, OMPI_COMM_WORLD_RANK, SLURM_PROCID); "
      "give --shard K/N");
}

// "out.jsonl" -> "out-00007-of-00032.jsonl". Streams and devices keep their names.
void NameForShard(const Shard& shard, std::filesystem::path& path) {
  if (path.empty() || path == "-" || path.parent_path() == "/dev") return;
  path = NumberedPart(path, shard.index, shard.count);
}

}  // namespace

std::vector<Flag> ShardFlags() {
  return {
      Value("shard", "K/N|auto",
            "answer the lines of one of N shards, into OUT-0000K-of-0000N.jsonl; auto: as the "
            "scheduler's variables say",
            SetShard),
      Integer("shard-count", "shards, where --shard auto finds only which of them this is",
              &Config::shard_count, 1, kMaxShards),
  };
}

void ResolveShard(Config& config) {
  if (config.shard_by_scheduler) config.shard = ShardByScheduler(config);
  if (!config.shard_by_scheduler && config.shard_count)
    throw Error(ErrorCode::kFlag, "--shard-count: belongs to --shard auto");
  if (!config.shard || PlansOnly(config.verb)) return;
  for (std::filesystem::path* path : {&config.output, &config.report, &config.trace})
    NameForShard(*config.shard, *path);
}

}  // namespace spillway
