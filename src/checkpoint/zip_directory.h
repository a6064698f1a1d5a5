// The entries of a zip archive as torch.save writes it: stored, never compressed. Names are keys,
// never paths. Pure functions; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "src/checkpoint/model_file.h"

namespace spillway {

struct ZipEntry {
  std::string name;
  int64_t offset = 0;  // of the data, in the file
  int64_t bytes = 0;
  std::optional<uint32_t> crc = 0;  // of the data; not yet checked; nullopt: the archive has none
};

// Sorted by name. Checked: the central directory is whole and at the archive's end, each local
// header and data descriptor says what the directory says, and no two entries share a byte. Where
// every checksum is 0 the archive has none: torch.save can be told to compute none. Throws:
// Error kModelMalformed, kModelTruncated, kUnsafe (a name that would leave a folder), kIo,
// kCorrupt.
std::vector<ZipEntry> ReadZipDirectory(const ModelFile& file);

}  // namespace spillway
