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
      Value("output", "FILE", "write the best policy here, over an earlier one", &Config::output),
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
      CalibrationFlag(),
      MaxLossFlag("with --calibration: how much perplexity may rise (1%)"),
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

std::vector<Flag> TokenizeFlags() {
  return {
      Value("output", "FILE", "a line for each prompt (default: - , standard output)",
            &Config::output),
      Switch("overwrite", "replace an existing output", &Config::overwrite),
      Switch("counts", "leave the ids out", &Config::counts_only),
  };
}

std::vector<Flag> InspectFlags() {
  return {
      Switch("shapes", "list the built-in shapes and their sizes, in place of a path",
             &Config::shapes),
  };
}

}  // namespace

std::string LetterOf(const Flag& flag) {
  for (const std::string_view name : {"model", "input", "output"}) {
    if (flag.name == name) return fmt::format("-{}", name.front());
  }
  return "";
}

std::vector<Flag> FlagsOf(Verb verb) {
  const std::vector<Flag> chat = InGroup("Chat", ChatFlags());
  const std::vector<Flag> chat_answers = InGroup("Chat", ChatAnswerFlags());
  const std::vector<Flag> stops =
      InGroup("Shards, stops, streams", Joined({ShardFlags(), StopFlags()}));
  const std::vector<Flag> streams = InGroup("Shards, stops, streams", StreamFlags());
  const std::vector<Flag> sampling = InGroup("Sampling", SamplingFlags());
  const std::vector<Flag> model = InGroup("Model", ModelFlags());
  const std::vector<Flag> tokenizer = InGroup("Model", TokenizerFlags());
  const std::vector<Flag> synthetic = InGroup("Work", SyntheticFlags());
  const std::vector<Flag> kv = InGroup("KV cache", KvFlags());
  const std::vector<Flag> terminal = InGroup("Terminal", TerminalFlags());
  const auto job = [](std::initializer_list<std::vector<Flag>> flags) {
    return InGroup("Job", Joined(flags));
  };
  switch (verb) {
    case Verb::kGenerate:
      return Joined({job({InputFlags(), OutputFlags("completions")}), model, tokenizer, sampling,
                     chat, chat_answers, RunFlags(), kv, InGroup("KV cache", {ShadowFlag()}), stops,
                     streams, terminal});
    case Verb::kScore:
      return Joined({job({ScoreFlags(), OutputFlags("scores")}), model, tokenizer, chat, RunFlags(),
                     kv, stops, streams, terminal});
    case Verb::kBench:
      return Joined({synthetic, model, RunFlags(), kv, terminal});
    case Verb::kPlan:
      return Joined({synthetic, job({InputFlags(), UnusedOutputFlags()}), model, tokenizer,
                     sampling, chat, chat_answers, RunFlags(), kv, stops, terminal});
    case Verb::kCalibrate:
      return Joined({job({CalibrateFlags()}), model, tokenizer, RunFlags(), kv, terminal});
    case Verb::kProfile:
      return Joined({job({ProfileFlags()}), terminal});
    case Verb::kSearch:
      return Joined({synthetic, job({InputFlags(), PolicyOutputFlags(), SearchFlags()}), model,
                     tokenizer, sampling, chat, RunFlags(), kv, terminal});
    case Verb::kSimulate:
      return Joined({synthetic, job({InputFlags(), SimulateFlags()}), model, tokenizer, sampling,
                     chat, RunFlags(), kv, terminal});
    case Verb::kConvert:
      return Joined({job({ConvertFlags()}), model, tokenizer, terminal});
    case Verb::kSweep:
      return Joined({job({SweepFlags()}), terminal});
    case Verb::kMerge:
      return Joined({job({MergeFlags()}), terminal});
    case Verb::kTokenize:
      return Joined({job({InputFlags(), TokenizeFlags()}), model, tokenizer, chat, terminal});
    case Verb::kInspect:
      return InspectFlags();
  }
  return {};
}

}  // namespace spillway
