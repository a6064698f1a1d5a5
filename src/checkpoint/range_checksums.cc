#include "src/checkpoint/range_checksums.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "src/checkpoint/crc32.h"

namespace spillway {

RangeChecksums::RangeChecksums(std::vector<ChecksummedRange> ranges)
    : ranges_(std::move(ranges)), states_(ranges_.size()) {
  std::ranges::sort(ranges_, {}, &ChecksummedRange::offset);
}

std::optional<uint32_t> RangeChecksums::Add(std::size_t index, int64_t begin, Piece piece) {
  const std::lock_guard lock(mutex_);
  State& state = states_[index];
  auto after = state.pieces.lower_bound(begin);
  const bool overlaps = (after != state.pieces.end() && after->first < piece.end) ||
                        (after != state.pieces.begin() && std::prev(after)->second.end > begin);
  if (state.done || overlaps) return std::nullopt;
  if (after != state.pieces.end() && after->first == piece.end) {
    piece.crc = Crc32Concatenated(piece.crc, after->second.crc, after->second.end - after->first);
    piece.end = after->second.end;
    after = state.pieces.erase(after);
  }
  if (after != state.pieces.begin() && std::prev(after)->second.end == begin) {
    const auto before = std::prev(after);
    piece.crc = Crc32Concatenated(before->second.crc, piece.crc, piece.end - begin);
    begin = before->first;
    state.pieces.erase(before);
  }
  if (begin == ranges_[index].offset && piece.end == begin + ranges_[index].bytes) {
    state = {.done = true, .pieces = {}};
    return piece.crc;
  }
  state.pieces.emplace(begin, piece);
  return std::nullopt;
}

std::optional<ChecksummedRange> RangeChecksums::Note(int64_t offset,
                                                     std::span<const std::byte> bytes) {
  const auto after = std::ranges::upper_bound(ranges_, offset, {}, &ChecksummedRange::offset);
  if (after == ranges_.begin() || bytes.empty()) return std::nullopt;
  const auto index = static_cast<std::size_t>(after - ranges_.begin() - 1);
  const ChecksummedRange& range = ranges_[index];
  const int64_t end = offset + static_cast<int64_t>(bytes.size());
  if (end > range.offset + range.bytes) return std::nullopt;
  {
    const std::lock_guard lock(mutex_);
    if (states_[index].done) return std::nullopt;
  }
  const std::optional<uint32_t> crc = Add(index, offset, {end, Crc32(bytes)});
  return crc && *crc != range.crc ? std::optional(range) : std::nullopt;
}

}  // namespace spillway
