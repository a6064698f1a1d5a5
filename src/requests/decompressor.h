// Decompressor: the bytes that gzip or zstd data stands for, a piece at a time; memory does not
// grow with the data. Thread rule: one thread.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace spillway {

class Decompressor {
 public:
  struct Progress {
    std::size_t consumed = 0;
    std::size_t produced = 0;
  };

  virtual ~Decompressor() = default;

  // Goes on with `from`, which may be empty; neither number is positive where more is needed.
  // Throws: Error kInput: the data is damaged.
  virtual Progress Decompress(std::span<const char> from, std::span<char> into) = 0;

  // Tells whether the data may end here: not in the middle of what was begun.
  virtual bool complete() const = 0;

  virtual std::string_view format() const = 0;  // "gzip", "zstd"
};

// Longest start of a file that MakeDecompressor tells formats by.
inline constexpr std::size_t kMagicBytes = 4;

// Null where the file, which begins with `head`, is not compressed. `name` stands in errors.
// Files that were written one behind the other count as one.
std::unique_ptr<Decompressor> MakeDecompressor(std::string_view head, const std::string& name);

}  // namespace spillway
