// A safetensors file: header, and the bytes that it says are there.
#include <utility>
#include <vector>

#include "src/checkpoint/file_checkpoint.h"
#include "src/checkpoint/safetensors.h"
#include "tests/fuzz/fuzz_case.h"
#include "tests/fuzz/open_file.h"

namespace spillway::fuzz {

void Take(std::string_view bytes) {
  std::vector<Shard> shards;
  shards.push_back(ReadSafetensors(FileOf(bytes, "model.safetensors")));
  ReadEnds(FileCheckpoint("safetensors", std::move(shards)));
}

}  // namespace spillway::fuzz
