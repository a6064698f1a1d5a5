// The entries of a zip archive as torch.save writes it: stored, never compressed. Names are keys,
// never paths. Pure functions; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "src/checkpoint/model_file.h"

namespace spillway {

struct ZipEntry {
  std::string name;
  int64_t offset = 0;  // of the data, in the file
  int64_t bytes = 0;
  uint32_t crc = 0;  // of the data; not yet checked
};

// Sorted by name. Checked: the central directory is whole and at the archive's end, each local
// header and data descriptor says what the directory says, and no two entries share a byte. Throws:
// Error kModelMalformed, kModelTruncated, kUnsafe (a name that would leave a folder), kIo,
// kCorrupt.
std::vector<ZipEntry> ReadZipDirectory(const ModelFile& file);

}  // namespace spillway
