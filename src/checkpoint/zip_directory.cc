#include "src/checkpoint/zip_directory.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "spillway/error.h"
#include "src/checkpoint/little_endian.h"

namespace spillway {
namespace {

constexpr uint32_t kLocalSignature = 0x04034B50;
constexpr uint32_t kDescriptorSignature = 0x08074B50;
constexpr uint32_t kCentralSignature = 0x02014B50;
constexpr uint32_t kEndSignature = 0x06054B50;
constexpr uint32_t kEnd64Signature = 0x06064B50;
constexpr uint32_t kLocator64Signature = 0x07064B50;

constexpr int64_t kLocalBytes = 30;
constexpr int64_t kCentralBytes = 46;
constexpr int64_t kEndBytes = 22;
constexpr int64_t kEnd64Bytes = 56;
constexpr int64_t kLocator64Bytes = 20;
constexpr int64_t kMaxDirectoryBytes = 64 << 20;

constexpr uint16_t kDescriptorFlag = 1 << 3;
constexpr uint16_t kAllowedFlags = kDescriptorFlag | 1 << 11;  // sizes follow the data; UTF-8 names
constexpr uint32_t kIn64 = 0xFFFFFFFF;                         // the value is in the zip64 field

std::string ReadBytes(const ModelFile& file, int64_t offset, int64_t bytes) {
  if (offset < 0 || bytes < 0 || offset > file.size() - bytes) {
    ThrowMalformed(file,
                   fmt::format("the zip archive refers to bytes beyond its end ({})", file.size()));
  }
  std::string text(static_cast<std::size_t>(bytes), '\0');
  file.ReadAt(offset, std::as_writable_bytes(std::span(text)));
  return text;
}

struct DirectoryPlace {
  int64_t offset = 0;
  int64_t bytes = 0;
  uint64_t num_entries = 0;
  int64_t end = 0;  // where the directory must end
};

// The last end record whose comment ends where the file ends.
int64_t FindEndRecord(const ModelFile& file) {
  const int64_t tail_bytes = std::min<int64_t>(file.size(), kEndBytes + 0xFFFF);
  const std::string tail = ReadBytes(file, file.size() - tail_bytes, tail_bytes);
  for (int64_t at = tail_bytes - kEndBytes; at >= 0; --at) {
    const auto from = static_cast<std::size_t>(at);
    if (LittleEndian<uint32_t>(tail, from) != kEndSignature) continue;
    if (at + kEndBytes + LittleEndian<uint16_t>(tail, from + 20) == tail_bytes)
      return file.size() - tail_bytes + at;
  }
  throw Error(ErrorCode::kModelTruncated,
              fmt::format("{}: the zip archive's directory, which is at its end, is missing: the "
                          "file is cut off at "
                          "{}; download it again",
                          Printable(file.name()), file.size()));
}

// Fields of 64 bits that must make sense as offsets.
int64_t Offset64(const ModelFile& file, std::string_view text, std::size_t at) {
  const auto value = LittleEndian<uint64_t>(text, at);
  if (value > static_cast<uint64_t>(file.size()))
    ThrowMalformed(file, "a zip64 field points beyond the file's end");
  return static_cast<int64_t>(value);
}

DirectoryPlace FindDirectory(const ModelFile& file) {
  const int64_t end = FindEndRecord(file);
  const std::string record = ReadBytes(file, end, kEndBytes);
  DirectoryPlace place = {LittleEndian<uint32_t>(record, 16), LittleEndian<uint32_t>(record, 12),
                          LittleEndian<uint16_t>(record, 10), end};
  if (LittleEndian<uint32_t>(record, 4) != 0)
    ThrowMalformed(file, "a zip archive in several parts");
  if (end < kLocator64Bytes + kEnd64Bytes) return place;
  const std::string locator = ReadBytes(file, end - kLocator64Bytes, kLocator64Bytes);
  if (LittleEndian<uint32_t>(locator, 0) != kLocator64Signature) return place;

  const int64_t end64 = Offset64(file, locator, 8);
  const std::string record64 = ReadBytes(file, end64, kEnd64Bytes);
  if (LittleEndian<uint32_t>(record64, 0) != kEnd64Signature)
    ThrowMalformed(file, "the zip64 end record is missing");
  const DirectoryPlace wide = {Offset64(file, record64, 48), Offset64(file, record64, 40),
                               LittleEndian<uint64_t>(record64, 32), end64};
  const bool agree = (place.offset == kIn64 || place.offset == wide.offset) &&
                     (place.bytes == kIn64 || place.bytes == wide.bytes) &&
                     (place.num_entries == 0xFFFF || place.num_entries == wide.num_entries);
  if (!agree) ThrowMalformed(file, "the zip archive's two end records differ");
  return wide;
}

// Contents of a central header, zip64 field applied.
struct CentralEntry {
  ZipEntry entry;
  uint16_t flags = 0;
  int64_t header_offset = 0;
};

// Replaces the 32-bit values that are kIn64 by those of the zip64 field, in the order of the
// standard.
void ApplyZip64(const ModelFile& file, std::string_view extra, CentralEntry& central,
                uint32_t stored_bytes) {
  const bool wide_size = central.entry.bytes == kIn64;
  const bool wide_stored = stored_bytes == kIn64;
  const bool wide_offset = central.header_offset == kIn64;
  if (!wide_size && !wide_stored && !wide_offset) return;
  while (extra.size() >= 4) {
    const auto id = LittleEndian<uint16_t>(extra, 0);
    const std::size_t bytes = LittleEndian<uint16_t>(extra, 2);
    if (bytes > extra.size() - 4) break;
    if (id == 1) {
      const std::string_view field = extra.substr(4, bytes);
      std::size_t at = 0;
      const auto next = [&] {
        if (field.size() < at + 8) ThrowMalformed(file, "a zip64 field is too short");
        at += 8;
        return Offset64(file, field, at - 8);
      };
      if (wide_size) central.entry.bytes = next();
      if (wide_stored && next() != central.entry.bytes)
        ThrowMalformed(file, "a zip64 entry is compressed");
      if (wide_offset) central.header_offset = next();
      return;
    }
    extra.remove_prefix(4 + bytes);
  }
  ThrowMalformed(file, "a zip64 field is missing");
}

void CheckName(const ModelFile& file, std::string_view name) {
  const bool climbs = name.starts_with("../") || name.find("/../") != std::string_view::npos ||
                      name.ends_with("/..") || name == ".." || name.starts_with('/');
  if (!climbs && name.find_first_of(std::string_view("\\\0", 2)) == std::string_view::npos) return;
  throw Error(ErrorCode::kUnsafe,
              fmt::format("{}: the zip entry \"{}\" names a path outside; do not use this model",
                          Printable(file.name()), Printable(name)));
}

// Takes one record off the front of `text`.
CentralEntry ParseCentral(const ModelFile& file, std::string_view& text) {
  if (text.size() < kCentralBytes || LittleEndian<uint32_t>(text, 0) != kCentralSignature) {
    ThrowMalformed(file, "the zip archive's directory is damaged");
  }
  const std::size_t name_bytes = LittleEndian<uint16_t>(text, 28);
  const std::size_t extra_bytes = LittleEndian<uint16_t>(text, 30);
  const std::size_t record_bytes =
      kCentralBytes + name_bytes + extra_bytes + LittleEndian<uint16_t>(text, 32);
  if (text.size() < record_bytes) ThrowMalformed(file, "the zip archive's directory is cut off");
  CentralEntry central;
  central.entry.name = text.substr(kCentralBytes, name_bytes);
  CheckName(file, central.entry.name);
  const std::string shown = Printable(central.entry.name);
  central.flags = LittleEndian<uint16_t>(text, 8);
  if ((central.flags & 1) != 0)
    ThrowMalformed(file, fmt::format("the zip entry \"{}\" is encrypted", shown));
  if ((central.flags & ~kAllowedFlags) != 0) {
    ThrowMalformed(file, fmt::format("the zip entry \"{}\" has unknown flags", shown));
  }
  const auto stored_bytes = LittleEndian<uint32_t>(text, 20);
  central.entry.bytes = LittleEndian<uint32_t>(text, 24);
  if (LittleEndian<uint16_t>(text, 10) != 0 || stored_bytes != central.entry.bytes) {
    ThrowMalformed(
        file,
        fmt::format("the zip entry \"{}\" is compressed, which torch.save never does", shown));
  }
  central.entry.crc = LittleEndian<uint32_t>(text, 16);
  central.header_offset = LittleEndian<uint32_t>(text, 42);
  ApplyZip64(file, text.substr(kCentralBytes + name_bytes, extra_bytes), central, stored_bytes);
  text.remove_prefix(record_bytes);
  return central;
}

// Whether the sizes and the CRC behind the data are the directory's. Returns the descriptor's
// length.
int64_t CheckDescriptor(const ModelFile& file, const ZipEntry& entry) {
  const int64_t at = entry.offset + entry.bytes;
  const std::string text = ReadBytes(file, at, std::min<int64_t>(24, file.size() - at));
  const auto size = static_cast<uint64_t>(entry.bytes);
  const bool begins = text.size() >= 16 &&
                      LittleEndian<uint32_t>(text, 0) == kDescriptorSignature &&
                      LittleEndian<uint32_t>(text, 4) == entry.crc;
  if (begins && LittleEndian<uint32_t>(text, 8) == size && LittleEndian<uint32_t>(text, 12) == size)
    return 16;
  if (begins && text.size() == 24 && LittleEndian<uint64_t>(text, 8) == size &&
      LittleEndian<uint64_t>(text, 16) == size) {
    return 24;
  }
  ThrowMalformed(file, fmt::format("what follows the zip entry \"{}\" differs from the directory",
                                   Printable(entry.name)));
}

// Fills entry.offset from the local header, which must repeat the directory. Returns where the
// entry ends.
int64_t CheckLocal(const ModelFile& file, CentralEntry& central) {
  ZipEntry& entry = central.entry;
  const auto name_bytes = static_cast<int64_t>(entry.name.size());
  const std::string header = ReadBytes(file, central.header_offset, kLocalBytes + name_bytes);
  const auto crc = LittleEndian<uint32_t>(header, 14);
  const auto size = LittleEndian<uint32_t>(header, 22);
  const bool described = (central.flags & kDescriptorFlag) != 0;
  const bool same_size = size == entry.bytes || (size == kIn64 && entry.bytes >= kIn64);
  const bool deferred = described && crc == 0 && (size == 0 || size == kIn64);
  const bool agree = LittleEndian<uint32_t>(header, 0) == kLocalSignature &&
                     LittleEndian<uint16_t>(header, 6) == central.flags &&
                     LittleEndian<uint16_t>(header, 8) == 0 &&
                     LittleEndian<uint16_t>(header, 26) == entry.name.size() &&
                     std::string_view(header).substr(kLocalBytes) == entry.name &&
                     LittleEndian<uint32_t>(header, 18) == size &&
                     ((crc == entry.crc && same_size) || deferred);
  if (!agree) {
    ThrowMalformed(file, fmt::format("the zip entry \"{}\" differs from the directory",
                                     Printable(entry.name)));
  }
  entry.offset =
      central.header_offset + kLocalBytes + name_bytes + LittleEndian<uint16_t>(header, 28);
  if (entry.offset > file.size() - entry.bytes) {
    ThrowMalformed(file, fmt::format("the zip entry \"{}\" reaches beyond the file's end",
                                     Printable(entry.name)));
  }
  return entry.offset + entry.bytes + (described ? CheckDescriptor(file, entry) : 0);
}

void CheckDistinct(const ModelFile& file, std::vector<CentralEntry>& entries,
                   int64_t directory_offset) {
  std::ranges::sort(entries, {}, &CentralEntry::header_offset);
  int64_t free_from = 0;
  for (CentralEntry& central : entries) {
    if (central.header_offset < free_from) {
      ThrowMalformed(file, fmt::format("the zip entry \"{}\" overlaps another",
                                       Printable(central.entry.name)));
    }
    free_from = CheckLocal(file, central);
  }
  if (free_from > directory_offset)
    ThrowMalformed(file, "the last zip entry overlaps the directory");
}

}  // namespace

std::vector<ZipEntry> ReadZipDirectory(const ModelFile& file) {
  const DirectoryPlace place = FindDirectory(file);
  if (place.bytes > kMaxDirectoryBytes || place.bytes > place.end ||
      place.offset != place.end - place.bytes) {
    ThrowMalformed(file, "the zip archive's directory is not where its end record says");
  }
  const std::string text = ReadBytes(file, place.offset, place.bytes);
  std::vector<CentralEntry> entries;
  for (std::string_view rest = text; !rest.empty();) entries.push_back(ParseCentral(file, rest));
  if (entries.size() != place.num_entries)
    ThrowMalformed(file, "the zip archive's directory is incomplete");
  CheckDistinct(file, entries, place.offset);

  std::vector<ZipEntry> sorted;
  for (CentralEntry& central : entries) sorted.push_back(std::move(central.entry));
  const bool has_checksums =
      std::ranges::any_of(sorted, [](const ZipEntry& entry) { return entry.crc != 0; });
  for (ZipEntry& entry : sorted) {
    if (!has_checksums) entry.crc.reset();
  }
  std::ranges::sort(sorted, {}, &ZipEntry::name);
  const auto twin = std::ranges::adjacent_find(sorted, {}, &ZipEntry::name);
  if (twin != sorted.end()) {
    ThrowMalformed(file, fmt::format("two zip entries are called \"{}\"", Printable(twin->name)));
  }
  return sorted;
}

}  // namespace spillway
