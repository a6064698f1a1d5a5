// The verb `merge`: the outputs of all shards of a job become the output of the whole job.
// Thread rule: the main thread.
#pragma once

#include "src/config/config.h"

namespace spillway {

// Byte for byte what one run of all lines writes. Returns 0, or 21 when some lines carry errors.
// Throws: Error kInput: a shard is missing, given twice, of another job or cut short, or the input
// has other lines; kOutputExists, kCorrupt, kSystemLimit, kIo, kDiskSpace, kInterrupted.
int RunMerge(const Config& config);

}  // namespace spillway
