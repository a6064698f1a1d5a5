#include "src/checkpoint/safetensors_header.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>

#include "spillway/error.h"
#include "src/checkpoint/bounded_json.h"
#include "src/checkpoint/element_type.h"

namespace spillway {
namespace {

constexpr std::string_view kMetadata = "__metadata__";
constexpr std::string_view kFp64 = "F64";

// Bytes of the elements of other types; 0: not known, or less than one.
int64_t BytesOfOther(std::string_view type) {
  constexpr std::array<std::pair<std::string_view, int64_t>, 14> kOthers = {{{"F64", 8},
                                                                             {"I64", 8},
                                                                             {"U64", 8},
                                                                             {"C64", 8},
                                                                             {"I32", 4},
                                                                             {"U32", 4},
                                                                             {"I16", 2},
                                                                             {"U16", 2},
                                                                             {"I8", 1},
                                                                             {"U8", 1},
                                                                             {"F8_E4M3", 1},
                                                                             {"F8_E5M2", 1},
                                                                             {"F8_E8M0", 1},
                                                                             {"BOOL", 1}}};
  const auto* found =
      std::ranges::find(kOthers, type, &std::pair<std::string_view, int64_t>::first);
  return found == kOthers.end() ? 0 : found->second;
}

// The type under a name that lasts, where elements of it may be codes (src/codes); else empty.
std::string_view CodeType(std::string_view type) {
  constexpr std::array<std::string_view, 4> kCodes = {"I32", "I8", "U8", "F8_E4M3"};
  const auto* found = std::ranges::find(kCodes, type);
  return found == kCodes.end() ? std::string_view() : *found;
}

// Builds the list straight from the parser's events: a tree of 1,000,000 tensors would need 1 GB.
class HeaderHandler : public nlohmann::json_sax<nlohmann::json> {
 public:
  explicit HeaderHandler(std::string_view source) : source_(source) {}

  std::vector<StoredTensor> Take() { return std::move(tensors_); }

  bool null() override { return (in_metadata_ && depth_ == 1) || Scalar("null"); }
  bool boolean(bool) override { return Scalar("a boolean"); }
  bool number_integer(number_integer_t) override { return Scalar("a negative number"); }
  bool number_float(number_float_t, const string_t&) override {
    return Scalar("a fractional number");
  }
  bool binary(binary_t&) override { return Scalar("binary data"); }
  bool number_unsigned(number_unsigned_t value) override;
  bool string(string_t& value) override;
  bool start_object(std::size_t) override;
  bool end_object() override;
  bool start_array(std::size_t) override;
  bool end_array() override;
  bool key(string_t& value) override;
  bool parse_error(std::size_t position, const std::string&,
                   const nlohmann::detail::exception&) override {
    Malformed(fmt::format("the header is not JSON (at byte {})", position));
  }

 private:
  // Depth 1 is the header's object, depth 2 a tensor's, depth 3 its shape or offsets.
  enum class Field { kNone, kDType, kShape, kOffsets, kIgnored };

  [[noreturn]] void Malformed(const std::string& what) const {
    throw Error(ErrorCode::kModelMalformed,
                fmt::format("{}: {}; download it again", Printable(source_), what));
  }
  [[noreturn]] void MalformedTensor(std::string_view what) const {
    Malformed(fmt::format("tensor \"{}\": {}", Printable(current_.tensor.name), what));
  }
  bool Scalar(std::string_view what);
  void Enter();
  void FinishTensor();
  void SetType();
  void CheckRange(int64_t element_bytes) const;

