// The fields of one protocol-buffer message, in order. Reads untrusted bytes; keeps no copy.
// Thread rule: one thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace spillway {

struct ProtobufField {
  uint64_t number = 0;
  uint64_t value = 0;      // of a varint; 0 for other kinds
  std::string_view bytes;  // of a string or message; the raw bytes of a fixed32 or fixed64
};

class ProtobufReader {
 public:
  // Lifetime: `message` must outlive the reader and the fields it gives.
  explicit ProtobufReader(std::string_view message) : rest_(message) {}

  // nullopt at the end, and at the first malformed field: then ok() is false.
  std::optional<ProtobufField> Next();
  bool ok() const { return ok_; }

 private:
  std::optional<uint64_t> Varint();
  std::optional<std::string_view> Bytes(uint64_t count);

  std::string_view rest_;
  bool ok_ = true;
};

}  // namespace spillway
