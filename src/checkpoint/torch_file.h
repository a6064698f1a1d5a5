// A file of torch.save, in any of its forms. Pure functions; any thread.
#pragma once

#include "src/checkpoint/file_checkpoint.h"
#include "src/checkpoint/model_file.h"

namespace spillway {

// Throws: Error kModelMalformed, kModelTruncated, kModelUnsupported, kUnsafe, kIo, kCorrupt.
WeightsFile ReadTorchFile(ModelFile file);

}  // namespace spillway
