#include "src/config/verb_checks.h"

#include <fmt/format.h>

#include <array>
#include <string_view>

#include "spillway/error.h"
#include "src/base/isa.h"  // ComputeOf
#include "src/config/kv_flags.h"
#include "src/config/shard_flags.h"

namespace spillway {
namespace {

// Rates of another arithmetic would not predict the run. What only plans takes the file's.
void CheckMachine(const Config& config) {
  if (!config.machine || PlansOnly(config.verb)) return;
  const CpuCompute of = kernels::ComputeOf(config.machine->isa);
  if (of == config.cpu_compute) return;
  const std::string_view name = CpuComputeName(config.cpu_compute);
  throw Error(ErrorCode::kFlag,
              fmt::format("--cpu-compute {}: the rates of --machine are of products in {}; give "
                          "what profile --cpu-compute {} writes, or leave --machine out",
                          name, CpuComputeName(of), name));
}

// Of verbs that answer the lines of a file.
void CheckOutput(const Config& config) {
  if (config.output.empty())
    throw Error(ErrorCode::kFlag, "--output: empty; give a file, or - for standard output");
  const bool resumes = config.resume.value_or(false);
  if (resumes && config.overwrite)
    throw Error(ErrorCode::kFlag, "--resume and --overwrite: one keeps what the other replaces");
  if (resumes && config.output == "-") {
    throw Error(ErrorCode::kFlag,
                "--resume: standard output is nothing to go on with; give the run's --output");
  }
}

// Flags that a stream has no use for, and why.
struct RefusedFlag {
  const char* name;
  std::string_view reason;
};
constexpr std::string_view kNothingIsKept = "a stream keeps nothing to go on with or to replace";
constexpr std::string_view kManyPlans = "tells of one plan, and a stream has one for each batch";
constexpr std::array kRefusedOfStreams = {
    RefusedFlag{"overwrite", kNothingIsKept},
    RefusedFlag{"resume", kNothingIsKept},
    RefusedFlag{"no-resume", kNothingIsKept},
    RefusedFlag{"shard", "whoever writes to a stream chooses its lines"},
    RefusedFlag{"report", kManyPlans},
    RefusedFlag{"trace", kManyPlans},
    RefusedFlag{"shadow", "takes a sample of all rows, which a stream does not know"},
    RefusedFlag{"perplexity", "is of one text"},
};

void CheckStream(Config& config, const Stated& stated) {
  if (!config.stream) {
    if (stated.Has("pause-ms")) throw Error(ErrorCode::kFlag, "--pause-ms: belongs to --stream");
    return;
  }
  if (config.input.empty()) config.input = "-";
  if (config.input != "-") {
    throw Error(ErrorCode::kFlag,
                "--stream: reads standard input, so that --input is -; without --stream a file is "
                "read");
  }
  if (config.output != "-") {
    throw Error(ErrorCode::kFlag,
                "--stream: writes to standard output, so that --output is -; redirect it");
  }
  for (const RefusedFlag& flag : kRefusedOfStreams) {
    if (!stated.Has(flag.name)) continue;
    throw Error(ErrorCode::kFlag, fmt::format("--{} with --stream: {}; leave one of the two out",
                                              flag.name, flag.reason));
  }
}

// Prompts to outputs, line by line.
void CheckPrompts(const Config& config) {
  if (config.input.empty())
    throw Error(ErrorCode::kFlag, "--input: give the file of prompts (- is standard input)");
  CheckOutput(config);
}

void CheckGenerate(const Config& config) {
  CheckPrompts(config);
  if (config.sampling.choices.empty() && config.sampling.min_tokens > config.sampling.max_tokens) {
    throw Error(ErrorCode::kFlag,
                fmt::format("--min-new-tokens {} is more than --max-new-tokens {}",
                            config.sampling.min_tokens, config.sampling.max_tokens));
  }
}

// Lines of a file, or one text in windows.
void CheckScore(const Config& config, const Stated& stated) {
  const bool lines = config.perplexity.empty();
  if (lines == config.input.empty()) {
    throw Error(ErrorCode::kFlag,
                lines
                    ? "--input: give the file of texts (- is standard input), or --perplexity FILE"
                    : "--perplexity: takes the place of --input; leave one of the two out");
  }
  if (lines) CheckOutput(config);
  for (const char* name : {"window", "stride", "start-each-window"}) {
    if (lines && stated.Has(name))
      throw Error(ErrorCode::kFlag, fmt::format("--{}: belongs to --perplexity", name));
  }
  for (const char* name : {"output", "overwrite", "resume", "no-resume", "shard", "chat-template",
                           "system", "chat-date", "strict", "allow-duplicate-ids"}) {
    if (!lines && stated.Has(name))
      throw Error(ErrorCode::kFlag, fmt::format("--{}: belongs to --input", name));
  }
}

void CheckCalibrate(Config& config, const Stated& stated) {
  if (config.perplexity.empty() && config.input.empty()) {
    throw Error(
        ErrorCode::kFlag,
        "--text: give the file of text to calibrate on, or the prompts of a job as --input");
  }
  if (!config.perplexity.empty() && !config.input.empty())
    throw Error(ErrorCode::kFlag, "--text, --input: one of them is measured on; leave one out");
  if (config.kv_budget || config.kv_heavy || config.kv_recent)
    throw Error(ErrorCode::kFlag, "--kv-budget: calibrate finds the budgets; leave it out");
  if (config.policy && config.policy->kv)
    throw Error(ErrorCode::kFlag,
                "--policy: has a KV policy, and calibrate finds one; leave it out");
  if (config.kv_policy == KvPolicyKind::kFull)
    throw Error(ErrorCode::kFlag, "--kv-policy full: keeps every token; give h2o or window");
  if (!config.kv.evicts()) config.kv.kind = KvPolicyKind::kH2o;
  const bool h2o = config.kv.kind == KvPolicyKind::kH2o;
  if (!config.budgets_per) config.budgets_per = h2o ? BudgetsPer::kHead : BudgetsPer::kLayer;
  const bool per_head = config.budgets_per == BudgetsPer::kHead;
  if (per_head && !h2o) {
    throw Error(ErrorCode::kFlag,
                "--per head: KV heads have budgets of their own with --kv-policy h2o only");
  }
  if (config.kv_bytes_frac && !per_head)
    throw Error(ErrorCode::kFlag,
                fmt::format("--kv-bytes: belongs to budgets per KV head, which {}; give --max-loss",
                            h2o ? "--per layer is not" : "--kv-policy h2o has"));
  if (config.pareto && !per_head)
    throw Error(ErrorCode::kFlag, "--pareto: belongs to budgets per KV head");
  for (const char* name : {"kv-bytes", "kv-bits", "kv-dtype"}) {
    if (!config.pareto || !stated.Has(name)) continue;
    throw Error(ErrorCode::kFlag,
                fmt::format("--{}: --pareto measures several; leave one of the two out", name));
  }
  if (config.kv_bytes_frac && stated.Has("max-loss")) {
    throw Error(ErrorCode::kFlag,
                "--kv-bytes, --max-loss: one of them says how much is kept; leave one out");
  }
}

// Flags may repeat what the file of --machine says, as in the command of the run that is planned.
void CheckPlannedMachine(const Config& config, const Stated& stated, const Machine& machine) {
  const auto refuse = [](std::string_view flag, const std::string& has) {
    throw Error(ErrorCode::kFlag,
                fmt::format("--{}: the machine of --machine {}; leave it out", flag, has));
  };
  const CpuCompute of = kernels::ComputeOf(machine.isa);
  if (stated.Has("cpu-compute") && of != config.cpu_compute)
    refuse("cpu-compute", fmt::format("multiplies in {}", CpuComputeName(of)));
  if (config.num_threads > 0 && config.num_threads != machine.num_threads)
    refuse("threads", fmt::format("has {} threads", machine.num_threads));
  const DeviceKind other = machine.has_gpu() ? DeviceKind::kCpu : DeviceKind::kCuda;
  if (config.device.kind == other) refuse("device", machine.has_gpu() ? "has a GPU" : "has no GPU");
}

// The lengths come from --input or from the flags, never from both.
void CheckPlan(Config& config, const Stated& stated) {
  if (config.machine) CheckPlannedMachine(config, stated, *config.machine);
  if (config.input.empty()) {
    config.tokenizer = "none";
    if (stated.Has("shard")) throw Error(ErrorCode::kFlag, "--shard: belongs to --input");
    if (!stated.Has("max-new-tokens")) return;
    throw Error(ErrorCode::kFlag,
                "--max-new-tokens: belongs to --input; without one give --gen-len");
  }
  for (const char* name : {"prompt-len", "prefix-len", "gen-len", "num-requests"}) {
    if (!stated.Has(name)) continue;
    throw Error(ErrorCode::kFlag,
                fmt::format("--{}: the lengths come from --input; leave one of the two out", name));
  }
}

void CheckSweep(Config& config, const Stated& stated) {
  if (stated.word.empty())
    throw Error(ErrorCode::kFlag, "sweep: give the TOML file that says what to run");
  if (config.output.empty() || config.output == "-")
    throw Error(ErrorCode::kFlag, "--output: give the folder for the results");
  config.grid = stated.word;
}

void CheckConvert(const Config& config) {
  if (config.output.empty() || config.output == "-")
    throw Error(ErrorCode::kFlag, "--output: give a name for the folder of the store");
}

void CheckMerge(Config& config, const Stated& stated) {
  if (stated.words.empty())
    throw Error(ErrorCode::kFlag, "merge: give the outputs of all shards, OUT-*-of-0000N.jsonl");
  if (config.output.empty())
    throw Error(ErrorCode::kFlag, "--output: give the file for the whole output, or -");
  config.shard_files.assign(stated.words.begin(), stated.words.end());
}

void CheckInspect(Config& config, const Stated& stated) {
  if (config.shapes && !stated.word.empty())
    throw Error(ErrorCode::kFlag, "--shapes: lists the built-in shapes; leave the path out");
  if (!config.shapes && stated.word.empty())
    throw Error(ErrorCode::kFlag, "inspect: give the folder or file to print, or --shapes");
  config.inspect_path = stated.word;
}

}  // namespace

void CheckVerb(Config& config, const Stated& stated) {
  CheckMachine(config);
  CheckStream(config, stated);
  ResolveShard(config);
  switch (config.verb) {
    case Verb::kGenerate:
      return CheckGenerate(config);
    case Verb::kScore:
      return CheckScore(config, stated);
    case Verb::kBench:
      return;
    case Verb::kSearch:
      CheckKvBudgets(config);
      CheckCalibration(config, stated);
      return CheckPlan(config, stated);
    case Verb::kPlan:
    case Verb::kSimulate:
      return CheckPlan(config, stated);
    case Verb::kCalibrate:
      return CheckCalibrate(config, stated);
    case Verb::kProfile:
      return;
    case Verb::kConvert:
      return CheckConvert(config);
    case Verb::kMerge:
      return CheckMerge(config, stated);
    case Verb::kTokenize:
      return CheckPrompts(config);
    case Verb::kInspect:
      return CheckInspect(config, stated);
    case Verb::kSweep:
      return CheckSweep(config, stated);
  }
}

}  // namespace spillway
