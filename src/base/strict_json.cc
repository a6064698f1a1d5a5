#include "src/base/strict_json.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <string_view>
#include <utility>
#include <vector>

#include "spillway/error.h"

namespace spillway {
namespace {

using nlohmann::json;

// Python's way: the last of equal keys counts.
enum class EqualKeys { kRefused, kLastCounts };

// Numbers of a text that are not finite, by their place among all its numbers, in that order.
using NonFiniteNumbers = std::vector<std::pair<std::size_t, double>>;

// Builds the document by events, because nlohmann's own builder keeps the last of two equal keys
// and any depth.
class Builder : public nlohmann::json_sax<json> {
 public:
  Builder(std::size_t max_values, EqualKeys equal_keys, NonFiniteNumbers nonfinite)
      : max_values_(max_values), equal_keys_(equal_keys), nonfinite_(std::move(nonfinite)) {}

  json TakeDocument() { return std::move(document_); }
  JsonFault TakeFault() { return std::move(fault_); }

  bool null() override { return Add(nullptr); }
  bool boolean(bool value) override { return Add(value); }
  bool number_integer(number_integer_t value) override { return AddNumber(value); }
  bool number_unsigned(number_unsigned_t value) override { return AddNumber(value); }
  bool number_float(number_float_t value, const string_t&) override { return AddNumber(value); }
  bool string(string_t& value) override { return Add(std::move(value)); }
  bool binary(binary_t&) override { return false; }
  bool start_object(std::size_t) override { return Open(json::object()); }
  bool start_array(std::size_t) override { return Open(json::array()); }
  bool end_object() override { return Close(); }
  bool end_array() override { return Close(); }

  bool key(string_t& name) override {
    auto& members = open_.back().container->get_ref<json::object_t&>();
    const auto [member, added] = members.try_emplace(std::move(name));
    open_.back().key = &member->first;
    open_.back().slot = &member->second;
    return added || equal_keys_ == EqualKeys::kLastCounts ||
           Fail({.kind = JsonFaultKind::kKeyTwice,
                 .path = Path(),
                 .what = "occurs twice in one object",
                 .detail = member->first});
  }

  bool parse_error(std::size_t position, const std::string&,
                   const nlohmann::detail::exception& error) override {
    constexpr int kNumberOutOfRange = 406;  // nlohmann's own id
    return Fail({.kind = JsonFaultKind::kSyntax,
                 .path = Path(),
                 .what = error.id == kNumberOutOfRange
                             ? "is a number that is out of range"
                             : fmt::format("is not valid JSON at byte {}", position),
                 .detail = error.what(),
                 .byte = position});
  }

 private:
  // A container that is not closed yet, and where its next value goes. Pointers stay good: only the
  // innermost container changes.
  struct Frame {
    json* container = nullptr;
    const std::string* key = nullptr;  // of an object: the last one
    json* slot = nullptr;              // its value
  };

  std::string Path() const {
    std::string path = "$";
    for (const Frame& frame : open_) {
      const bool innermost = &frame == &open_.back();
      if (frame.container->is_array()) {
        path = JsonItemPath(path, frame.container->size() - (innermost ? 0 : 1));
      } else if (frame.key != nullptr) {
        path = JsonMemberPath(path, *frame.key);
      }
    }
    return Printable(path, 120);
  }

  bool Fail(JsonFault fault) {
    fault_ = std::move(fault);
    return false;
  }

  bool Count() {
    if (++num_values_ <= max_values_) return true;
    return Fail({.kind = JsonFaultKind::kTooManyValues,
                 .path = "$",
                 .what = fmt::format("holds more than {} values", max_values_)});
  }

  template <typename Value>
  bool Add(Value&& value) {
    if (!Count()) return false;
    Place(std::forward<Value>(value));
    return true;
  }

  template <typename Value>
  bool AddNumber(Value value) {
    const std::size_t place = num_numbers_++;
    const bool is_next = num_taken_ < nonfinite_.size() && nonfinite_[num_taken_].first == place;
    return is_next ? Add(nonfinite_[num_taken_++].second) : Add(value);
  }

  template <typename Value>
  json* Place(Value&& value) {
    if (open_.empty()) return &(document_ = std::forward<Value>(value));
    const Frame& frame = open_.back();
    if (frame.container->is_object()) return &(*frame.slot = std::forward<Value>(value));
    return &frame.container->get_ref<json::array_t&>().emplace_back(std::forward<Value>(value));
  }

  bool Open(json container) {
    if (!Count()) return false;
    if (open_.size() == kMaxStrictJsonDepth) {
      return Fail({.kind = JsonFaultKind::kTooDeep,
                   .path = Path(),
                   .what = fmt::format("nests deeper than {} levels", kMaxStrictJsonDepth)});
    }
    open_.push_back({Place(std::move(container))});
    return true;
  }

  bool Close() {
    open_.pop_back();
    return true;
  }

