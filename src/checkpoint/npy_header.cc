#include "src/checkpoint/npy_header.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <string>

#include "spillway/error.h"
#include "src/checkpoint/element_type.h"
#include "src/checkpoint/file_kind.h"

namespace spillway {
namespace {

constexpr std::string_view kMagic = "\x93NUMPY";
constexpr int64_t kMaxHeaderBytes = 10'000;  // numpy's own limit

[[noreturn]] void ThrowMalformed(std::string_view source, std::string_view what) {
  throw Error(ErrorCode::kModelMalformed,
              fmt::format("{}: {}; download it again", Printable(source), what));
}

[[noreturn]] void ThrowUnsupported(std::string_view source, std::string_view what) {
  throw Error(
      ErrorCode::kModelUnsupported,
      fmt::format(
          "{}: {}; save it again with numpy.save as a C-ordered, little-endian fp16 or fp32 array",
          Printable(source), what));
}

// A Python dictionary of a string, a boolean and a tuple of integers; no more of the language than
// that.
class DictParser {
 public:
  DictParser(std::string_view text, std::string_view source) : text_(text), source_(source) {}

  struct Dict {
    std::optional<std::string_view> descriptor;
    std::optional<bool> fortran_order;
    std::optional<std::vector<int64_t>> shape;
  };

  Dict Parse();

 private:
  void SkipSpace() {
    const std::size_t at = text_.find_first_not_of(" \t\n\r");
    text_.remove_prefix(at == std::string_view::npos ? text_.size() : at);
  }
  bool Accept(std::string_view token) {
    SkipSpace();
    if (!text_.starts_with(token)) return false;
    text_.remove_prefix(token.size());
    return true;
  }
  void Expect(std::string_view token) {
    if (!Accept(token)) ThrowMalformed(source_, fmt::format("the header lacks a \"{}\"", token));
  }
  std::string_view String();
  std::string_view Descriptor();
  bool Boolean();
  int64_t Integer();
  std::vector<int64_t> Tuple();

