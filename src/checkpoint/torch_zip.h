// PyTorch's zip container (torch.save since 1.6): a pickle that says where tensors are, and their
// storages.
#pragma once

#include "src/checkpoint/file_checkpoint.h"
#include "src/checkpoint/model_file.h"

namespace spillway {

// Reads the archive's directory and its pickle; holds no tensor data. Requires: the file begins as
// a zip archive. Throws: Error kModelMalformed, kModelTruncated, kModelUnsupported, kUnsafe, kIo,
// kCorrupt.
WeightsFile ReadTorchZip(ModelFile file);

}  // namespace spillway