  std::size_t max_values_;
  EqualKeys equal_keys_;
  NonFiniteNumbers nonfinite_;
  std::size_t num_taken_ = 0;  // of those
  std::size_t num_numbers_ = 0;
  std::size_t num_values_ = 0;
  json document_;
  std::vector<Frame> open_;
  JsonFault fault_;
};

// The parser takes a NUL byte for the text's end.
std::variant<json, JsonFault> Parse(std::string_view text, Builder builder) {
  if (const std::size_t at = text.find('\0'); at != std::string_view::npos) {
    return JsonFault{.path = "$",
                     .what = fmt::format("has a NUL byte at byte {}", at + 1),
                     .detail = "a NUL byte",
                     .byte = at + 1};
  }
  if (!json::sax_parse(text, &builder)) return builder.TakeFault();
  return builder.TakeDocument();
}

struct NonFiniteWord {
  std::string_view word;
  double value;
};
constexpr std::array kNonFiniteWords = {
    NonFiniteWord{"NaN", std::numeric_limits<double>::quiet_NaN()},
    NonFiniteWord{"Infinity", std::numeric_limits<double>::infinity()},
    NonFiniteWord{"-Infinity", -std::numeric_limits<double>::infinity()}};

std::size_t StringEnd(std::string_view text, std::size_t at) {
  for (++at; at < text.size() && text[at] != '"'; ++at) {
    if (text[at] == '\\') ++at;
  }
  return std::min(at + 1, text.size());
}

std::size_t NumberEnd(std::string_view text, std::size_t at) {
  return std::min(text.find_first_not_of("+-.0123456789Ee", at), text.size());
}

// A number outside strings, or such a word.
struct NumberAt {
  std::size_t begin;
  std::size_t end;
  const NonFiniteWord* word;  // null: it is finite
};

// Calls take(NumberAt) with each number, in their order, as long as it returns true.
template <typename Take>
void ForNumbers(std::string_view text, Take take) {
  for (std::size_t at = 0; at < text.size();) {
    const std::string_view rest = text.substr(at);
    const auto* word = std::ranges::find_if(kNonFiniteWords, [&](const NonFiniteWord& candidate) {
      return rest.starts_with(candidate.word);
    });
    if (word != kNonFiniteWords.end()) {
      const NumberAt number = {at, at + word->word.size(), word};
      if (!take(number)) return;
      at = number.end;
    } else if (text[at] == '"') {
      at = StringEnd(text, at);
    } else if (text[at] == '-' || (text[at] >= '0' && text[at] <= '9')) {
      const NumberAt number = {at, NumberEnd(text, at), nullptr};
      if (!take(number)) return;
      at = number.end;
    } else {
      ++at;
    }
  }
}

// Puts a zero between spaces in the place of each word, so that every byte keeps its place. Behind
// `max_numbers` words stay: that many are not taken.
NonFiniteNumbers TakeNonFinite(std::string& text, std::size_t max_numbers) {
  NonFiniteNumbers values;
  std::size_t num_numbers = 0;
  ForNumbers(text, [&](const NumberAt& number) {
    const std::size_t index = num_numbers++;
    if (number.word == nullptr) return index < max_numbers;
    values.emplace_back(index, number.word->value);
    const std::size_t size = number.end - number.begin;
    text.replace(number.begin, size, size, ' ');
    text[number.begin + 1] = '0';
    return index < max_numbers;
  });
  return values;
}

std::variant<json, JsonFault> ParseNonFinite(std::string_view text, std::size_t max_values,
                                             EqualKeys equal_keys) {
  std::string plain(text);
  NonFiniteNumbers nonfinite = TakeNonFinite(plain, max_values);
  return Parse(plain, Builder(max_values, equal_keys, std::move(nonfinite)));
}

}  // namespace

std::variant<json, JsonFault> ParseStrictJson(std::string_view text, std::size_t max_values,
                                              NonFinite nonfinite) {
  if (nonfinite == NonFinite::kNumber && MentionsNonFinite(text))
    return ParseNonFinite(text, max_values, EqualKeys::kRefused);
  return Parse(text, Builder(max_values, EqualKeys::kRefused, {}));
}

std::variant<json, JsonFault> ParsePythonJson(std::string_view text, std::size_t max_values) {
  return ParseNonFinite(text, max_values, EqualKeys::kLastCounts);
}

bool MentionsNonFinite(std::string_view text) {
  return text.find("NaN") != text.npos || text.find("Infinity") != text.npos;
}

std::optional<std::string> WithoutNonFinite(std::string_view text) {
  std::string plain;
  std::size_t copied = 0;
  ForNumbers(text, [&](const NumberAt& number) {
    if (number.word == nullptr) return true;
    plain += text.substr(copied, number.begin - copied);
    plain += "null";
    copied = number.end;
    return true;
  });
  if (copied == 0) return std::nullopt;
  plain += text.substr(copied);
  return plain;
}

std::string JsonMemberPath(const std::string& parent, std::string_view key) {
  return fmt::format("{}.{}", parent, Printable(key, 40));
}

std::string JsonItemPath(const std::string& parent, std::size_t index) {
  return fmt::format("{}[{}]", parent, index);
}

}  // namespace spillway
