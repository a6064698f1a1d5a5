#include "src/gguf/gguf_head.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>

#include "spillway/error.h"

namespace spillway {
namespace {

constexpr int64_t kBufferBytes = 1 << 20;
constexpr int64_t kMaxHeadBytes = int64_t{128} << 20;
constexpr uint64_t kMaxTextBytes = 16 << 20;
constexpr uint64_t kMaxListed = 8'000'000;

// Numbers of the types of values.
enum ValueType : uint32_t {
  kUint8,
  kInt8,
  kUint16,
  kInt16,
  kUint32,
  kInt32,
  kFloat32,
  kBool,
  kString,
  kArray,
  kUint64,
  kInt64,
  kFloat64,
};

}  // namespace

void GgufHead::Refuse(const std::string& what) const { ThrowMalformed(file_, what); }

void GgufHead::Fill() {
  begin_ += static_cast<int64_t>(buffer_.size());
  at_ = 0;
  if (begin_ >= kMaxHeadBytes)
    Refuse(fmt::format("metadata and tensor names take over {} MiB", kMaxHeadBytes >> 20));
  buffer_.resize(static_cast<std::size_t>(std::min(kBufferBytes, file_.size() - begin_)));
  if (buffer_.empty()) {
    throw Error(ErrorCode::kModelTruncated,
                fmt::format("{}: ends at byte {} within its head; download it again",
                            Printable(file_.name()), file_.size()));
  }
  file_.ReadAt(begin_, buffer_);
}

void GgufHead::Read(std::span<std::byte> out) {
  while (!out.empty()) {
    if (at_ == buffer_.size()) Fill();
    const std::size_t count = std::min(out.size(), buffer_.size() - at_);
    std::memcpy(out.data(), buffer_.data() + at_, count);
    at_ += count;
    out = out.subspan(count);
  }
}

std::string GgufHead::Text() {
  const auto length = Scalar<uint64_t>();
  if (length > kMaxTextBytes)
    Refuse(fmt::format("a text of {} bytes at byte {} (at most {})", length, position(),
                       kMaxTextBytes));
  if (static_cast<int64_t>(length) > file_.size() - position()) {
    throw Error(ErrorCode::kModelTruncated,
                fmt::format("{}: a text of {} bytes at byte {} but the file ends at {}; download "
                            "it again",
                            Printable(file_.name()), length, position(), file_.size()));
  }
  std::string text(length, '\0');
  Read(std::as_writable_bytes(std::span(text)));
  return text;
}

std::size_t GgufHead::Count(int64_t least_bytes) {
  const auto count = Scalar<uint64_t>();
  const auto most = static_cast<uint64_t>((file_.size() - position()) / least_bytes);
  if (count > most)
    Refuse(fmt::format("{} entries at byte {} but the file ends at {}", count, position(),
                       file_.size()));
  if (count > kMaxListed)
    Refuse(fmt::format("{} entries at byte {} (at most {})", count, position(), kMaxListed));
  return count;
}

GgufValue GgufHead::Value() {
  const auto type = Scalar<uint32_t>();
  return type == kArray ? List() : ScalarOf(type);
}

GgufValue GgufHead::ScalarOf(uint32_t type) {
  switch (type) {
    case kUint8:
      return int64_t{Scalar<uint8_t>()};
    case kInt8:
      return int64_t{Scalar<int8_t>()};
    case kUint16:
      return int64_t{Scalar<uint16_t>()};
    case kInt16:
      return int64_t{Scalar<int16_t>()};
    case kUint32:
      return int64_t{Scalar<uint32_t>()};
    case kInt32:
      return int64_t{Scalar<int32_t>()};
    case kUint64: {
      const auto value = Scalar<uint64_t>();
      return static_cast<int64_t>(
          std::min(value, static_cast<uint64_t>(std::numeric_limits<int64_t>::max())));
    }
    case kInt64:
      return Scalar<int64_t>();
    case kFloat32:
      return double{Scalar<float>()};
    case kFloat64:
      return Scalar<double>();
    case kBool:
      return Scalar<uint8_t>() != 0;
    case kString:
      return Text();
    default:
      Refuse(fmt::format("a value of type {} at byte {}", type, position()));
  }
}

template <class Held, class Stored>
GgufValue GgufHead::Numbers(std::size_t count) {
  std::vector<Held> list(count);
  for (Held& value : list) value = static_cast<Held>(Scalar<Stored>());
  return list;
}

GgufValue GgufHead::List() {
  const auto type = Scalar<uint32_t>();
  switch (type) {
    case kUint8:
    case kBool:
      return Numbers<int64_t, uint8_t>(Count(sizeof(uint8_t)));
    case kInt8:
      return Numbers<int64_t, int8_t>(Count(sizeof(int8_t)));
    case kUint16:
      return Numbers<int64_t, uint16_t>(Count(sizeof(uint16_t)));
    case kInt16:
      return Numbers<int64_t, int16_t>(Count(sizeof(int16_t)));
    case kUint32:
      return Numbers<int64_t, uint32_t>(Count(sizeof(uint32_t)));
    case kInt32:
      return Numbers<int64_t, int32_t>(Count(sizeof(int32_t)));
    case kInt64:
    case kUint64:
      return Numbers<int64_t, int64_t>(Count(sizeof(int64_t)));
    case kFloat32:
      return Numbers<double, float>(Count(sizeof(float)));
    case kFloat64:
      return Numbers<double, double>(Count(sizeof(double)));
    case kString: {
      std::vector<std::string> list(Count(sizeof(uint64_t)));
      for (std::string& text : list) text = Text();
      return list;
    }
    default:
      Refuse(fmt::format("a list of type {} at byte {}", type, position()));
  }
}

}  // namespace spillway
