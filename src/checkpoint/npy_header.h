// The header of a numpy .npy file. Pure functions; any thread.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "spillway/dtype.h"
#include "src/checkpoint/model_file.h"

namespace spillway {

struct NpyHeader {
  DType dtype = DType::kF16;
  std::vector<int64_t> shape;
  int64_t bytes = 0;   // of the elements
  int64_t offset = 0;  // of the first element, in the file
};

// Reads and checks the header: versions 1 to 3, C order, little-endian fp16 or fp32, elements up to
// the file's end. Throws: Error kModelMalformed, kModelTruncated, kModelUnsupported, kUnsafe
// (Python objects), kIo, kCorrupt.
NpyHeader ReadNpyHeader(const ModelFile& file);

}  // namespace spillway
