// The JSON header of a safetensors file -> tensors and their byte ranges. Takes text, opens
// nothing. Pure functions; any thread.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "src/checkpoint/file_checkpoint.h"

namespace spillway {

// The tensors in file order, `offset` counted from the first byte after the header. Checked: names
// are unique; every byte range has the size of its tensor; ranges follow one another without holes
// or overlaps from 0 to `data_bytes`. A tensor of a type that is not read has a refusal. `source`
// is what messages call the file. Throws: Error kModelMalformed, kModelTruncated (ranges beyond
// `data_bytes`).
std::vector<StoredTensor> ParseSafetensorsHeader(std::string_view text, int64_t data_bytes,
                                                 std::string_view source);

}  // namespace spillway
