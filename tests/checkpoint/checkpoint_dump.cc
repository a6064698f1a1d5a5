// Prints one line per tensor of a checkpoint folder: name, type, shape, xxh64 of its bytes. For
// compare_live.py. With "--shape" instead: the model's shape, as `spillway inspect` has it.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <xxhash.h>

#include <algorithm>
#include <cstdio>
#include <string_view>
#include <vector>

#include "spillway/error.h"
#include "src/checkpoint/checkpoint.h"
#include "src/verbs/describe.h"

namespace {

// Reads pieces of an odd size, so that every way of cutting a tensor is exercised.
uint64_t HashOf(const spillway::Checkpoint& checkpoint, int64_t index) {
  constexpr int64_t kPieceBytes = 1'000'003;
  const int64_t bytes = checkpoint.tensors()[static_cast<std::size_t>(index)].bytes;
  std::vector<std::byte> all(static_cast<std::size_t>(bytes));
  for (int64_t at = 0; at < bytes; at += kPieceBytes) {
    const auto count = static_cast<std::size_t>(std::min(kPieceBytes, bytes - at));
    checkpoint.Read(index, at, std::span(all).subspan(static_cast<std::size_t>(at), count));
  }
  return XXH64(all.data(), all.size(), 0);
}

void Dump(const char* folder) {
  const auto checkpoint = spillway::OpenCheckpoint(folder);
  fmt::print("format {}\n", checkpoint->format());
  for (std::size_t index = 0; index < checkpoint->tensors().size(); ++index) {
    const spillway::CheckpointTensor& tensor = checkpoint->tensors()[index];
    fmt::print("{} {} [{}] {:016x}\n", tensor.name, spillway::DTypeName(tensor.dtype),
               fmt::join(tensor.shape, ","), HashOf(*checkpoint, static_cast<int64_t>(index)));
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) return 2;
  try {
    if (std::string_view(argv[1]) == "--shape" && argc == 3) {
      fmt::print("{}", spillway::DescribeCheckpoint(argv[2]));
    } else {
      Dump(argv[1]);
    }
  } catch (const spillway::Error& error) {
    fmt::print(stderr, "{}\n", spillway::ErrorLine(error.code(), error.what()));
    return spillway::ExitStatus(error.code());
  }
  return 0;
}
