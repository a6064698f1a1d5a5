#include "src/checkpoint/file_checkpoint.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "spillway/error.h"

namespace spillway {

namespace {

// The name's first bytes as a number that sorts as they do: a million tensors are compared without
// a look at each.
uint64_t HeadOf(std::string_view name) {
  uint64_t head = 0;
  for (std::size_t at = 0; at < sizeof(head); ++at)
    head = head << 8 | (at < name.size() ? static_cast<unsigned char>(name[at]) : 0);
  return head;
}

}  // namespace

FileCheckpoint::FileCheckpoint(std::string_view format, std::vector<WeightsFile> shards)
    : format_(format) {
  struct Entry {
    StoredTensor* stored;
    std::size_t file;
    uint64_t head;
  };
  std::vector<Entry> entries;
  for (std::size_t file = 0; file < shards.size(); ++file) {
    for (StoredTensor& stored : shards[file].tensors) {
      entries.push_back({&stored, file, HeadOf(stored.tensor.name)});
    }
  }
  std::ranges::sort(entries, [](const Entry& left, const Entry& right) {
    return left.head != right.head ? left.head < right.head
                                   : left.stored->tensor.name < right.stored->tensor.name;
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
    places_.push_back({entry.file, entry.stored->offset, std::move(entry.stored->layout)});
  }
  for (WeightsFile& shard : shards) {
    files_.push_back(std::move(shard.file));
    checksums_.push_back(std::make_unique<RangeChecksums>(std::move(shard.checksums)));
  }
}

void FileCheckpoint::Read(int64_t index, int64_t offset, std::span<std::byte> out) const {
  const CheckpointTensor& tensor = tensors_.at(static_cast<std::size_t>(index));
  SPILLWAY_CHECK(offset >= 0 && static_cast<int64_t>(out.size()) <= tensor.bytes - offset);
  const Place& place = places_[static_cast<std::size_t>(index)];
  if (!place.layout) return ReadBytes(tensor, place.file, place.offset + offset, out);
  const int64_t element_bytes = DTypeBytes(tensor.dtype);
  SPILLWAY_CHECK(offset % element_bytes == 0);
  ReadLaidOut(tensor, place, offset / element_bytes, out);
}

void FileCheckpoint::ReadLaidOut(const CheckpointTensor& tensor, const Place& place,
                                 int64_t first_element, std::span<std::byte> out) const {
  const ElementLayout& layout = *place.layout;
  const auto read = [&](int64_t offset, std::span<std::byte> bytes) {
    ReadBytes(tensor, place.file, place.offset + offset, bytes);
  };
  if (layout.element_bytes == DTypeBytes(tensor.dtype))
    return ReadElements(layout, first_element, out, read);
  constexpr std::size_t kNarrowed = 8192;  // elements at once
  std::vector<std::byte> wide;
  while (!out.empty()) {
    const std::size_t count = std::min(kNarrowed, out.size() / sizeof(float));
    wide.resize(count * sizeof(double));
    ReadElements(layout, first_element, wide, read);
    if (!NarrowFp64(wide, out.first(count * sizeof(float)))) {
      throw Error(
          ErrorCode::kModelUnsupported,
          fmt::format("{}: tensor \"{}\" holds fp64 values beyond fp32's range; convert the "
                      "model to bf16",
                      Printable(files_[place.file].name()), Printable(tensor.name)));
    }
    out = out.subspan(count * sizeof(float));
    first_element += static_cast<int64_t>(count);
  }
}

void FileCheckpoint::ReadBytes(const CheckpointTensor& tensor, std::size_t file_index,
                               int64_t offset, std::span<std::byte> out) const {
  const ModelFile& file = files_[file_index];
  file.ReadAt(offset, out);
  if (const auto damaged = checksums_[file_index]->Note(offset, out)) {
    throw Error(
        ErrorCode::kModelMalformed,
        fmt::format(
            "{}: \"{}\" of tensor \"{}\" is damaged: its checksum differs; download it again",
            Printable(file.name()), Printable(damaged->name, 40), Printable(tensor.name)));
  }
}

}  // namespace spillway
