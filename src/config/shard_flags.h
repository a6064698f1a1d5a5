// Flags that make a run one of several shards of a job. Plain functions; any thread.
#pragma once

#include <vector>

#include "src/config/flags.h"

namespace spillway {

std::vector<Flag> ShardFlags();

// The shard that `auto` means, by the variables of the scheduler; and the files of the run, which
// get the shard's name: OUT-00007-of-00032.jsonl. Throws: Error kFlag: no scheduler's variables are
// set, or half of them, or they contradict --shard-count.
void ResolveShard(Config& config);

}  // namespace spillway
