#include "src/checkpoint/file_checkpoint.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "spillway/error.h"

namespace spillway {

FileCheckpoint::FileCheckpoint(std::string_view format, std::vector<Shard> shards)
    : format_(format) {
  struct Entry {
    StoredTensor* stored;
    std::size_t file;
  };
  std::vector<Entry> entries;
  for (std::size_t file = 0; file < shards.size(); ++file) {
    for (StoredTensor& stored : shards[file].tensors) entries.push_back({&stored, file});
  }
  std::ranges::sort(entries, {}, [](const Entry& entry) -> const std::string& {
    return entry.stored->tensor.name;
  });
  tensors_.reserve(entries.size());
  places_.reserve(entries.size());
  for (const Entry& entry : entries) {
    CheckpointTensor& tensor = entry.stored->tensor;
    if (!tensors_.empty() && tensors_.back().name == tensor.name) {
      throw Error(ErrorCode::kModelInconsistent,
                  fmt::format("{}: tensor \"{}\" is in {} too; download the model again",
                              Printable(shards[entry.file].file.name()), Printable(tensor.name),
                              Printable(shards[places_.back().file].file.name())));
    }
    tensors_.push_back(std::move(tensor));
    places_.push_back({entry.file, entry.stored->offset});
  }
  for (Shard& shard : shards) files_.push_back(std::move(shard.file));
}

void FileCheckpoint::Read(int64_t index, int64_t offset, std::span<std::byte> out) const {
  const CheckpointTensor& tensor = tensors_.at(static_cast<std::size_t>(index));
  SPILLWAY_CHECK(offset >= 0 && static_cast<int64_t>(out.size()) <= tensor.bytes - offset);
  const Place& place = places_[static_cast<std::size_t>(index)];
  files_[place.file].ReadAt(place.offset + offset, out);
}

}  // namespace spillway
