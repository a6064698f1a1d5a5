// model.safetensors.index.json and pytorch_model.bin.index.json: which shard holds which tensor.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "src/checkpoint/file_checkpoint.h"
#include "src/checkpoint/model_folder.h"

namespace spillway {

// Opens every shard that the index names, with `read_shard`, and makes sure that each tensor is in
// the shard that the index says and in no other, and that no shard holds a tensor that the index
// does not know. Throws: Error kUnsafe (a shard's name is not a plain file name), kModelMissing
// (shards that do not exist, listed), kModelInconsistent, kModelMalformed, and what read_shard
// throws.
std::vector<Shard> ReadShards(const ModelFolder& folder, const std::string& index_name,
                              const std::function<Shard(ModelFile)>& read_shard);

}  // namespace spillway
