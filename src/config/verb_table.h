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
  std::string_view examples = {};  // lines of its help
};
inline constexpr std::array kVerbs = {
    VerbRow{"generate", Verb::kGenerate, "prompts file in, completions file out",
            "  spillway generate -m DIR -i prompts.jsonl -o answers.jsonl --max-new-tokens 128\n"
            "  spillway generate -m DIR -i chats.jsonl -o answers.jsonl --cpu-memory 16G --kv-bits "
            "8,4\n"},
    VerbRow{"score", Verb::kScore, "log-likelihood of given texts, or perplexity of one",
            "  spillway score -m DIR -i texts.jsonl -o scores.jsonl\n"
            "  spillway score -m DIR --perplexity book.txt\n"},
    VerbRow{"bench", Verb::kBench, "one measured run on synthetic prompts",
            "  spillway bench -m opt-1.3b --dummy-weights --cpu-memory 2G --prompt-len 128 "
            "--gen-len 32\n"},
    VerbRow{"sweep", Verb::kSweep, "a grid of bench or simulate runs -> JSON and CSV"},
    VerbRow{"plan", Verb::kPlan, "where every byte goes and whether it fits; runs nothing",
            "  spillway plan -m DIR -i prompts.jsonl --cpu-memory 16G\n"
            "  spillway plan -m llama-3.1-70b --machine rtx-4090 --prompt-len 512 --gen-len 128\n"},
    VerbRow{"calibrate", Verb::kCalibrate, "how much KV each head needs -> a KV policy"},
    VerbRow{"profile", Verb::kProfile, "measure this machine: links, products, attention"},
    VerbRow{
        "search", Verb::kSearch, "the best policy for a model, a machine and a workload",
        "  spillway search -m opt-30b --machine t4 --prompt-len 512 --gen-len 32 -o policy.json\n"},
    VerbRow{"simulate", Verb::kSimulate, "run the schedule on a virtual clock, for any machine",
            "  spillway simulate -m opt-30b --machine t4 --policy policy.json --prompt-len 512 "
            "--gen-len 32\n"},
    VerbRow{"convert", Verb::kConvert, "checkpoint -> store of aligned tiles"},
    VerbRow{"merge", Verb::kMerge, "the outputs of all shards -> the output of the whole job"},
    VerbRow{"tokenize", Verb::kTokenize, "prompts -> how many tokens they have, and which",
            "  spillway tokenize -m DIR -i prompts.jsonl --counts\n"
            "  echo 'Once upon a time' >a.txt && spillway tokenize -m DIR a.txt\n"},
    VerbRow{"inspect", Verb::kInspect,
            "print a checkpoint, store, machine file, report or trace in short"},
};

}  // namespace spillway
