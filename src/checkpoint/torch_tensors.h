// The tensors of an unpickled state dict and their places in the file. Pure functions; any thread.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string_view>
#include <vector>

#include "src/checkpoint/file_checkpoint.h"
#include "src/checkpoint/pickle_value.h"

namespace spillway {

struct StoragePlace {
  int64_t offset = 0;  // of the first byte, in the file
  int64_t bytes = 0;
};

// Place of the storage of that key; nullopt: there is none.
using StorageFinder = std::function<std::optional<StoragePlace>(std::string_view key)>;

// The tensors of the dictionary `root`; whatever else is in it is passed over. A tensor of a type
// that is not read, or a view that is neither rows nor columns, has a refusal. Throws: Error
// kModelMalformed, kModelUnsupported (no dictionary of tensors).
std::vector<StoredTensor> PlaceTensors(const ModelFile& file, const PickleHeap& heap,
                                       PickleValue root, const StorageFinder& find);

}  // namespace spillway
