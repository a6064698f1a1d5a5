// InputBytes: an input file from its first byte to its last; what is compressed with gzip or zstd
// comes as what it holds.
// Thread rule: one thread.
#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/descriptor.h"
#include "src/requests/decompressor.h"

namespace spillway {

class InputBytes {
 public:
  // `path` as OpenInput takes it; `name` and `flag` stand in errors.
  // Throws: as OpenInput.
  InputBytes(const std::filesystem::path& path, std::string name,
             std::string_view flag = "--input");

  // Up to `size` bytes; 0 at the end.
  // Throws: Error kIo; kInput: what is compressed is damaged or cut off.
  std::size_t Read(char* into, std::size_t size);

  // The rest; nullopt where it is over `max_bytes`. Throws: as Read.
  std::optional<std::string> ReadAll(std::size_t max_bytes);

 private:
  std::size_t ReadFile(char* into, std::size_t size);

  std::string name_;
  Descriptor file_;
  std::string head_;                            // read to tell the format, and not given yet
  std::unique_ptr<Decompressor> decompressor_;  // null: the file's bytes are the input's
  std::vector<char> packed_;                    // [packed_begin_, packed_end_) is unread
  std::size_t packed_begin_ = 0;
  std::size_t packed_end_ = 0;
};

}  // namespace spillway
