#include "src/tokenizer/protobuf_reader.h"

namespace spillway {

std::optional<uint64_t> ProtobufReader::Varint() {
  uint64_t value = 0;
  for (unsigned shift = 0; shift < 64 && !rest_.empty(); shift += 7) {
    const auto byte = static_cast<unsigned char>(rest_.front());
    rest_.remove_prefix(1);
    value |= uint64_t{byte & 0x7Fu} << shift;
    if (byte < 0x80) return value;
  }
  ok_ = false;
  return std::nullopt;
}

std::optional<std::string_view> ProtobufReader::Bytes(uint64_t count) {
  if (count > rest_.size()) {
    ok_ = false;
    return std::nullopt;
  }
  const std::string_view bytes = rest_.substr(0, count);
  rest_.remove_prefix(count);
  return bytes;
}

std::optional<ProtobufField> ProtobufReader::Next() {
  enum WireType : uint64_t { kVarint = 0, kFixed64 = 1, kLength = 2, kFixed32 = 5 };
  if (rest_.empty() || !ok_) return std::nullopt;
  const auto tag = Varint();
  if (!tag) return std::nullopt;
  ProtobufField field;
  field.number = *tag >> 3;
  const uint64_t wire_type = *tag & 7;
  if (wire_type == kVarint) {
    field.value = Varint().value_or(0);
  } else if (wire_type == kFixed64 || wire_type == kFixed32) {
    field.bytes = Bytes(wire_type == kFixed64 ? 8 : 4).value_or("");
  } else if (wire_type == kLength) {
    if (const auto length = Varint()) field.bytes = Bytes(*length).value_or("");
  } else {
    ok_ = false;
  }
  if (field.number == 0) ok_ = false;
  if (!ok_) return std::nullopt;
  return field;
}

}  // namespace spillway
