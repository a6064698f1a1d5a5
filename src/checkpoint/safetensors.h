// The safetensors container: 8 bytes of header length, a JSON header, the tensors' bytes.
#pragma once

#include "src/checkpoint/file_checkpoint.h"
#include "src/checkpoint/model_file.h"

namespace spillway {

// Reads and checks the header; holds no tensor data.
// Throws: Error kModelMalformed, kModelTruncated, kModelUnsupported, kIo, kCorrupt.
WeightsFile ReadSafetensors(ModelFile file);

}  // namespace spillway
