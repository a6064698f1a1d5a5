// Content key: what a store, an answer or a measurement was made from, in 16 digits. Files of other
// names, in another place and of another age have the same key where their bytes are the same; one
// other bit of a weight makes another key. Thread rule: one thread.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "spillway/model.h"
#include "src/checkpoint/checkpoint.h"
#include "src/checkpoint/file_hashes.h"

namespace spillway {

// Key of a store of these weights in the types that `shape` says; the shape's name does not count.
// Reads all bytes of files that `hashes` does not know, and tells `progress` of them.
// Throws (all below): Error kModelMissing, kSystemLimit, kIo, kCorrupt, kInterrupted.
std::string CheckpointContentKey(const Checkpoint& checkpoint, const ModelShape& shape,
                                 FileHashes& hashes, const HashProgress& progress = {});

// Key of seeded random weights.
std::string DummyContentKey(const ModelShape& shape, uint64_t seed);

// Key of the weights as they are published and of the settings beside them; of a store by the
// checksums in its table.
std::string PublishedKey(const Checkpoint& checkpoint, const std::filesystem::path& folder,
                         FileHashes& hashes, const HashProgress& progress = {});

// PublishedKey of a folder that is opened for it, its tokenizer included.
std::string FolderContentKey(const std::filesystem::path& folder, FileHashes& hashes);

}  // namespace spillway
