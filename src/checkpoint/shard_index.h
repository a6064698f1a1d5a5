// model.safetensors.index.json and pytorch_model.bin.index.json: which shard holds which tensor.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "src/checkpoint/file_checkpoint.h"
#include "src/checkpoint/model_folder.h"

namespace spillway {

// Opens every shard that the index names, with `read_shard`. Each tensor counts in the shard that
// the index says: a copy elsewhere does not, and one that no shard holds is left out. A tensor that
// the index does not know counts where it is; where several shards hold one, it has a refusal.
// Throws: Error kUnsafe (a shard's name is not a plain file name), kModelMissing (shards that do
// not exist, listed), kModelInconsistent (a tensor in another shard than the index says, and not
// there), kModelMalformed, and what read_shard throws.
std::vector<WeightsFile> ReadShards(const ModelFolder& folder, const std::string& index_name,
                                    const std::function<WeightsFile(ModelFile)>& read_shard);

}  // namespace spillway