  std::string_view text_;
  std::string_view source_;
};

std::string_view DictParser::String() {
  SkipSpace();
  const char quote = text_.empty() ? '\0' : text_.front();
  const std::size_t end =
      quote == '\'' || quote == '"' ? text_.find(quote, 1) : std::string_view::npos;
  if (end == std::string_view::npos) ThrowMalformed(source_, "the header lacks a string");
  const std::string_view string = text_.substr(1, end - 1);
  text_.remove_prefix(end + 1);
  return string;
}

std::string_view DictParser::Descriptor() {
  SkipSpace();
  // A list of fields may nest; nothing after it matters once it is refused.
  if (text_.starts_with('[')) ThrowUnsupported(source_, "is an array of structures");
  return String();
}

bool DictParser::Boolean() {
  if (Accept("True")) return true;
  Expect("False");
  return false;
}

int64_t DictParser::Integer() {
  SkipSpace();
  int64_t value = 0;
  std::size_t digits = 0;
  for (; digits < text_.size() && text_[digits] >= '0' && text_[digits] <= '9'; ++digits) {
    if (__builtin_mul_overflow(value, int64_t{10}, &value) ||
        __builtin_add_overflow(value, int64_t{text_[digits] - '0'}, &value)) {
      ThrowMalformed(source_, "a dimension beyond 63 bits");
    }
  }
  if (digits == 0) ThrowMalformed(source_, "the header lacks a dimension");
  text_.remove_prefix(digits);
  Accept("L");  // Python 2 wrote long integers so
  return value;
}

std::vector<int64_t> DictParser::Tuple() {
  std::vector<int64_t> values;
  Expect("(");
  while (!Accept(")")) {
    values.push_back(Integer());
    if (Accept(")")) break;
    Expect(",");
  }
  return values;
}

DictParser::Dict DictParser::Parse() {
  Dict dict;
  Expect("{");
  while (!Accept("}")) {
    const std::string_view key = String();
    Expect(":");
    if (key == "descr" && !dict.descriptor) {
      dict.descriptor = Descriptor();
    } else if (key == "fortran_order" && !dict.fortran_order) {
      dict.fortran_order = Boolean();
    } else if (key == "shape" && !dict.shape) {
      dict.shape = Tuple();
    } else {
      ThrowMalformed(source_,
                     fmt::format("unexpected key \"{}\" in the header", Printable(key, 40)));
    }
    if (Accept("}")) break;
    Expect(",");
  }
  SkipSpace();
  if (!text_.empty()) ThrowMalformed(source_, "text after the header");
  return dict;
}

struct HeaderPlace {
  int64_t offset;
  int64_t bytes;
};

HeaderPlace FindHeader(const ModelFile& file) {
  const std::string start = file.ReadStart(12);
  if (!start.starts_with(kMagic))
    throw Error(ErrorCode::kModelMalformed, NotExpectedKind(file, "a numpy array"));
  const auto byte = [&](std::size_t at) -> int64_t {
    if (at >= start.size()) ThrowMalformed(file.name(), "ends within the header");
    return static_cast<unsigned char>(start[at]);
  };
  const int64_t version = byte(6);
  if (version < 1 || version > 3)
    ThrowUnsupported(file.name(), fmt::format(".npy version {}", version));
  HeaderPlace place{.offset = version == 1 ? 10 : 12, .bytes = byte(8) | byte(9) << 8};
  if (version > 1) place.bytes |= byte(10) << 16 | byte(11) << 24;
  if (place.bytes > kMaxHeaderBytes) {
    ThrowMalformed(file.name(),
                   fmt::format("a header of {} bytes (at most {})", place.bytes, kMaxHeaderBytes));
  }
  if (place.bytes > file.size() - place.offset)
    ThrowMalformed(file.name(), "ends within the header");
  return place;
}

DType CheckedDType(std::string_view descriptor, std::string_view source) {
  if (descriptor.find('O') != std::string_view::npos) {
    throw Error(
        ErrorCode::kUnsafe,
        fmt::format(
            "{}: an array of Python objects, which only code could read; do not use this model",
            Printable(source)));
  }
  if (descriptor.starts_with('>')) ThrowUnsupported(source, "is big-endian");
  const std::optional<DType> dtype = DTypeOfNumpy(descriptor);
  if (!dtype)
    ThrowUnsupported(source, fmt::format("has the element type \"{}\"", Printable(descriptor, 20)));
  return *dtype;
}

}  // namespace

NpyHeader ReadNpyHeader(const ModelFile& file) {
  const HeaderPlace place = FindHeader(file);
  std::string text(static_cast<std::size_t>(place.bytes), '\0');
  file.ReadAt(place.offset, std::as_writable_bytes(std::span(text)));
  DictParser::Dict dict = DictParser(text, file.name()).Parse();
  if (!dict.descriptor || !dict.fortran_order || !dict.shape) {
    ThrowMalformed(file.name(), "the header needs descr, fortran_order and shape");
  }
  NpyHeader header;
  header.dtype = CheckedDType(*dict.descriptor, file.name());
  if (*dict.fortran_order) ThrowUnsupported(file.name(), "is in Fortran order");
  const std::optional<int64_t> bytes = CheckedBytes(*dict.shape, DTypeBytes(header.dtype));
  if (!bytes) ThrowMalformed(file.name(), "the shape's product is beyond 63 bits");
  header.shape = std::move(*dict.shape);
  header.bytes = *bytes;
  header.offset = place.offset + place.bytes;
  const int64_t present = file.size() - header.offset;
  if (present < header.bytes) {
    throw Error(ErrorCode::kModelTruncated,
                fmt::format("{}: needs {} bytes of elements but holds {}; download it again",
                            Printable(file.name()), header.bytes, present));
  }
  if (present > header.bytes) {
    ThrowMalformed(file.name(),
                   fmt::format("{} bytes after the last element", present - header.bytes));
  }
  return header;
}

}  // namespace spillway
