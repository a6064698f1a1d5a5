// A PyTorch file: zip directory, pickle, storages.
#include <utility>
#include <vector>

#include "src/checkpoint/file_checkpoint.h"
#include "src/checkpoint/torch_zip.h"
#include "tests/fuzz/fuzz_case.h"
#include "tests/fuzz/open_file.h"

namespace spillway::fuzz {

void Take(std::string_view bytes) {
  std::vector<Shard> shards;
  shards.push_back(ReadTorchZip(FileOf(bytes, "pytorch_model.bin")));
  ReadEnds(FileCheckpoint("torch zip", std::move(shards)));
}

}  // namespace spillway::fuzz