  std::string_view source_;
  std::vector<StoredTensor> tensors_;
  int depth_ = 0;
  bool in_metadata_ = false;
  Field field_ = Field::kNone;
  StoredTensor current_;
  std::string type_;            // of the current tensor
  std::array<bool, 3> seen_{};  // dtype, shape, data_offsets
  std::vector<int64_t> offsets_;
};

bool HeaderHandler::Scalar(std::string_view what) {
  if (depth_ == 0) Malformed("the header is not a JSON object");
  if (depth_ == 1)
    Malformed(fmt::format("the header's \"{}\" is {}", Printable(current_.tensor.name), what));
  if (in_metadata_ && depth_ == 2)
    Malformed(fmt::format("\"{}\" holds {}, not text", kMetadata, what));
  if (field_ != Field::kIgnored) MalformedTensor(fmt::format("{} where it does not belong", what));
  return true;
}

bool HeaderHandler::number_unsigned(number_unsigned_t value) {
  if (depth_ != 3 || (field_ != Field::kShape && field_ != Field::kOffsets))
    return Scalar("a number");
  if (value > static_cast<number_unsigned_t>(std::numeric_limits<int64_t>::max())) {
    MalformedTensor("a number beyond 63 bits");
  }
  std::vector<int64_t>& list = field_ == Field::kShape ? current_.tensor.shape : offsets_;
  list.push_back(static_cast<int64_t>(value));
  return true;
}

bool HeaderHandler::string(string_t& value) {
  if (in_metadata_ && depth_ == 2) return true;
  if (depth_ != 2 || field_ != Field::kDType) return Scalar("a string");
  type_ = std::move(value);
  return true;
}

void HeaderHandler::Enter() {
  if (++depth_ > kMaxJsonDepth)
    Malformed(fmt::format("the header is nested deeper than {}", kMaxJsonDepth));
}

bool HeaderHandler::start_object(std::size_t) {
  if (depth_ >= 2 && field_ != Field::kIgnored) Scalar("an object");
  Enter();
  return true;
}

bool HeaderHandler::start_array(std::size_t) {
  const bool expected = depth_ == 2 && (field_ == Field::kShape || field_ == Field::kOffsets);
  if (!expected && field_ != Field::kIgnored) Scalar("an array");
  Enter();
  return true;
}

bool HeaderHandler::end_array() {
  --depth_;
  return true;
}

bool HeaderHandler::key(string_t& value) {
  if (depth_ == 1) {
    in_metadata_ = value == kMetadata;
    field_ = Field::kNone;
    current_ = {};
    current_.tensor.name = std::move(value);
    seen_ = {};
    offsets_.clear();
  } else if (depth_ == 2 && !in_metadata_) {
    constexpr std::array<std::string_view, 3> kFields = {"dtype", "shape", "data_offsets"};
    const auto at = static_cast<std::size_t>(std::ranges::find(kFields, value) - kFields.begin());
    field_ = at == kFields.size() ? Field::kIgnored : static_cast<Field>(at + 1);
    if (field_ != Field::kIgnored && std::exchange(seen_[at], true)) {
      MalformedTensor(fmt::format("\"{}\" occurs twice", value));
    }
  }
  return true;
}

bool HeaderHandler::end_object() {
  if (--depth_ != 1) return true;
  field_ = Field::kNone;
  if (!in_metadata_) FinishTensor();
  in_metadata_ = false;
  return true;
}

void HeaderHandler::FinishTensor() {
  if (!std::ranges::all_of(seen_, [](bool seen) { return seen; })) {
    MalformedTensor("needs \"dtype\", \"shape\" and \"data_offsets\"");
  }
  if (offsets_.size() != 2 || offsets_[0] > offsets_[1])
    MalformedTensor("\"data_offsets\" is not [begin, end]");
  current_.offset = offsets_[0];
  current_.file_bytes = offsets_[1] - offsets_[0];
  SetType();
  tensors_.push_back(std::move(current_));
}

void HeaderHandler::SetType() {
  CheckpointTensor& tensor = current_.tensor;
  const std::optional<DType> dtype = DTypeOfSafetensors(type_);
  const int64_t element_bytes = dtype ? DTypeBytes(*dtype) : BytesOfOther(type_);
  if (element_bytes > 0) CheckRange(element_bytes);
  if (dtype) {
    tensor.dtype = *dtype;
    tensor.bytes = current_.file_bytes;
  } else if (type_ == kFp64) {
    tensor.dtype = DType::kF32;
    tensor.bytes = current_.file_bytes / 2;
    const ElementLayout layout = {.element_bytes = 8,
                                  .cols = std::max<int64_t>(1, tensor.bytes / 4)};
    current_.layout = std::make_unique<const ElementLayout>(layout);
  } else {
    tensor.refusal = UnreadType(source_, tensor.name, type_);
    tensor.coded = CodeType(type_);
    if (!tensor.coded.empty()) tensor.bytes = current_.file_bytes;
  }
}

void HeaderHandler::CheckRange(int64_t element_bytes) const {
  const std::optional<int64_t> bytes = CheckedBytes(current_.tensor.shape, element_bytes);
  if (!bytes) MalformedTensor("the shape's product is beyond 63 bits");
  if (current_.file_bytes == *bytes) return;
  MalformedTensor(fmt::format("has the byte range {}-{}, but its shape needs {} bytes", offsets_[0],
                              offsets_[1], *bytes));
}

void CheckUniqueNames(const std::vector<StoredTensor>& tensors, std::string_view source) {
  std::vector<std::string_view> names;
  names.reserve(tensors.size());
  for (const StoredTensor& stored : tensors) names.push_back(stored.tensor.name);
  std::ranges::sort(names);
  const auto twin = std::ranges::adjacent_find(names);
  if (twin == names.end()) return;
  throw Error(ErrorCode::kModelMalformed,
              fmt::format("{}: duplicate tensor \"{}\"; download it again", Printable(source),
                          Printable(*twin)));
}

// Requires: sorted by (offset, bytes).
void CheckRanges(const std::vector<StoredTensor>& tensors, int64_t data_bytes,
                 std::string_view source) {
  int64_t at = 0;
  for (const StoredTensor& stored : tensors) {
    const std::string name = Printable(stored.tensor.name);
    const int64_t end =
        stored.offset + stored.file_bytes;  // an offset of the header, so within 63 bits
    if (stored.offset != at) {
      throw Error(
          ErrorCode::kModelMalformed,
          fmt::format(
              "{}: tensor \"{}\" begins at {}, which {} the tensor before it, which ends at {}; "
              "download it again",
              Printable(source), name, stored.offset,
              stored.offset < at ? "overlaps" : "leaves a hole after", at));
    }
    if (end > data_bytes) {
      throw Error(
          ErrorCode::kModelTruncated,
          fmt::format(
              "{}: tensor \"{}\" needs bytes {}-{} but the data ends at {}; download it again",
              Printable(source), name, stored.offset, end, data_bytes));
    }
    at = end;
  }
  if (at == data_bytes) return;
  throw Error(ErrorCode::kModelMalformed,
              fmt::format("{}: {} bytes after the last tensor belong to nothing; download it again",
                          Printable(source), data_bytes - at));
}

}  // namespace

std::vector<StoredTensor> ParseSafetensorsHeader(std::string_view text, int64_t data_bytes,
                                                 std::string_view source) {
  if (text.find('\0') != std::string_view::npos) {  // which the parser takes for the end
    throw Error(ErrorCode::kModelMalformed,
                fmt::format("{}: the header is not JSON: it holds a NUL byte; download it again",
                            Printable(source)));
  }
  HeaderHandler handler(source);
  nlohmann::json::sax_parse(text.begin(), text.end(), &handler);
  std::vector<StoredTensor> tensors = handler.Take();
  CheckUniqueNames(tensors, source);
  const auto place = [](const StoredTensor& stored) {
    return std::pair(stored.offset, stored.file_bytes);
  };
  if (!std::ranges::is_sorted(tensors, {}, place)) std::ranges::sort(tensors, {}, place);
  CheckRanges(tensors, data_bytes, source);
  return tensors;
}

}  // namespace spillway
