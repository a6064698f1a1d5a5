// Checks the CRCs of byte ranges while they are read for their own sake, in pieces of any size and
// order, so that no byte is read twice for it. Thread rule: any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace spillway {

struct ChecksummedRange {
  std::string name;
  int64_t offset = 0;
  int64_t bytes = 0;
  uint32_t crc = 0;
};

class RangeChecksums {
 public:
  // Requires: the ranges share no byte.
  explicit RangeChecksums(std::vector<ChecksummedRange> ranges);

  // Takes note that `bytes` were read at `offset`. A range is compared once all of it was seen;
  // what was seen before counts once. Returns the range that turned out to be damaged, if one did.
  std::optional<ChecksummedRange> Note(int64_t offset, std::span<const std::byte> bytes);

 private:
  struct Piece {
    int64_t end = 0;
    uint32_t crc = 0;
  };
  struct State {
    bool done = false;
    std::map<int64_t, Piece> pieces;  // by begin; neighbours are merged
  };

  // Adds a piece unless it overlaps one; returns the CRC of the whole range when it is complete.
  std::optional<uint32_t> Add(std::size_t index, int64_t begin, Piece piece);

  std::vector<ChecksummedRange> ranges_;  // sorted by offset
  std::mutex mutex_;
  std::vector<State> states_;  // guarded by mutex_
};

}  // namespace spillway
