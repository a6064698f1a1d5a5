// TableWriter: packs the small arrays that the kernels of one compute read (rows, tiles, token ids)
// into one run of pinned memory, which crosses to the GPU in one copy.
// Thread rule: one thread.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "spillway/error.h"
#include "spillway/round.h"

namespace spillway {

inline constexpr int64_t kTableAlignBytes = 64;

constexpr int64_t TableBytes(int64_t bytes) { return RoundUp(bytes, kTableAlignBytes); }

class TableWriter {
 public:
  // `host` is filled; it will be copied to `device`, of the same size.
  TableWriter(std::span<std::byte> host, std::byte* device) : host_(host), device_(device) {}

  // Copies the values. Returns where the GPU finds them once what was written has crossed.
  // Requires: they fit.
  template <typename T>
  std::span<const T> Put(std::span<const T> values) {
    const auto bytes = static_cast<int64_t>(values.size_bytes());
    SPILLWAY_CHECK(size_ + bytes <= static_cast<int64_t>(host_.size()));
    if (bytes > 0) std::memcpy(host_.data() + size_, values.data(), values.size_bytes());
    const auto* there = reinterpret_cast<const T*>(device_ + size_);
    size_ += TableBytes(bytes);
    return {there, values.size()};
  }

  std::span<const std::byte> written() const {
    return host_.first(std::min(host_.size(), static_cast<std::size_t>(size_)));
  }
  std::byte* device() const { return device_; }

 private:
  std::span<std::byte> host_;
  std::byte* device_;
  int64_t size_ = 0;
};

}  // namespace spillway
