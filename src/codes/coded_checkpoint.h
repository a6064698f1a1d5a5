// CodedCheckpoint: a checkpoint whose matrices another program has coded, with the matrices in fp32
// in place of their codes. Thread rule: const methods from any thread.
#pragma once

#include <memory>

#include "src/checkpoint/checkpoint.h"
#include "src/checkpoint/quantisation.h"

namespace spillway {

// Throws: Error kModelInconsistent: parts of a matrix are missing, or do not agree.
std::unique_ptr<Checkpoint> DecodeCheckpoint(std::unique_ptr<Checkpoint> published,
                                             const Quantisation& codes);

// Whether all stacks of experts' matrices are in MXFP4, in a folder that was decoded or a GGUF
// file.
bool HasMxfp4Experts(const Checkpoint& checkpoint);

}  // namespace spillway
