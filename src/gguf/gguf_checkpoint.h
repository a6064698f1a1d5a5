// GgufCheckpoint: the tensors of a GGUF file, or of the parts of one, under the names and in the
// order in which Hugging Face has them. Blocks of codes are read as fp32, the values that they
// stand for. Thread rule: const methods from any thread.
#pragma once

#include <memory>
#include <vector>

#include "src/checkpoint/checkpoint.h"
#include "src/gguf/gguf_file.h"

namespace spillway {

// Requires: the first file's architecture is read (gguf_tensor_map.h). Tensors that the published
// model does not have are left out. Throws: Error kModelTruncated, kModelMalformed,
// kModelInconsistent (a name twice), kModelUnsupported.
std::unique_ptr<Checkpoint> MakeGgufCheckpoint(std::vector<GgufFile> files);

}  // namespace spillway
