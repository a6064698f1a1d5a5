// GgufHead: reads the fields at the beginning of a GGUF file, one after the other, in bounded
// memory. Thread rule: one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "src/checkpoint/model_file.h"
#include "src/gguf/gguf_value.h"

namespace spillway {

class GgufHead {
 public:
  // Lifetime: `file` outlives the head.
  explicit GgufHead(const ModelFile& file) : file_(file) {}

  int64_t position() const { return begin_ + static_cast<int64_t>(at_); }

  // Throws (all below): Error kModelTruncated, kModelMalformed, kModelUnsupported, kIo, kCorrupt.
  template <class T>
  T Scalar() {
    static_assert(std::is_trivially_copyable_v<T>);
    T value;
    Read(std::as_writable_bytes(std::span(&value, 1)));
    return value;
  }

  // A length, then so many bytes of valid UTF-8 or not.
  std::string Text();

  // A number of things that take `least_bytes` each at least in what is left of the file.
  std::size_t Count(int64_t least_bytes);

  // Type and value.
  GgufValue Value();

  [[noreturn]] void Refuse(const std::string& what) const;

 private:
  void Read(std::span<std::byte> out);
  void Fill();
  GgufValue ScalarOf(uint32_t type);
  GgufValue List();
  template <class Held, class Stored>
  GgufValue Numbers(std::size_t count);

  const ModelFile& file_;
  std::vector<std::byte> buffer_;
  int64_t begin_ = 0;  // of the buffer in the file
  std::size_t at_ = 0;
};

}  // namespace spillway
