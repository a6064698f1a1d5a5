// GgufFile: metadata and table of tensors of a GGUF file, versions 2 and 3. Nothing of the tensors'
// bytes is read. Thread rule: a value; any thread.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "src/checkpoint/model_file.h"
#include "src/gguf/gguf_value.h"

namespace spillway {

struct GgufTensor {
  std::string name;
  std::vector<int64_t> shape;  // the fastest dimension last, as everywhere here
  uint32_t type = 0;           // GgufType's number
  int64_t offset = 0;          // of the first byte in the file
};

struct GgufFile {
  ModelFile file;
  GgufMetadata metadata;
  std::vector<GgufTensor> tensors;
  int64_t head_bytes = 0;
};

// The GGUF file that `path` means: itself, if its name ends in ".gguf" or it begins as one; of a
// folder without a config.json the only model in it, by its first part. Nullopt: it means none.
// Throws: Error kModelMissing: the folder has several.
std::optional<std::filesystem::path> FindGguf(const std::filesystem::path& path);

// Reads the head of a file, at most 128 MiB. Ranges of tensors are not checked yet.
// Throws: Error kModelMalformed, kModelTruncated, kModelUnsupported (another version, big-endian),
// kIo, kCorrupt.
GgufFile ReadGguf(ModelFile file);

// The file at `path`. Throws: also Error kModelMissing, kSystemLimit.
GgufFile ReadGgufFile(const std::filesystem::path& path);

}  // namespace spillway
