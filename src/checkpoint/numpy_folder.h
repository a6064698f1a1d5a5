// A folder with one .npy file per tensor, named after the tensor, as FlexGen and alpa write it.
#pragma once

#include <memory>
#include <optional>

#include "spillway/model.h"
#include "src/checkpoint/checkpoint.h"
#include "src/checkpoint/model_folder.h"

namespace spillway {

// Whether `folder` holds the file of a token embedding, or of the head that is tied to it.
bool IsNumpyFolder(const ModelFolder& folder);

// Files are opened anew for every read: opt-175b has 1,540 of them, more than a process may hold
// open by default. Throws: Error kModelMissing, kModelMalformed, kModelTruncated,
// kModelUnsupported, kUnsafe, kIo, kCorrupt.
std::unique_ptr<Checkpoint> OpenNumpyFolder(ModelFolder folder);

// The shape of a numpy folder that has no config.json: its name says it ("opt-125m-np"), or its
// tensors' shapes are those of a built-in shape. nullopt when it is not a numpy folder. The number
// of heads is in no tensor's shape, so nothing is guessed beyond the built-in ones. Throws: Error
// kModelMissing when it is none of them, and what OpenNumpyFolder throws.
std::optional<ModelShape> NumpyFolderShape(const ModelFolder& folder);

}  // namespace spillway
