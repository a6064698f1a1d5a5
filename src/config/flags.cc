#include "src/config/flags.h"

#include <fmt/format.h>

#include "spillway/error.h"
#include "src/config/chat_flags.h"
#include "src/config/flag_kinds.h"
#include "src/config/kv_flags.h"
#include "src/config/run_flags.h"
#include "src/config/shard_flags.h"
#include "src/config/work_flags.h"

namespace spillway {
namespace {

std::vector<Flag> PolicyOutputFlags() {
  return {
      Value("output", "FILE", "write the best policy here, over what is there", &Config::output),
  };
}

std::vector<Flag> SimulateFlags() {
  return {
      Switch("as-flexgen", "FlexGen's schedule and the machine file's effective rates of it",
             &Config::as_flexgen),
  };
}

void SetRunVerb(Config& config, const std::string& text) {
  config.run_verb = SweptVerb(text);
  if (config.run_verb) return;
  throw Error(ErrorCode::kFlag,
              fmt::format("--verb {}: expected bench or simulate", Printable(text)));
}

std::vector<Flag> SweepFlags() {
  return {
      Value("output", "DIR", "folder for the results; a sweep that was cut short goes on there",
            &Config::output),
      Value("verb", "bench|simulate", "what each point is (as the grid says, or bench)",
            SetRunVerb),
  };
}

std::vector<Flag> SearchFlags() {
  return {
      KvBudgetsFlag(),
      Switch("allow-4bit",
             "try weights and KV in fewer bits too: faster where links or memory are short, less "
             "accurate",
             &Config::allow_4bit),
  };
}

std::vector<Flag> MergeFlags() {
  return {
      Value("output", "FILE", "the whole output", &Config::output),
      Value("input", "FILE",
            "the job's input: the output is then checked line by line; needed for scores",
            &Config::input),
      Value("report", "FILE",
            "write the sum of the shards' reports, FILE-0000K-of-0000N.json where they are there",
            &Config::report),
      Switch("overwrite", "replace an existing output", &Config::overwrite),
  };
}

std::vector<Flag> InspectFlags() {
  return {
      Switch("shapes", "list the built-in shapes and their sizes, in place of a path",
             &Config::shapes),
  };
}

}  // namespace

std::vector<Flag> FlagsOf(Verb verb) {
  switch (verb) {
    case Verb::kGenerate:
      return Joined({InputFlags(), ChatFlags(), ChatAnswerFlags(), OutputFlags("completions"),
                     ShardFlags(), StopFlags(), StreamFlags(), SamplingFlags(), ModelFlags(),
                     TokenizerFlags(), RunFlags(), KvFlags(), TerminalFlags()});
    case Verb::kScore:
      return Joined({ScoreFlags(), OutputFlags("scores"), ShardFlags(), StopFlags(), StreamFlags(),
                     ChatFlags(), ModelFlags(), TokenizerFlags(), RunFlags(), KvFlags(),
                     TerminalFlags()});
    case Verb::kBench:
      return Joined({SyntheticFlags(), ModelFlags(), RunFlags(), KvFlags(), TerminalFlags()});
    case Verb::kPlan:
      return Joined({SyntheticFlags(), InputFlags(), ChatFlags(), ChatAnswerFlags(),
                     UnusedOutputFlags(), ShardFlags(), StopFlags(), SamplingFlags(), ModelFlags(),
                     TokenizerFlags(), RunFlags(), KvFlags(), TerminalFlags()});
    case Verb::kCalibrate:
      return Joined({CalibrateFlags(), ModelFlags(), TokenizerFlags(), RunFlags(), KvFlags(),
                     TerminalFlags()});
    case Verb::kProfile:
      return Joined({ProfileFlags(), TerminalFlags()});
    case Verb::kSearch:
      return Joined({SyntheticFlags(), InputFlags(), ChatFlags(), PolicyOutputFlags(),
                     SearchFlags(), SamplingFlags(), ModelFlags(), TokenizerFlags(), RunFlags(),
                     KvFlags(), TerminalFlags()});
    case Verb::kSimulate:
      return Joined({SyntheticFlags(), InputFlags(), ChatFlags(), SimulateFlags(), SamplingFlags(),
                     ModelFlags(), TokenizerFlags(), RunFlags(), KvFlags(), TerminalFlags()});
    case Verb::kConvert:
      return Joined({ConvertFlags(), ModelFlags(), TokenizerFlags(), TerminalFlags()});
    case Verb::kSweep:
      return Joined({SweepFlags(), TerminalFlags()});
    case Verb::kMerge:
      return Joined({MergeFlags(), TerminalFlags()});
    case Verb::kInspect:
      return InspectFlags();
  }
  return {};
}

}  // namespace spillway
