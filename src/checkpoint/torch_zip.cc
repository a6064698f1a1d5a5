#include "src/checkpoint/torch_zip.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "spillway/error.h"
#include "src/checkpoint/crc32.h"
#include "src/checkpoint/pickle_machine.h"
#include "src/checkpoint/torch_tensors.h"
#include "src/checkpoint/zip_directory.h"

namespace spillway {
namespace {

[[noreturn]] void ThrowUnsupported(const ModelFile& file, std::string_view what) {
  throw Error(ErrorCode::kModelUnsupported, fmt::format("{}: {}", Printable(file.name()), what));
}

const ZipEntry* FindEntry(const std::vector<ZipEntry>& entries, std::string_view name) {
  const auto at = std::ranges::lower_bound(
      entries, name, {}, [](const ZipEntry& entry) -> std::string_view { return entry.name; });
  return at != entries.end() && at->name == name ? &*at : nullptr;
}

std::string ReadSmallEntry(const ModelFile& file, const ZipEntry& entry, int64_t max_bytes) {
  const std::string name = Printable(entry.name);
  if (entry.bytes > max_bytes) {
    ThrowMalformed(file, fmt::format("\"{}\" has {} bytes, at most {} are read", name, entry.bytes,
                                     max_bytes));
  }
  std::string text(static_cast<std::size_t>(entry.bytes), '\0');
  file.ReadAt(entry.offset, std::as_writable_bytes(std::span(text)));
  if (entry.crc && Crc32(std::as_bytes(std::span(text))) != *entry.crc) {
    ThrowMalformed(file, fmt::format("\"{}\" is damaged: its checksum differs", name));
  }
  return text;
}

// "archive/", where the pickle is "archive/data.pkl".
std::string ArchivePrefix(const ModelFile& file, const std::vector<ZipEntry>& entries) {
  constexpr std::string_view kPickle = "data.pkl";
  std::string prefix;
  std::size_t num_pickles = 0;
  for (const ZipEntry& entry : entries) {
    const std::size_t slash = entry.name.find('/');
    if (slash == std::string::npos || entry.name.substr(slash + 1) != kPickle) continue;
    prefix = entry.name.substr(0, slash + 1);
    ++num_pickles;
  }
  if (num_pickles != 1)
    ThrowMalformed(file, fmt::format("a zip archive with {} data.pkl instead of one", num_pickles));
  const bool script = FindEntry(entries, prefix + "constants.pkl") != nullptr ||
                      std::ranges::any_of(entries, [&](const ZipEntry& entry) {
                        return entry.name.starts_with(prefix + "code/");
                      });
  if (script)
    ThrowUnsupported(file,
                     "a TorchScript program, not weights; save model.state_dict() with torch.save");
  return prefix;
}

void CheckByteOrder(const ModelFile& file, const std::vector<ZipEntry>& entries,
                    const std::string& prefix) {
  const ZipEntry* order = FindEntry(entries, prefix + "byteorder");
  if (order == nullptr || ReadSmallEntry(file, *order, 64) == "little") return;
  ThrowUnsupported(file,
                   "was saved on a big-endian machine; load it and save it again on this one");
}

}  // namespace

WeightsFile ReadTorchZip(ModelFile file) {
  const std::vector<ZipEntry> entries = ReadZipDirectory(file);
  const std::string prefix = ArchivePrefix(file, entries);
  CheckByteOrder(file, entries, prefix);
  const std::string pickle =
      ReadSmallEntry(file, *FindEntry(entries, prefix + "data.pkl"), kMaxPickleBytes);
  PickleHeap heap;
  const PickleValue root = PickleMachine(pickle, heap, file.name()).Run();
  const StorageFinder find = [&](std::string_view key) -> std::optional<StoragePlace> {
    const ZipEntry* entry = FindEntry(entries, fmt::format("{}data/{}", prefix, key));
    return entry == nullptr ? std::nullopt
                            : std::optional(StoragePlace{entry->offset, entry->bytes});
  };
  std::vector<StoredTensor> tensors = PlaceTensors(file, heap, root, find);
  std::vector<ChecksummedRange> checksums;
  for (const ZipEntry& entry : entries) {
    if (entry.crc && entry.name.starts_with(prefix + "data/"))
      checksums.push_back({entry.name, entry.offset, entry.bytes, *entry.crc});
  }
  return {std::move(file), std::move(tensors), std::move(checksums), "torch zip"};
}

}  // namespace spillway
