#include "src/requests/line_json.h"

#include <fmt/format.h>

#include <string>
#include <utility>
#include <vector>

#include "spillway/error.h"
#include "src/requests/line_text.h"

namespace spillway {
namespace {

using nlohmann::json;

constexpr std::size_t kMaxDepth = 64;
// Far more token ids than a model has positions. A value takes 16 bytes and more: a line of 16 MiB
// could ask for hundreds of MiB.
constexpr std::size_t kMaxValues = std::size_t{1} << 18;

// nlohmann's text without its own prefix: "[json.exception.parse_error.101] parse error at line 1,
// column 5: syntax error while parsing ...". The quoted last token may be a megabyte long.
std::string Reason(std::string_view what) {
  if (const std::size_t at = what.find("column "); at != std::string_view::npos) {
    what.remove_prefix(std::min(what.size(), what.find(": ", at) + 2));
  } else if (const std::size_t end = what.find("] "); end != std::string_view::npos) {
    what.remove_prefix(end + 2);
  }
  return Printable(what, 160);
}

// Builds the value while the parser goes through the line; any handler that returns false ends it.
class LineHandler : public nlohmann::json_sax<json> {
 public:
  bool null() override { return Add(nullptr); }
  bool boolean(bool value) override { return Add(value); }
  bool number_integer(number_integer_t value) override { return Add(value); }
  bool number_unsigned(number_unsigned_t value) override { return Add(value); }
  bool number_float(number_float_t value, const string_t&) override { return Add(value); }
  bool binary(binary_t&) override { return false; }

  bool string(string_t& value) override {
    fault = CheckString(value);
    return !fault && Add(std::move(value));
  }

  bool key(string_t& name) override {
    fault = CheckString(name);
    if (fault) return false;
    const auto [place, inserted] =
        open_.back()->get_ref<json::object_t&>().try_emplace(std::move(name));
    if (!inserted) {
      return Stop(
          {"duplicate_key", fmt::format("key \"{}\" is given twice", Printable(place->first))});
    }
    member_ = &place->second;
    return true;
  }

  bool start_object(std::size_t) override { return Open(json::object()); }
  bool start_array(std::size_t) override { return Open(json::array()); }
  bool end_object() override { return Close(); }
  bool end_array() override { return Close(); }

  bool parse_error(std::size_t column, const std::string&, const json::exception& error) override {
    return Stop({"invalid_json", fmt::format("column {}: {}", column, Reason(error.what()))});
  }

  json value;
  MaybeFault fault;

 private:
  bool Stop(LineFault why) {
    fault = std::move(why);
    return false;
  }

  template <typename Value>
  json* Place(Value&& added) {
    if (open_.empty()) return &(value = std::forward<Value>(added));
    json& parent = *open_.back();
    if (parent.is_object()) return &(*member_ = std::forward<Value>(added));
    auto& items = parent.get_ref<json::array_t&>();
    return &items.emplace_back(std::forward<Value>(added));
  }

  template <typename Value>
  bool Add(Value&& added) {
    if (!Count()) return false;
    Place(std::forward<Value>(added));
    return true;
  }

  bool Count() {
    if (++num_values_ <= kMaxValues) return true;
    return Stop({"too_many_values", fmt::format("holds more than {} values", kMaxValues)});
  }

  bool Open(json container) {
    if (!Count()) return false;
    if (open_.size() == kMaxDepth) {
      return Stop({"too_deep", fmt::format("nested deeper than {} levels", kMaxDepth)});
    }
    open_.push_back(Place(std::move(container)));
    return true;
  }

  bool Close() {
    open_.pop_back();
    return true;
  }

  // A child is only added to the innermost, so that the pointers stay good.
  std::vector<json*> open_;
  json* member_ = nullptr;
  std::size_t num_values_ = 0;
};

}  // namespace

std::variant<json, LineFault> ParseLineJson(std::string_view line) {
  // The parser would pass over a mark at the start of any line; LineSource dropped the file's own.
  if (line.starts_with("\xEF\xBB\xBF")) {
    return LineFault{"invalid_json",
                     "column 1: a byte order mark is only accepted at the start of the file"};
  }
  LineHandler handler;
  const bool parsed = json::sax_parse(line, &handler);
  SPILLWAY_CHECK(parsed == !handler.fault.has_value());
  if (handler.fault) return std::move(*handler.fault);
  return std::move(handler.value);
}

}  // namespace spillway
