#include "src/checkpoint/safetensors_header.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
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

// Builds the list straight from the parser's events: a tree of 1,000,000 tensors would need 1 GB.
class HeaderHandler : public nlohmann::json_sax<nlohmann::json> {
 public:
  explicit HeaderHandler(std::string_view source) : source_(source) {}

  std::vector<StoredTensor> Take() { return std::move(tensors_); }

  bool null() override { return Scalar("null"); }
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

  std::string_view source_;
  std::vector<StoredTensor> tensors_;
  int depth_ = 0;
  bool in_metadata_ = false;
  Field field_ = Field::kNone;
  StoredTensor current_;
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
  const std::optional<DType> dtype = DTypeOfSafetensors(value);
  if (!dtype) ThrowUnsupportedDType(source_, current_.tensor.name, value);
  current_.tensor.dtype = *dtype;
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
  const std::optional<int64_t> bytes = CheckedBytes(current_.tensor.shape, current_.tensor.dtype);
  if (!bytes) MalformedTensor("the shape's product is beyond 63 bits");
  current_.tensor.bytes = *bytes;
  current_.offset = offsets_[0];
  if (offsets_[1] - offsets_[0] != *bytes) {
    MalformedTensor(fmt::format("has the byte range {}-{}, but its shape needs {} bytes",
                                offsets_[0], offsets_[1], *bytes));
  }
  tensors_.push_back(std::move(current_));
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
        stored.offset + stored.tensor.bytes;  // an offset of the header, so within 63 bits
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
  HeaderHandler handler(source);
  nlohmann::json::sax_parse(text.begin(), text.end(), &handler);
  std::vector<StoredTensor> tensors = handler.Take();
  CheckUniqueNames(tensors, source);
  std::ranges::sort(tensors, {}, [](const StoredTensor& stored) {
    return std::pair(stored.offset, stored.tensor.bytes);
  });
  CheckRanges(tensors, data_bytes, source);
  return tensors;
}

}  // namespace spillway
