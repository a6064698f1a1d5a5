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
  for (Shard& shard : shards) {
    files_.push_back(std::move(shard.file));
    checksums_.push_back(std::make_unique<RangeChecksums>(std::move(shard.checksums)));
  }
}

void FileCheckpoint::Read(int64_t index, int64_t offset, std::span<std::byte> out) const {
  const CheckpointTensor& tensor = tensors_.at(static_cast<std::size_t>(index));
  SPILLWAY_CHECK(offset >= 0 && static_cast<int64_t>(out.size()) <= tensor.bytes - offset);
  const Place& place = places_[static_cast<std::size_t>(index)];
  const ModelFile& file = files_[place.file];
  file.ReadAt(place.offset + offset, out);
  if (const auto damaged = checksums_[place.file]->Note(place.offset + offset, out)) {
    throw Error(
        ErrorCode::kModelMalformed,
        fmt::format(
            "{}: \"{}\" of tensor \"{}\" is damaged: its checksum differs; download it again",
            Printable(file.name()), Printable(damaged->name, 40), Printable(tensor.name)));
  }
}

}  // namespace spillway
