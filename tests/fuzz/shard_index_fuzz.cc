// An index of two shards that are sound.
#include <string>

#include "src/checkpoint/checkpoint.h"
#include "tests/fuzz/fuzz_case.h"
#include "tests/fuzz/open_file.h"

namespace spillway::fuzz {
namespace {

// A safetensors file with one tensor of two bytes.
std::string Shard(const std::string& tensor) {
  const std::string header =
      "{\"" + tensor + R"(":{"dtype":"F16","shape":[1],"data_offsets":[0,2]}})";
  std::string bytes(8, '\0');
  bytes[0] = static_cast<char>(header.size());
  return bytes + header + "xx";
}

}  // namespace

void Take(std::string_view bytes) {
  static const Folder folder;
  folder.Write("model-00001-of-00002.safetensors", Shard("a"));
  folder.Write("model-00002-of-00002.safetensors", Shard("b"));
  folder.Write("model.safetensors.index.json", bytes);
  ReadEnds(*OpenCheckpoint(folder.path()));
}

}  // namespace spillway::fuzz
