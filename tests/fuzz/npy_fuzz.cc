// The header of a numpy array.
#include "src/checkpoint/npy_header.h"
#include "tests/fuzz/fuzz_case.h"
#include "tests/fuzz/open_file.h"

namespace spillway::fuzz {

void Take(std::string_view bytes) { ReadNpyHeader(FileOf(bytes, "decoder.embed_tokens.weight")); }

}  // namespace spillway::fuzz
