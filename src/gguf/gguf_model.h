// GgufModel: a GGUF file as a model: its tensors as a checkpoint, and a folder with the files that
// Hugging Face's form of the model has beside its weights. The folder is made of the file's
// metadata, once, in the user's cache; whatever is read of a model's folder is read of it.
// Thread rule: the main thread.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "src/checkpoint/checkpoint.h"

namespace spillway {

struct GgufModel {
  std::filesystem::path folder;
  std::string name;  // the file's, without ".gguf" and part numbers
  std::unique_ptr<Checkpoint> checkpoint;
};

// Opens the file, and where it is the first of several parts (NAME-00001-of-00003.gguf) all of
// them. Throws: Error kModelMissing, kModelMalformed, kModelTruncated, kModelUnsupported,
// kModelInconsistent, kTokenizer, kIo, kPath.
GgufModel OpenGgufModel(const std::filesystem::path& path);

// The folder alone.
std::filesystem::path GgufFolder(const std::filesystem::path& path);

}  // namespace spillway
