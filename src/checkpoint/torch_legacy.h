// The form of torch.save before 1.6: five pickles, the fourth of which is the value, then the
// storages. Pure functions; any thread.
#pragma once

#include "src/checkpoint/file_checkpoint.h"
#include "src/checkpoint/model_file.h"

namespace spillway {

// True where the file begins as torch began them.
bool IsTorchLegacy(const ModelFile& file);

// Reads the pickles and where storages lie; holds no tensor data. Requires: IsTorchLegacy. Throws:
// Error kModelMalformed, kModelTruncated, kModelUnsupported, kUnsafe, kIo, kCorrupt.
WeightsFile ReadTorchLegacy(ModelFile file);

}  // namespace spillway
