// The verbs: their words and what they say of themselves. Plain values; any thread.
#pragma once

#include <array>
#include <string_view>

#include "src/config/config.h"

namespace spillway {

struct VerbRow {
  std::string_view name;
  Verb verb;
  std::string_view help;
};
inline constexpr std::array kVerbs = {
    VerbRow{"generate", Verb::kGenerate, "prompts file in, completions file out"},
    VerbRow{"score", Verb::kScore, "log-likelihood of given texts, or perplexity of one"},
    VerbRow{"bench", Verb::kBench, "one measured run on synthetic prompts"},
    VerbRow{"sweep", Verb::kSweep, "a grid of bench or simulate runs -> JSON and CSV"},
    VerbRow{"plan", Verb::kPlan, "where every byte goes and whether it fits; runs nothing"},
    VerbRow{"calibrate", Verb::kCalibrate, "how much KV each layer needs -> budgets per layer"},
    VerbRow{"profile", Verb::kProfile, "measure this machine: links, products, attention"},
    VerbRow{"search", Verb::kSearch, "the best policy for a model, a machine and a workload"},
    VerbRow{"simulate", Verb::kSimulate, "run the schedule on a virtual clock, for any machine"},
    VerbRow{"convert", Verb::kConvert, "checkpoint -> store of aligned tiles"},
    VerbRow{"merge", Verb::kMerge, "the outputs of all shards -> the output of the whole job"},
    VerbRow{"inspect", Verb::kInspect,
            "print a checkpoint, store, machine file, report or trace in short"},
};

}  // namespace spillway
